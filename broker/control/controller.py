"""The controller's edge: runs for election, follows ZooKeeper while reigning, carries out what the core says.

One task does everything, one event after another; watches and callers only set flags. Whatever goes wrong
ends the reign: the next one, here or elsewhere, starts from what ZooKeeper says. Must not decide who leads.
(Kafka: `KafkaController`, `ControllerEventManager`.)
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.control.channels import Channels
from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.controller_jobs import Jobs, Work, finish_moves, hand_over, move_leaders_home
from broker.control.controller_store import ControllerMoved, ControllerStore, Reign
from broker.control.isr_proposals import IsrProposals, Proposals, Verdicts
from broker.control.metadata_cache import NO_LEADER
from broker.control.nodes import TopicNode
from broker.control.order_delivery import OrderDelivery
from broker.control.orders import Sender
from broker.control.state_writer import StateWriter
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import SessionEvent, SessionExpired
from protocol.client import ClientSecurity
from protocol.client.security import PLAINTEXT
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_PAUSE_AFTER_FAILURE_S = 1.0
_TOLD_WAIT_S = 3.0
_WRITE_AGAIN_S = 1.0
_LOOK_AGAIN_S = 300.0

T = TypeVar("T")


class Rebalancing(NamedTuple):
    """`leader.imbalance.check.interval.seconds` and `leader.imbalance.per.broker.percentage`."""

    interval_s: float
    percentage: int


class Controller:
    """Every broker runs one; at most one in a cluster reigns."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        store: ControllerStore,
        broker_id: int,
        *,
        listener: str,
        socket_timeout_s: float,
        unclean: Callable[[str], bool] = lambda topic: False,
        security: ClientSecurity = PLAINTEXT,
        rebalancing: Callable[[], Rebalancing | None] = lambda: None,
        guarded: Callable[[], bool] = lambda: True,
        channels: Channels | None = None,
        learn: Callable[[Iterable[str]], Awaitable[None]] | None = None,
    ) -> None:
        """`learn` reads the settings of topics that this broker has no replica of, for `unclean` to know."""
        self.core: ControllerCore | None = None
        self.failure = ""
        """Why the last reign of this broker ended that was not ended on purpose."""
        self.unclean_elections = 0
        """In all reigns of this process."""
        self._zookeeper = zookeeper
        self._store = store
        self._broker_id = broker_id
        self._listener = listener
        self._unclean = unclean
        self._learn = learn
        self._learned: dict[str, bytes] = {}
        """Topics whose settings this reign has asked for, and their ids: one of the same name is another."""
        self._settings_touched: set[str] = set()
        self._guarded = guarded
        self._rebalancing = rebalancing
        self._reign: Reign | None = None
        self._flags: set[str] = set()
        self._on_election = functools.partial(self._flag, "election")
        self._on_brokers = functools.partial(self._flag, "brokers")
        self._on_topics = functools.partial(self._flag, "topics")
        self._on_deletions = functools.partial(self._flag, "deletions")
        self._on_log_dirs = functools.partial(self._flag, "log_dirs")
        self._topics_touched: set[str] = set()
        self._states_touched: set[TopicPartition] = set()
        self._topic_watches: dict[str, Callable[[], None]] = {}
        self._jobs = Jobs()
        self._isr = IsrProposals()
        self._wake = asyncio.Event()
        self._delivery = OrderDelivery(
            channels or Channels(listener, socket_timeout_s, security),
            store,
            answered=self._wake.set,
            deletion_failed=self._look_for_deletions,
        )
        self._loop: asyncio.Task[None] | None = None
        self._rebalance: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self.core is not None

    def start(self) -> None:
        self._zookeeper.on_session(self._session_event)
        self._flag("election")
        self._loop = asyncio.create_task(self._run(), name="controller")
        self._rebalance = asyncio.create_task(self._rebalance_leaders(), name="leader rebalancing")

    async def close(self) -> None:
        """End the reign, if any, so that another broker takes over at once."""
        tasks = [task for task in (self._loop, self._rebalance) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        reigned = self.active
        await self._end_reign()
        if reigned and self._zookeeper.connected:
            try:
                async with asyncio.timeout(2.0):
                    await self._store.resign()
            except (SessionExpired, TimeoutError):
                return

    async def leave(self, broker_id: int, broker_epoch: int = -1) -> list[TopicPartition]:
        """A broker, registered with this epoch, is about to stop; returns what nobody can take over from it.

        All brokers have been told by then, or had the time to hear: whoever stops before that leaves clients
        with metadata that sends them to a closed port.
        Raises ControllerMoved when this broker does not reign, KafkaError when that one is gone.
        """
        left, told = await self.ask(lambda work: hand_over(work, broker_id, broker_epoch))
        if told:
            await asyncio.wait(told, timeout=_TOLD_WAIT_S)
        return left

    async def ask(self, job: Callable[[Work], Awaitable[T]]) -> T:
        """Have a job of `controller_jobs` done. Raises KafkaError, ControllerMoved."""
        if not self.active:
            raise ControllerMoved(f"broker {self._broker_id} is not the controller")
        answer = self._jobs.add(job)
        self._wake.set()
        return await answer

    async def alter_isr(self, leader: int, proposals: Proposals) -> Verdicts:
        """A leader proposes other in-sync replicas; returns for each what is stored then, or why not.

        Raises ControllerMoved when this broker does not reign.
        """
        if not self.active:
            raise ControllerMoved(f"broker {self._broker_id} is not the controller")
        answer = self._isr.add(leader, proposals)
        self._wake.set()
        return await answer

    # -- events

    def _flag(self, name: str) -> None:
        self._flags.add(name)
        self._wake.set()

    def _look_for_deletions(self) -> None:
        self._flag("election")
        self._flag("deletions")

    def _watch_topic(self, name: str) -> Callable[[], None]:
        """The one watch of a topic's node: setting it again does not pile up."""
        watch = self._topic_watches.get(name)
        if watch is None:

            def watch() -> None:
                self._topics_touched.add(name)
                self._wake.set()

            self._topic_watches[name] = watch
        return watch

    def _touch_state(self, partition: TopicPartition) -> None:
        """It may be another one: read it, and decide again."""
        self._states_touched.add(partition)
        self._wake.set()

    def _session_event(self, event: SessionEvent) -> None:
        if event in (SessionEvent.EXPIRED, SessionEvent.RENEWED):
            self._flag("expired" if event is SessionEvent.EXPIRED else "election")

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._handle()
            except SessionExpired:
                await self._end_reign()  # the next session brings the next election
            except ControllerMoved as error:
                _log.warning("controller: %s", error)
                await self._end_reign()
                self._flag("election")
            except Exception as error:  # noqa: BLE001 - logged; the reign ends and another one begins
                self.failure = f"{type(error).__name__}: {error}"
                _log.exception("controller: reign of broker %d ends", self._broker_id)
                await self._fail()

    async def _fail(self) -> None:
        """Something unforeseen: let another broker try, and then this one again."""
        await self._end_reign()
        try:
            await self._store.resign()
        except SessionExpired:
            return
        await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
        self._flag("election")

    async def _handle(self) -> None:
        flags, self._flags = self._flags, set()
        if "expired" in flags:
            await self._end_reign()
        begun = await self._run_for_election() if "election" in flags else []
        if self.core is None or self._reign is None:
            self._refuse_callers()
            return
        core, reign = self.core, self._reign
        if "brokers" in flags:
            await self._read_brokers(core, reign)
        if "topics" in flags or self._topics_touched:
            await self._read_topics(core, reign, names="topics" in flags)
            flags.add("deletions")  # one may have been asked for a topic that was not known yet
        if "deletions" in flags:
            begun += await self._read_deletions(core, reign)
        if self._states_touched:
            await self._read_touched_states(core, reign)
        await self._look_at_settings(core, reign)
        if "log_dirs" in flags:
            await self._read_log_dir_events(core, reign)
        for answer in self._delivery.take_answers():
            await self._write(core, reign, core.answered(*answer))
        await self._isr.decide(core, self._writer(core, reign))
        await self._do_jobs(core, reign)
        self._delivery.send(core)
        if begun:
            self._delivery.finish_deletions(core, reign, begun)

    def _count_unclean(self, partition: TopicPartition, leader: int) -> None:
        self.unclean_elections += 1
        _log.warning(
            "unclean election: broker %d leads %s and may lack acknowledged records", leader, partition
        )

    # -- election

    async def _run_for_election(self) -> list[str]:
        """Returns the topics whose deletion begins, or goes on, with this reign."""
        reign = await self._store.elect(self._on_election)
        if reign is not None and reign == self._reign:
            return []
        await self._end_reign()
        if reign is None:
            return []
        _log.info("broker %d is the controller, epoch %d", self._broker_id, reign.epoch)
        sender = Sender(self._broker_id, reign.epoch, self._listener)
        core = ControllerCore(sender, self._unclean, self._guarded, self._count_unclean)
        brokers = await self._store.brokers(self._on_brokers)
        names = await self._store.topic_names(self._on_topics)
        deletions = await self._store.deletions(self._on_deletions)
        topics = await self._store.topics(names, self._watch_topic)
        read = await self._store.states(_partitions(topics.found))
        core.cannot_read(topics.unreadable)
        await self._not_readable(core, read.unreadable)
        writes = core.start(brokers, topics.found, read.states, read.zxids, deletions)
        self.core, self._reign = core, reign
        self._delivery.begin(core)
        await self._delivery.connect(core.brokers)
        await self._write(core, reign, writes)
        self._ask_settings(core.leaderless(core.topics))
        self._flag("deletions")
        self._flag("log_dirs")
        return sorted(core.deleting)

    async def _end_reign(self) -> None:
        if self.core is not None:
            _log.info("broker %d is not the controller any more", self._broker_id)
        self.core = self._reign = None
        await self._delivery.end()
        self._topics_touched.clear()
        self._states_touched.clear()
        self._settings_touched.clear()
        self._learned.clear()
        self._topic_watches.clear()
        self._refuse_callers()

    # -- reigning

    async def _rebalance_leaders(self) -> None:
        """`auto.leader.rebalance.enable`: leadership returns to preferred leaders, a while after they do."""
        while True:
            wanted = self._rebalancing()
            await asyncio.sleep(_LOOK_AGAIN_S if wanted is None else wanted.interval_s)
            wanted = self._rebalancing()
            if wanted is None or not self.active:
                continue
            with contextlib.suppress(ControllerMoved):
                await self.ask(functools.partial(move_leaders_home, percentage=wanted.percentage))

    async def _read_brokers(self, core: ControllerCore, reign: Reign) -> None:
        writes = core.brokers_are(await self._store.brokers(self._on_brokers))
        _log.info("controller: living brokers are %s", sorted(core.brokers))
        await self._delivery.connect(core.brokers)
        await self._write(core, reign, writes)

    async def _read_topics(self, core: ControllerCore, reign: Reign, *, names: bool) -> None:
        touched, self._topics_touched = self._topics_touched, set()
        gone: set[str] = set()
        if names:
            existing = await self._store.topic_names(self._on_topics)
            gone = set(core.topics) - existing
            touched |= existing - set(core.topics)
        found, unreadable = await self._store.topics(touched, self._watch_topic)
        core.cannot_read(unreadable)
        gone |= touched - set(found) - unreadable
        for name in gone:
            self._topic_watches.pop(name, None)
        vanished = sorted(gone & set(core.topics) - core.deleting)
        if vanished:
            _log.error(
                "controller: topics %s are gone from ZooKeeper though nobody has asked for that: "
                "replicas stop, their files stay",
                ", ".join(vanished),
            )
        changed = {name: node for name, node in found.items() if core.topics.get(name) != node}
        core.unread_topics.difference_update(found)
        new = {name: node for name, node in changed.items() if name not in core.topics}
        read = await self._store.states_of_new(new)
        await self._not_readable(core, read.unreadable)
        await self._write(core, reign, core.topics_are(changed, gone, read.states))

    async def _read_touched_states(self, core: ControllerCore, reign: Reign) -> None:
        touched, self._states_touched = self._states_touched, set()
        partitions = sorted(each for each in touched if each.topic in core.topics)
        never_read = {each for each in partitions if each in core.unread and each not in core.states}
        core.unread.difference_update(partitions)
        await self._writer(core, reign).read(partitions)
        core.cannot_read(partitions=never_read - core.states.keys())  # removed: not new because of that
        await self._write(
            core, reign, core.reconsider(each for each in partitions if each not in core.unread)
        )

    async def _not_readable(self, core: ControllerCore, partitions: set[TopicPartition]) -> None:
        """They are left alone, and looked at again when somebody writes them."""
        new = partitions - core.unread
        core.cannot_read(partitions=partitions)
        for partition in sorted(new):
            if await self._store.watch_state(partition, functools.partial(self._touch_state, partition)):
                self._touch_state(partition)

    async def _read_deletions(self, core: ControllerCore, reign: Reign) -> list[str]:
        asked = await self._store.deletions(self._on_deletions)
        for name in asked:
            if name not in core.topics:
                await self._store.drop_deletion(reign, name)
        return core.delete(asked)

    async def _read_log_dir_events(self, core: ControllerCore, reign: Reign) -> None:
        events = await self._store.log_dir_events(self._on_log_dirs)
        brokers = set(events.values()) & set(core.brokers)
        if brokers:
            _log.warning("controller: log directories failed on brokers %s, asking them", sorted(brokers))
            core.log_dirs_failed(brokers)
        await self._store.drop(reign, events)

    def _writer(self, core: ControllerCore, reign: Reign) -> StateWriter:
        return StateWriter(core, self._store, reign, functools.partial(self._not_readable, core))

    def settings_changed(self, topic: str | None = None) -> None:
        """Of a topic, or (None) of all: whether a replica that was not in sync may lead may be another matter
        now, as in Kafka (TopicUncleanLeaderElectionEnable)."""
        if self.core is not None:
            self._settings_touched |= self.core.topics.keys() if topic is None else {topic}
            self._wake.set()

    def _ask_settings(self, leaderless: Iterable[TopicPartition]) -> None:
        """Before the first of its partitions had no leader, nobody wanted to know them."""
        topics = self.core.topics if self.core is not None else {}
        named = {each.topic: topics[each.topic].topic_id for each in leaderless if each.topic in topics}
        new = {name: topic_id for name, topic_id in named.items() if self._learned.get(name) != topic_id}
        if new:
            self._learned |= new
            self._settings_touched |= new.keys()
            self._wake.set()

    async def _look_at_settings(self, core: ControllerCore, reign: Reign) -> None:
        touched, self._settings_touched = self._settings_touched, set()
        leaderless = core.leaderless(touched)
        if not leaderless:
            return
        if self._learn is not None:
            await self._learn({each.topic for each in leaderless})
        await self._write(core, reign, core.reconsider(leaderless))

    async def _write(self, core: ControllerCore, reign: Reign, writes: Sequence[StateWrite]) -> None:
        self._ask_settings(write.partition for write in writes if write.state.leader == NO_LEADER)
        for partition in await self._writer(core, reign).write(writes):
            asyncio.get_running_loop().call_later(_WRITE_AGAIN_S, self._touch_state, partition)

    async def _do_jobs(self, core: ControllerCore, reign: Reign) -> None:
        """What was asked for, and what follows from it: all of it is stored before anything is sent."""
        work = Work(
            core,
            self._store,
            reign,
            functools.partial(self._write, core, reign),
            self._topics_touched.add,
            functools.partial(self._delivery.send, core),
        )
        await self._jobs.do_all(work)
        await finish_moves(work)
        if self._topics_touched:
            await self._read_topics(core, reign, names=False)

    def _refuse_callers(self) -> None:
        reason = f"broker {self._broker_id} is not the controller"
        self._isr.refuse(reason)
        self._jobs.refuse(reason)


def _partitions(topics: Mapping[str, TopicNode]) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name, node in topics.items() for index in node.assignment]
