"""Who leads which partition here, and up to where it may be read. Start with README.md."""

from broker.replication.partition import Partition
from broker.replication.replicas import ReplicaManager
from broker.replication.watched import Watcher

__all__ = ["Partition", "ReplicaManager", "Watcher"]
