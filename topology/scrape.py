"""Reading single metrics of a process that runs here, for `isthmus status`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from topology.runtime import HOST

_ANSWER_S = 3.0


def samples(port: int, name: str) -> Sequence[Sample]:
    """Of the gauge or counter with this name, as it stands on the page; blocks. Raises OSError, ValueError.

    Only its own lines are parsed: a page has many for each partition.
    """
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=_ANSWER_S) as answer:
        lines = answer.read().decode().splitlines()
    own = "".join(f"{line}\n" for line in lines if line.startswith((f"{name} ", f"{name}{{")))
    return [sample for family in text_string_to_metric_families(own) for sample in family.samples]
