"""Compaction of logs with `cleanup.policy=compact`, in a process of its own. See README.md."""
