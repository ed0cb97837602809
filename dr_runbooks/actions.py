"""Actions of runbooks."""
