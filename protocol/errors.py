"""Error codes of the Kafka protocol and the exceptions of this package.

`ErrorCode` holds every code of Kafka 4.3 (`org.apache.kafka.common.protocol.Errors`) with its retriable flag,
which decides what a client may send again unchanged. Descriptions are ours and short; they end up in front of
operators. `DecodeError` and `EncodeError` come from the codec, `KafkaError` is an answer that a broker gave.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    retriable: bool
    description: str

    def __new__(cls, code: int, retriable: bool = False, description: str = "") -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """The member for a code from the wire; codes newer than this table read as UNKNOWN_SERVER_ERROR."""
        member: ErrorCode = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)  # type: ignore[assignment]
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "the broker failed in a way it has no code for"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset lies outside the partition's log"
    CORRUPT_MESSAGE = 2, True, "a batch has a wrong checksum, size or key"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this broker does not have the topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this broker neither leads nor follows the partition"
    REQUEST_TIMED_OUT = 7, True, "the request was not finished within its time-out"
    BROKER_NOT_AVAILABLE = 8, False, "the broker cannot be reached"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not on this broker"
    MESSAGE_TOO_LARGE = 10, False, "a batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, False, "the request comes from an earlier controller"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the text committed beside the offset is too long"
    NETWORK_EXCEPTION = 13, True, "the connection ended before the answer"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "the coordinator is not available"
    NOT_COORDINATOR = 16, True, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic's name is not allowed or not usable here"
    RECORD_LIST_TOO_LARGE = 18, False, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer replicas are in sync than the topic requires"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "written, but to fewer in-sync replicas than required"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, False, "the group is at another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member shares no protocol with the group"
    INVALID_GROUP_ID = 24, False, "the group id is empty or not allowed"
    UNKNOWN_MEMBER_ID = 25, False, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session time-out is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the committed offset's record is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, False, "a timestamp is outside the range the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, False, "the broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, False, "the topic exists already"
    INVALID_PARTITIONS = 37, False, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is not valid"
    INVALID_CONFIG = 40, False, "a setting is unknown or has a bad value"
    NOT_CONTROLLER = 41, True, "this broker is not the controller"
    INVALID_REQUEST = 42, False, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the batch format does not support this"
    POLICY_VIOLATION = 44, False, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the producer's sequence has a hole"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the producer's sequence was seen before"
    INVALID_PRODUCER_EPOCH = 47, False, "a producer with a newer epoch has taken over"
    INVALID_TXN_STATE = 48, False, "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction time-out is above the broker's limit"
    CONCURRENT_TRANSACTIONS = 51, True, "the transaction before is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, False, "the broker has no authorizer"
    OPERATION_NOT_ATTEMPTED = 55, False, "not tried, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the broker could not read or write its disk"
    LOG_DIR_NOT_FOUND = 57, False, "the broker does not have this log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "the credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, False, "the broker knows nothing of this producer any more"
    REASSIGNMENT_IN_PROGRESS = 60, False, "a reassignment is running"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the delegation token belongs to someone else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "delegation tokens cannot be asked for on this connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "the principal's type is not supported"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "the fetch session does not exist"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, True, "the leader has no listener of this name"
    TOPIC_DELETION_DISABLED = 73, False, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the compression is not supported here"
    STALE_BROKER_EPOCH = 77, False, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, True, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id in this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group has as many members as the broker allows"
    FENCED_INSTANCE_ID = 82, False, "another member has taken this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica may become leader"
    ELECTION_NOT_NEEDED = 84, True, "the partition has the leader it should have"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment is running"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group is subscribed to the topic"
    INVALID_RECORD = 87, False, "a record breaks the broker's rules"
    UNSTABLE_OFFSET_COMMIT = 88, True, "a transaction that commits offsets is still open"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota is used up"
    PRODUCER_FENCED = 90, False, "another producer uses this transactional id"
    RESOURCE_NOT_FOUND = 91, False, "the named resource does not exist"
    DUPLICATE_RESOURCE = 92, False, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "the sender is not among the voters, or the voter sets differ"
    INVALID_UPDATE_VERSION = 95, False, "the given state version is not valid"
    FEATURE_UPDATE_FAILED = 96, False, "the finalized features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, False, "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "this broker does not know the topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "a broker with this id is registered"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker with this id is registered"
    INCONSISTENT_TOPIC_ID = 103, True, "the log has another topic id than the request"
    INCONSISTENT_CLUSTER_ID = 104, False, "the request names another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, False, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, False, "the change made another broker the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset lies in remote storage"
    FENCED_MEMBER_EPOCH = 110, False, "the coordinator has fenced this member's epoch"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still uses this group instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "the group's assignor is not supported"
    STALE_MEMBER_EPOCH = 113, False, "the member's epoch is behind: send a heartbeat first"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request was sent to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "no controller with this id is known"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription has changed"
    TELEMETRY_TOO_LARGE = 118, False, "the pushed telemetry is too large"
    INVALID_REGISTRATION = 119, False, "the controller refused the registration"
    TRANSACTION_ABORTABLE = 120, False, "the transaction failed and has to be aborted"
    INVALID_RECORD_STATE = 121, False, "the record's state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, True, "the share session does not exist"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, False, "the share coordinator has a newer state epoch"
    INVALID_VOTER_KEY = 125, False, "the voter key is not this replica's"
    DUPLICATE_VOTER = 126, False, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression cannot be read"
    REBOOTSTRAP_REQUIRED = 129, False, "the client must start again from its bootstrap addresses"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the streams topology epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the streams topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "the broker holds as many share sessions as it may"


class ProtocolError(Exception):
    """Base of everything this package raises."""

    to_do: str = ""
    """What the user may do about it, where that is known; a part of the text."""

    @property
    def what(self) -> str:
        """The text without what to do."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.what}; {self.to_do}" if self.to_do else self.what


class NotThere(Exception):
    """Beside another base: somebody named what does not exist. Wrong usage; nothing has failed."""


class DecodeError(ProtocolError):
    """Bytes that are not what they claim to be. Says which message, which field and at which position."""


class EncodeError(ProtocolError):
    """A message that cannot be written in the version asked for. Says which message and field."""


class KafkaError(ProtocolError):
    """An error code that a broker answered, with its text and where it happened."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    @property
    def retriable(self) -> bool:
        return self.code.retriable

    @property
    def what(self) -> str:
        what = f"{self.code.name} ({int(self.code)}): {self.code.description}"
        return f"{self.message}: {what}" if self.message else what
