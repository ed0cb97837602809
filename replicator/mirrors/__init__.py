"""Links that keep offsets: read-only mirrors on isthmus clusters, and switching roles (README.md)."""
