"""The client of a cluster: routing, and all conveniences on top of it."""

from protocol.client.acl_calls import AclCalls
from protocol.client.group_calls import GroupCalls
from protocol.client.log_calls import LogCalls
from protocol.client.mirror_calls import MirrorCalls
from protocol.client.offset_calls import OffsetCalls
from protocol.client.topic_calls import TopicCalls
from protocol.client.transaction_calls import TransactionCalls


class ClusterClient(LogCalls, OffsetCalls, TopicCalls, GroupCalls, AclCalls, MirrorCalls, TransactionCalls):
    """`async with ClusterClient("host:9092,host:9093") as client: …`

    Conveniences retry by `client.retry` unless given a policy of their own, and raise `KafkaError` for what a
    broker refused, `ClientError` for what could not be asked.
    """
