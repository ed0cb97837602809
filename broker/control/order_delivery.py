"""The controller's orders on their way to brokers, what they answer, and deletions that wait for that.

Owns what is under way during one reign and ends with it. What an answer means is the core's to say.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.control.channels import Channels
from broker.control.controller_core import ControllerCore
from broker.control.controller_store import ControllerMoved, ControllerStore, Reign
from broker.control.orders import LiveBroker, Order, codes_by_partition
from broker.control.zookeeper_types import SessionExpired
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_STOP_WAIT_S = 3.0


class Answer(NamedTuple):
    """What a broker, of this epoch, answered to LeaderAndIsr."""

    broker_id: int
    epoch: int
    codes: Mapping[TopicPartition, int]


class OrderDelivery:
    def __init__(
        self,
        channels: Channels,
        store: ControllerStore,
        answered: Callable[[], None],
        deletion_failed: Callable[[], None],
    ) -> None:
        """`answered`: there is something to take. `deletion_failed`: the connection was lost meanwhile."""
        self._channels = channels
        self._store = store
        self._heard = answered
        self._deletion_failed = deletion_failed
        self._core: ControllerCore | None = None
        self._answers: list[Answer] = []
        self._stops: list[asyncio.Future[Any]] = []
        self._deletions: set[asyncio.Task[None]] = set()

    async def connect(self, brokers: Mapping[int, LiveBroker]) -> None:
        """These live: channels to new ones are opened, those to others closed."""
        await self._channels.connect(brokers)

    def begin(self, core: ControllerCore) -> None:
        """A reign begins, of which this is the state."""
        self._core = core

    async def end(self) -> None:
        """The reign is over: nothing that is under way counts any more."""
        self._core = None
        for task in self._deletions:
            task.cancel()
        await asyncio.gather(*self._deletions, return_exceptions=True)
        self._answers.clear()
        await self._channels.close()

    def take_answers(self) -> list[Answer]:
        """Answers to LeaderAndIsr that say of replicas that they do not work, or do again."""
        answers, self._answers = self._answers, []
        return answers

    def send(self, core: ControllerCore) -> list[tuple[int, asyncio.Future[Any]]]:
        """Everything that the core has to say; the answers, by broker."""
        answers = []
        self._stops = [answer for answer in self._stops if not answer.done()]
        for order in core.take_orders():
            answer = self._channels.send(order)
            answers.append((order.broker_id, answer))
            if isinstance(order.request, StopReplicaRequest):
                self._stops.append(answer)
            if isinstance(order.request, LeaderAndIsrRequest):
                answer.add_done_callback(functools.partial(self._answered, core, order))
            answer.add_done_callback(functools.partial(_look_at, order))
        return answers

    def _answered(self, core: ControllerCore, order: Order, future: asyncio.Future[Any]) -> None:
        """Whether a broker can serve its replicas is in what it answers to LeaderAndIsr."""
        if future.cancelled() or self._core is not core:
            return
        codes = codes_by_partition(order.request, future.result())
        core.heard(order.broker_id, codes)
        if any(codes.values()) or (codes and core.offline.on(order.broker_id)):
            self._answers.append(Answer(order.broker_id, order.request.broker_epoch, codes))
            self._heard()

    def finish_deletions(self, core: ControllerCore, reign: Reign, names: Sequence[str]) -> None:
        """The replicas of these topics were told to stop; their nodes go when they have."""
        stops, self._stops = self._stops, []
        task = asyncio.create_task(self._remove(core, reign, names, stops), name="topic deletion")
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _remove(
        self,
        core: ControllerCore,
        reign: Reign,
        names: Sequence[str],
        stops: Sequence[asyncio.Future[Any]],
    ) -> None:
        """Once living replicas have let go, or had the time to, the topics' nodes go; their watch tells.

        A replica that was away keeps files of a topic id that no longer exists; its broker sets them aside.
        """
        if stops:
            await asyncio.wait(stops, timeout=_STOP_WAIT_S)
        try:
            for name in names:
                await self._store.remove_topic(reign, name)
                _log.info("controller: topic %s is deleted", name)
        except (SessionExpired, ControllerMoved):
            if self._core is core:  # the connection was lost, not the reign
                core.deleting.difference_update(names)  # what is still asked for begins again
            self._deletion_failed()


def _look_at(order: Order, answer: "asyncio.Future[Any]") -> None:
    """Log what a broker refused; it is not tried again, since the next change tells it anew."""
    if answer.cancelled():
        return
    response = answer.result()
    codes = {response.error_code}
    codes |= {item.error_code for item in getattr(response, "partition_errors", ())}
    codes |= {item.error_code for topic in getattr(response, "topics", ()) for item in topic.partition_errors}
    refused = sorted(ErrorCode(code).name for code in codes - {0})
    if refused:
        kind = type(order.request).__name__
        _log.warning("controller: broker %d answered %s to %s", order.broker_id, ", ".join(refused), kind)
