"""The classic group protocol as plain state: joins, syncs, heartbeats and leaves in, answers and records
out.

No sockets, no log, no clock: every call gets the `Instant` at which it happens and the requests it may park
as opaque waiters. Kafka's `ClassicGroup` and the classic half of `GroupMetadataManager` are the model;
KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member id required),
KIP-559 (protocol in sync) and KIP-814 (skip assignment) bind it.
"""
