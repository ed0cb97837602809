"""The exceptions of the audit."""

from __future__ import annotations


class AuditError(Exception):
    """An audit could not be carried out; says what is missing and where."""


class SplitError(AuditError):
    """One range could not be read to its end. The audit then is incomplete, never a statement on content."""
