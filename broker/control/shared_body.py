"""What UpdateMetadata says to all brokers alike, encoded once however many of them hear it.

Only its first fields differ: the receiver's epoch. With 200 brokers and 200,000 partitions the rest is some
ten megabytes, whose encoding takes longer than the plan that it tells of. Owns the width of those first
fields. Must not know connections. (Schema: UpdateMetadataRequest, versions 7 and 8.)
"""

from struct import Struct

from protocol.codec import dumps
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from protocol.types import Buffer

_FIRST_FIELDS = {7: Struct(">iiq").size, 8: Struct(">i?iq").size}
"""Controller id, (is it KRaft's), controller epoch, broker epoch."""


class SharedBody:
    """For requests that differ by their receiver's epoch alone."""

    def __init__(self) -> None:
        self._tails: dict[int, memoryview] = {}

    def segments(self, request: UpdateMetadataRequest, version: int) -> list[Buffer] | None:
        """The request encoded; None in a version that this does not know. Raises EncodeError."""
        width = _FIRST_FIELDS.get(version)
        if width is None:
            return None
        tail = self._tails.get(version)
        if tail is None:
            tail = self._tails[version] = memoryview(dumps(request, version))[width:]
        first = UpdateMetadataRequest(
            controller_id=request.controller_id,
            is_kraft_controller=request.is_kraft_controller,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
        )
        return [dumps(first, version)[:width], tail]
