"""The private APIs by key: names and versions, as `protocol.messages.index` has them of Kafka's."""

from enum import IntEnum

FIRST_KEY = 10_000


class PrivateKey(IntEnum):
    MIRROR_APPEND = 10_000
    SETTLE_MIRRORS = 10_001
    ALTER_MIRRORS = 10_002


PRIVATE_ROWS: tuple[tuple[int, str, int, int, int | None], ...] = (
    # key, name, lowest version, highest version, first flexible version
    (10_000, "MirrorAppend", 0, 0, 0),
    (10_001, "SettleMirrors", 0, 0, 0),
    (10_002, "AlterMirrors", 0, 0, 0),
)
