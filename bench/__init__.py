"""Benchmarks; README.md says what each measures."""
