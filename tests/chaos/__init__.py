"""Faults by a seeded schedule against real brokers, and a checker of what real clients saw: README.md."""
