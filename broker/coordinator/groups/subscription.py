"""Which topics the members of a consumer group have subscribed to.

Members' metadata is opaque to the protocol. Only the expiry and the deletion of offsets look into it, and
only for groups of the type `consumer` (Kafka's `ConsumerProtocolSubscription`); what cannot be read
protects everything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from protocol.codec import decode_from
from protocol.errors import ProtocolError
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER = "consumer"

_VERSION = struct.Struct(">h")
_NEWEST = ConsumerProtocolSubscription.VALID_VERSIONS[1]


def subscribed_topics(protocol_type: str | None, metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all members, or None if that cannot be known.

    A group without members has none. Members of another type (`connect`) read no topics by subscription,
    so nothing can be said about them.
    """
    members = list(metadata)
    if not members:
        return frozenset()
    if protocol_type != CONSUMER:
        return None
    try:
        return frozenset(topic for each in members for topic in _topics(each))
    except (ProtocolError, struct.error):
        return None


def _topics(metadata: bytes) -> list[str]:
    (version,) = _VERSION.unpack_from(metadata)
    # A newer version only appends fields, so what is known can be read from its front.
    subscription, _ = decode_from(
        ConsumerProtocolSubscription, max(0, min(version, _NEWEST)), metadata, _VERSION.size
    )
    return subscription.topics
