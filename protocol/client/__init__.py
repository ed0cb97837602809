"""Asking brokers: one connection, and a client of a whole cluster. Works with any Kafka from 2.7 on."""

from protocol.client.acl_calls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from protocol.client.cluster import ClusterClient
from protocol.client.connection import Connection
from protocol.client.coordinators import CoordinatorKind
from protocol.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    NotSupportedError,
    RequestTimeoutError,
    TokenError,
    WrongClusterError,
)
from protocol.client.group_calls import Committed, GroupDescription, GroupMember, ListedGroup, OffsetsAgain
from protocol.client.log_calls import Fetched, ProducerId
from protocol.client.metadata import Broker, Leader, Metadata, PartitionMetadata, TopicMetadata
from protocol.client.offset_calls import EARLIEST, LATEST, MAX_TIMESTAMP, ListedOffset
from protocol.client.retry import NO_RETRIES, RetryPolicy
from protocol.client.routing import parse_bootstrap
from protocol.client.security import ClientSecurity, SaslBearer, SaslPlain, SaslScram
from protocol.client.spread import LEADER_MOVED, Isolation
from protocol.client.topic_calls import ConfigEntry, ConfigKind, ConfigSource, NewTopic

__all__ = [
    "EARLIEST",
    "LATEST",
    "LEADER_MOVED",
    "MAX_TIMESTAMP",
    "NO_RETRIES",
    "Acl",
    "AclOperation",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "AuthenticationError",
    "Broker",
    "ClientError",
    "ClientSecurity",
    "ClusterClient",
    "Committed",
    "ConfigEntry",
    "ConfigKind",
    "ConfigSource",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "CoordinatorKind",
    "Fetched",
    "GroupDescription",
    "GroupMember",
    "Isolation",
    "Leader",
    "ListedGroup",
    "ListedOffset",
    "Metadata",
    "NewTopic",
    "NotSupportedError",
    "OffsetsAgain",
    "PartitionMetadata",
    "ProducerId",
    "RequestTimeoutError",
    "RetryPolicy",
    "SaslBearer",
    "SaslPlain",
    "SaslScram",
    "TokenError",
    "TopicMetadata",
    "WrongClusterError",
    "parse_bootstrap",
]
