"""The append that makes up a broker's load: one plain batch of a client, put into a segment that has room.

Owns no rule of its own: what it takes, `Log.append` would take with the same outcome (a test
compares them); what is unusual it leaves alone, and `append` then finds out what it is. It refuses nothing.
Everything is in one function, because here each call costs as much as the work inside it.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.config import LogConfig
from broker.log.incoming import AppendRules
from broker.log.leader_epochs import LeaderEpochs
from broker.log.log_view import LogView
from broker.log.producer_state import ProducerStates
from broker.log.segment import Segment
from broker.log.segment_list import SegmentList
from broker.log.segment_view import MAX_RELATIVE_OFFSET
from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.header import CODEC_MASK, CRC_START, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL

_FIELDS: Final = Struct(">qiibIhiqqqhii")
_PLACE: Final = Struct(">qii")
"""Base offset, batch length and leader epoch, which stand together."""
_MAX_CODEC: Final = 4
_UNUSUAL: Final = ~(CODEC_MASK | TRANSACTIONAL)


class Room(NamedTuple):
    """What fits into the active segment, worked out once (`Segment.has_room` says the same of one batch)."""

    segment: Segment
    size: int
    latest: int
    """Timestamp in ms."""
    last_offset: int


class OrdinaryAppend(LogView):
    __slots__ = ("_closed", "_failing", "_room", "_rules")

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        segments: SegmentList,
        producers: ProducerStates,
        epochs: LeaderEpochs,
    ) -> None:
        super().__init__(directory, config, segments, producers, epochs)
        self._rules = AppendRules.of(config)
        self._room: Room | None = None
        """None: to be worked out, after new settings and after a truncation."""
        self._closed = False
        self._failing = False

    def append_ordinary(
        self, view: memoryview, leader_epoch: int, now_ms: int, *, sole: bool = False
    ) -> tuple[int, int] | None:
        """Base offset and new log end; None when it takes `append` and nothing has changed.

        `sole`: no other replica has to have the batch before it may be read. Writes into `view` as `append`
        does, and raises nothing: a disk that refuses shows again in `append`.
        """
        size = len(view)
        rules = self._rules
        if not HEADER_SIZE <= size <= rules.ordinary_bytes:
            return None
        header = _FIELDS.unpack_from(view)
        zero, length, _, magic, crc, attributes, delta, _, latest, producer_id, _, sequence, count = header
        active = self.segments.items[-1]
        room = self._room
        if room is None or room[0] is not active:
            room = self._look_for_room(active)
        _, room_size, room_latest, room_last = room
        base = self._end
        last = base + delta
        if not (
            length + LENGTH_OVERHEAD == size
            and magic == MAGIC
            and not zero
            and count == delta + 1
            and count > 0
            and not attributes & _UNUSUAL
            and attributes & CODEC_MASK <= _MAX_CODEC
            and latest <= now_ms + rules.ahead_ms
            and active.size + size <= room_size
            and latest <= room_latest
            and last <= room_last
            and not active.indexes_full
            and leader_epoch == self.epochs.latest
            and (
                producer_id < 0
                or (sequence >= 0 and self.producers.follows(producer_id, header[10], sequence, attributes))
            )
            and crc32c(view[CRC_START:]) == crc
        ):
            return None
        _PLACE.pack_into(view, 0, base, length, leader_epoch)
        try:
            active.append(view, last, latest)
        except OSError:
            _PLACE.pack_into(view, 0, 0, length, -1)
            return None
        if producer_id >= 0:
            self.producers.update(tuple.__new__(BatchHeader, header), base, now_ms)
        self._end = end = last + 1
        self._failing = False
        if sole:
            self._high_watermark = end
            if self.producers.completed:
                self.producers.on_high_watermark(end)
        return base, end

    def _look_for_room(self, active: Segment) -> Room:
        config, first = self._config, active.first_timestamp
        if self._closed or not active.size or first < 0:  # without timestamps the clock counts
            return Room(active, -1, -1, -1)
        room = self._room = Room(
            active,
            config.segment_bytes,
            first + config.longest_segment_ms - active.jitter_ms,
            active.base_offset + MAX_RELATIVE_OFFSET,
        )
        return room
