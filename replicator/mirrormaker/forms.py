"""The forms in which people have their MirrorMaker 2: its properties file, connectors of a Connect cluster,
Strimzi's KafkaMirrorMaker2.

Owns telling them apart, by what a file holds. Each becomes the same links by the same settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from replicator.mirrormaker.connector_files import parse_connectors
from replicator.mirrormaker.file import MirrorMakerFile, is_mirrormaker_text, read_mirrormaker_file
from replicator.mirrormaker.remarks import MirrorMakerFileError, Remark
from replicator.mirrormaker.strimzi import parse_strimzi

_STRIMZI: Final = re.compile(
    r"""(?m)(?:^[\s-]*|[{,]\s*)["']?kind["']?\s*:\s*["']?KafkaMirrorMaker2["']?\s*(?:$|[,}\#])"""
)
_CONNECTOR: Final = re.compile(
    r"""connector\.class["']?\s*[:=]\s*["']?[\w.]*\bMirror(Source|Checkpoint|Heartbeat)Connector\b"""
)
_KAFKA_CONNECTOR: Final = re.compile(
    r"""(?m)^[\s-]*["']?kind["']?\s*:\s*["']?KafkaConnector["']?\s*(?:$|[,\#])"""
)
_CLUSTERS: Final = re.compile(r"""(?m)(?:^|[{,])\s*["']?clusters["']?\s*[=:]""")


def is_mirrormaker_file(path: Path) -> bool:
    """Whether it is one of them, and not a topology. Raises OSError."""
    return _reader(path, _text(path)) is not None


def says_mirrormaker(path: Path) -> bool:
    """The same by what it holds: JSON is taken for connectors whatever that is. Raises OSError."""
    text = _text(path)
    return _reader(path, text) is not None and (path.suffix != ".json" or _CONNECTOR.search(text) is not None)


def read_links(path: Path) -> MirrorMakerFile:
    """Of any of them. Raises MirrorMakerFileError with all problems, also when the file cannot be read."""
    try:
        return (_reader(path, _text(path)) or read_mirrormaker_file)(path)
    except OSError as error:
        raise MirrorMakerFileError(str(path), [Remark(0, str(path), str(error.strerror))]) from None


def _text(path: Path) -> str:
    return path.read_text(encoding="iso-8859-1")


def _reader(path: Path, text: str) -> Callable[[Path], MirrorMakerFile] | None:
    if _STRIMZI.search(text):
        return lambda path: parse_strimzi(_utf8(path), path)
    if _KAFKA_CONNECTOR.search(text):
        return _refuse_kafka_connector
    of_connectors = _CONNECTOR.search(text) is not None or path.suffix == ".json"
    if of_connectors and not _CLUSTERS.search(text):
        return lambda path: parse_connectors(_utf8(path), path)
    if path.suffix in (".yaml", ".yml"):
        return None
    if path.suffix == ".properties" or is_mirrormaker_text(text):
        return read_mirrormaker_file
    return None


def _refuse_kafka_connector(path: Path) -> MirrorMakerFile:
    text = (
        "is not read: take what Strimzi's Connect cluster makes of it, by kubectl exec CONNECT-POD --"
        " curl -s localhost:8083/connectors?expand=info"
    )
    raise MirrorMakerFileError(str(path), [Remark(0, "KafkaConnector", text)])


def _utf8(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        text = f"cannot be read as UTF-8: {error.reason} at byte {error.start}"
        raise MirrorMakerFileError(str(path), [Remark(0, str(path), text)]) from None
