"""Write docs/protocol.md from the registry of handlers, or check it with --check (exit 1 when it is behind).

python -m tools.generate_protocol_docs [--check]
"""

import sys
import textwrap
from pathlib import Path

from broker.server.registry import Entry, Registry
from protocol.api import APIS
from tools.generated_page import write_or_check

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "protocol.md"

HEAD = """# Protocol: what the broker serves

Generated from the handlers by `python -m tools.generate_protocol_docs`; do not edit. ApiVersions is derived
from the same registry, so this is what clients see. A key or version that is not listed closes the connection
(ApiVersions: error 35 in a version 0 body, KIP-511). Keys from 10,000 on are for isthmus itself (mirrors with
identical offsets): ApiVersions names them only to clients that call themselves isthmus.

| key | API | versions | notes |
| ---: | --- | --- | --- |
"""

TAIL = """
{absent}

In short, against Kafka 4: no ACLs, no quotas, no KIP-848 groups, no share groups, no telemetry, no delegation
tokens. Clients cope with each of these by themselves: what is missing is not advertised, and of ACLs and
quotas only what says that there are none.
"""


def row(entry: Entry) -> str:
    versions = f"{entry.min}–{entry.max}" if entry.min != entry.max else str(entry.min)
    if entry.advertised_min != entry.min:
        versions += f" (advertised {entry.advertised_min}–{entry.max})"
    return f"| {entry.key} | {entry.name} | {versions} | {entry.notes} |\n"


def document() -> str:
    """The text of docs/protocol.md."""
    registry = Registry.discover()
    served = {entry.key for entry in registry}
    missing = ", ".join(f"{api.name} ({key})" for key, api in sorted(APIS.items()) if key not in served)
    absent = textwrap.fill(f"Not served: {missing}.", 110)
    return HEAD + "".join(map(row, registry)) + TAIL.format(absent=absent)


if __name__ == "__main__":
    sys.exit(write_or_check(DOCUMENT, document(), "tools.generate_protocol_docs"))
