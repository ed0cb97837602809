"""The person who changes roles where the first source is Apache Kafka, which can be no mirror.

Nobody is fenced there: writers rest while roles change by plan. The way back is what
replicator/mirrors/README.md tells: `reverse` saves what only the old side has and says that it can do no
more; its topics are deleted, a link that translates offsets copies all of it back, and where everything has
arrived the mirrors are deleted and made anew. Owns that, and the look at what was aborted by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from replicator.drain import wait_drained
from replicator.settings import progress_topic
from tests.chaos.links.load import read_all
from tests.chaos.links.world import ROOT, Worker
from tests.chaos.mirrors.operator import Operator
from tests.support.waiting import wait_until

_QUIET_S = 180.0
_COPIED_S = 240.0
_SAVED = "is saved"


class KafkaOperator(Operator):
    def _planned(self) -> None:
        world, link = self._world, self._world.link
        source, target = world.active, world.other
        with self._nobody_writes():
            self._until_done(lambda: self._promote(link, target), f"promote {link}")
            self._active(target)
        time.sleep(self._chance.uniform(2, 10))
        self._home(link, source)

    def _gives_up(self, link: str) -> None:
        """Nothing is fenced."""

    def _afterwards(self, link: str, source: str) -> None:
        self._until_done(self._same_partitions, "partitions of both sides")
        self._until_done(lambda: self._saves(link), f"what only {source} has is saved")
        self._home(link, source)

    def _saves(self, link: str) -> bool:
        told = self._run("reverse", link, *self._save())
        self._with_latecomers(told, link)
        return told.code == 1 and _SAVED in told.text

    # -- the way back

    def _home(self, link: str, old: str) -> None:
        """From the side that is written to, which is left to be the mirror again."""
        world, new = self._world, self._world.active
        names = list(world.written)
        world.ends_life(old)
        mine = [*names, progress_topic(new, old)]
        self._until_done(lambda: self._delete(old, mine), f"topics of {old} are deleted")
        file = self._write_way_back(f"{new}->{old}")
        worker = Worker(world.directory, f"{new}->{old}-1", ("isthmus", "replicate", str(file)))
        worker.launch()
        try:
            self._until_done(lambda: self._is_copied(new, old), f"{new} is copied to {old}")
            with self._nobody_writes():
                self._until_done(lambda: self._is_copied(new, old), f"the rest of {new} is copied to {old}")
                self._until_done(lambda: self._groups_are_there(file, f"{new}->{old}"), "groups are copied")
                self._ended(worker)
                self._set_aside(new)
                world.begins_life(old)
                world.ends_life(new)
                self._active(old)
        finally:
            worker.end(signal.SIGKILL)
        self._until_done(lambda: self._delete(new, names), f"topics of {new} are deleted")
        self._until_done(lambda: len(world.mirrors(new) or ()) == len(names), f"mirrors at {new} again")
        world.begins_life(new)
        self.acts["way back"] += 1

    @contextlib.contextmanager
    def _nobody_writes(self) -> Iterator[None]:
        self._world.resting = True
        try:
            wait_until(self._world.is_quiet, "nobody writes", bound_s=_QUIET_S)
            yield
        finally:
            self._world.resting = False

    def _delete(self, side: str, names: list[str]) -> bool:
        try:
            self._world.delete_topics(side, names)
            return not set(names) & self._world.partitions(side).keys()
        except KafkaException as error:
            self._world.say(f"topics of {side} are not deleted: {error}")
            return False

    def _write_way_back(self, link: str) -> Path:
        text = json.loads(self._world.file.read_text())
        translates = {name: value for name, value in text["links"][link].items() if name != "offsets"}
        text |= {"links": {link: translates}, "data_directory": str(self._world.directory / "way-back")}
        file = self._world.directory / "way-back.yaml"
        file.write_text(json.dumps(text))
        return file

    def _is_copied(self, new: str, old: str) -> bool:
        async def drained() -> bool:
            async with (
                ClusterClient(self._world.bootstrap(new)) as here,
                ClusterClient(self._world.bootstrap(old)) as there,
            ):
                names = list(self._world.written)
                return (await wait_drained(here, there, f"{new}->{old}", names, _COPIED_S)).done

        try:
            return asyncio.run(drained())
        except (ProtocolError, TimeoutError) as error:
            self._world.say(f"{new} is not copied to {old}: {error}")
            return False

    def _groups_are_there(self, file: Path, link: str) -> bool:
        """As `isthmus links status` has it, twice: it may be about the moment before."""
        for _ in range(2):
            time.sleep(3)
            words = ["links", "status", link, "--json", "--topology", str(file)]
            command = [sys.executable, "-m", "isthmus", *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
            if done.returncode not in (0, 3) or self._not_in_sync(json.loads(done.stdout)):
                self._world.say(f"groups are not copied: {done.stdout[-300:]}{done.stderr[-300:]}")
                return False
        return True

    def _not_in_sync(self, status: dict[str, object]) -> bool:
        groups = status.get("groups")
        assert isinstance(groups, dict), status
        return bool(groups.get("reasons"))

    def _ended(self, worker: Worker) -> None:
        code = worker.end(signal.SIGTERM, 120)
        self._world.say(f"the link back ended with {code}")
        if code not in (0, 3):
            self.wrong.append(f"the link back ended with {code}")

    def _set_aside(self, side: str) -> None:
        """What a failover has aborted is not copied back."""
        bootstrap, history = self._world.bootstrap(side), self._history
        for topic, count in self._world.written.items():
            for partition in range(count):
                stored, committed = (
                    {row[0] for _, row in read_all(bootstrap, topic, partition, isolation=level)}
                    for level in ("read_uncommitted", "read_committed")
                )
                history.set_aside |= stored - committed
