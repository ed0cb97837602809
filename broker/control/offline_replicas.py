"""Which replicas living brokers cannot serve, because the log directory failed that holds them. Pure state.

A broker says that a directory failed, not which partitions were in it; what it answers to LeaderAndIsr tells
(KIP-112). Known until the broker restarts. (Kafka: `ControllerContext.replicasOnOfflineDirs`.)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from protocol.errors import ErrorCode
from protocol.types import TopicPartition


class OfflineReplicas:
    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, set[int]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._by_partition

    def of(self, partition: TopicPartition) -> Collection[int]:
        """Brokers that cannot serve their replica of it."""
        return self._by_partition.get(partition, ())

    def on(self, broker_id: int) -> list[TopicPartition]:
        return [partition for partition, brokers in self._by_partition.items() if broker_id in brokers]

    def answered(self, broker_id: int, codes: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Take what a broker answered to LeaderAndIsr; returns partitions for which that is news."""
        news = []
        for partition, code in codes.items():
            known = broker_id in self.of(partition)
            if code == ErrorCode.KAFKA_STORAGE_ERROR and not known:
                self._by_partition[partition].add(broker_id)
                news.append(partition)
            elif code == ErrorCode.NONE and known:
                self._discard(partition, broker_id)
                news.append(partition)
        return news

    def forget_brokers(self, broker_ids: Collection[int]) -> None:
        """They went or were started anew: what failed may work again."""
        for partition, brokers in list(self._by_partition.items()):
            for number in brokers & set(broker_ids):
                self._discard(partition, number)

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._by_partition.pop(partition, None)

    def _discard(self, partition: TopicPartition, broker_id: int) -> None:
        brokers = self._by_partition[partition]
        brokers.discard(broker_id)
        if not brokers:
            del self._by_partition[partition]
