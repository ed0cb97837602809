"""ZooKeeper's MultiRead (ZooKeeper 3.6 on, ZOOKEEPER-1407): many nodes in one request, which kazoo lacks.

Owns that request's wire format. Each node has its own answer: data and stat, or why there is none. Must not
know sessions, retries or what the nodes mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, stat_struct

_ERROR: Final = -1
_END: Final = MultiHeader(_ERROR, True, -1)


@dataclass(frozen=True)
class MultiRead:
    """For `KazooClient._call`; `paths` are with the chroot."""

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self.paths:
            request += MultiHeader(GetData.type, False, -1).serialize()
            request += GetData(path, None).serialize()
        request += _END.serialize()
        return request

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        """For each path (data, stat) or an exception of kazoo's."""
        answers: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return answers
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                answers.append(kazoo_errors.EXCEPTIONS[code]())
                offset += int_struct.size
                continue
            content, stat = GetData.deserialize(data, offset)
            answers.append((content, stat))
            offset += int_struct.size + len(content or b"") + stat_struct.size
