"""Running partitions to their ends: a target that falls silent ends a run, it does not hold it for ever."""

import asyncio

from connectors.partition_runs import PartitionRun, PartitionRuns
from protocol.types import TopicPartition
from tests.unit.connectors.logs import TP, chunk, numbered
from transfer.endpoint import Chunk, SourceFault
from transfer.ledger import Copied, Lineage, PartitionLedger


class OneChunk:
    """A source that gives one chunk and then waits."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()

    async def open(self, tp: TopicPartition, from_offset: int) -> None:
        self._opened.set()

    async def close(self, tp: TopicPartition) -> None: ...

    def pause(self, tp: TopicPartition) -> None: ...

    def resume(self, tp: TopicPartition) -> None: ...

    async def read(self) -> list[Chunk | SourceFault]:
        await self._opened.wait()
        self._opened.clear()
        return [chunk([numbered(10)])]

    async def aclose(self) -> None: ...


class Silent:
    """A sink whose target never answers, as a cluster that is gone."""

    async def write(self, tp: TopicPartition, part: Chunk) -> Copied:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def aclose(self) -> None: ...


class Slow(Silent):
    """A sink that takes longer than a source may be silent."""

    async def write(self, tp: TopicPartition, part: Chunk) -> Copied:
        await asyncio.sleep(2.5)
        return Copied((), part.next_offset, 10, 1000, (), first_source_offset=part.first_offset)


async def test_a_store_that_is_slow_ends_nothing() -> None:
    ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP))
    run = PartitionRun(TP, TP, 0, 10, ledger)
    async with (
        asyncio.timeout(20),
        PartitionRuns(OneChunk(), Slow(), stall_s=0.1, moved=lambda offsets: None, sink_answers=True) as runs,
    ):
        await runs.run(run)
    assert (run.problem, run.whole, ledger.gaps) == ("", True, [])


async def test_a_target_that_never_answers_ends_the_run_with_a_gap() -> None:
    ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP))
    run = PartitionRun(TP, TP, 0, 20, ledger)
    async with (
        asyncio.timeout(20),
        PartitionRuns(OneChunk(), Silent(), stall_s=0.1, moved=lambda offsets: None) as runs,
    ):
        await runs.run(run)
    assert "nothing came" in run.problem
    assert [(gap.start, gap.end) for gap in ledger.gaps] == [(0, 20)]
