"""What to look at before a link starts: `check_link` asks both clusters and says what would go wrong, and
what to do about it. Changes nothing."""

from replicator.preflight.check import check_link
from replicator.preflight.findings import Finding, Level

__all__ = ["Finding", "Level", "check_link"]
