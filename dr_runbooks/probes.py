"""Probes of runbooks."""
