"""Clusters as endpoints of a transfer: reading by Fetch, writing by idempotent Produce."""
