"""Who leads which partition here, and up to where it may be read. Start with README.md."""

from broker.replication.partition import Partition, Watcher
from broker.replication.replicas import ReplicaManager

__all__ = ["Partition", "ReplicaManager", "Watcher"]
