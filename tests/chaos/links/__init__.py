"""Faults by a seeded schedule against links between real clusters, and a check of what arrived: README.md."""
