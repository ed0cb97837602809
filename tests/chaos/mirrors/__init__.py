"""Faults against mirrors with identical offsets while they change roles, and a judge: README.md."""
