"""A Kafka Streams job on our broker: a stateful count that is killed and started again while records arrive.

Counts live in a changelog topic (compacted), words pass through a repartition topic. With exactly_once_v2
every count must appear once and in order; with at_least_once none may be missing.
"""

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.interop.java import jars
from tests.interop.java.jvm import Jvm
from tests.interop.java.topic_reading import create, produce, read, setting
from tests.interop.java.waiting import until
from tests.interop.suite import Options, Result, main

_TESTS = {
    "short": ("exactly_once_v2", 0),
    "at_least_once": ("at_least_once", 3),
    "exactly_once_v2": ("exactly_once_v2", 3),
}
"""Processing guarantee, and how often the job is killed."""
_CHUNKS, _CHUNK = 10, 300
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def count(bootstrap: str, guarantee: str, kills: int, folder: Path, classpath: list[str]) -> str:
    """The job dies in the middle of each round; the next one goes on from what the broker kept."""
    create(bootstrap, "words", 2)
    create(bootstrap, "counts", 2)
    chance = random.Random(7)
    wanted: Counter[str] = Counter()
    command = ("Count", bootstrap, "counting", guarantee, str(folder / f"{guarantee}-{kills}"))
    job = Jvm(classpath, *command, folder=folder)
    try:
        for _ in range(kills or 1):
            seen = wanted.total()
            for chunk in range(_CHUNKS):
                words = [chance.choice("abcdefghij") for _ in range(_CHUNK)]
                wanted.update(words)
                produce(bootstrap, "words", [(str(chance.random()), word) for word in words])
                if chunk == 0:
                    until("it counts", lambda seen=seen: _progress(bootstrap) > seen)
                if kills and chunk == _CHUNKS // 2:  # at once: what it has just read is not committed
                    job.kill()
                    job = Jvm(classpath, *command, folder=folder)
        exact = guarantee == "exactly_once_v2"
        until("the last counts", lambda: _counted(bootstrap, wanted, exact=exact))
    except AssertionError as wrong:
        raise AssertionError(f"{wrong}; the job said: …{job.output[-3000:]}") from None
    finally:
        job.kill()
    changelog = "counting-seen-changelog"
    assert setting(bootstrap, changelog, "cleanup.policy") == "compact"
    found = read(bootstrap, "counts")
    if guarantee == "exactly_once_v2":
        by_word: dict[str, list[int]] = defaultdict(list)
        for word, text in found:
            by_word[word].append(int(text))
        for word, counts in by_word.items():
            assert counts == list(range(1, wanted[word] + 1)), f"{word}: {len(counts)} of {wanted[word]}"
    return f"{wanted.total()} words, {len(found)} counts, killed {kills} times"


def _counted(bootstrap: str, wanted: Counter[str], *, exact: bool) -> bool:
    last = _last(bootstrap)
    return last == wanted if exact else all(last.get(word, 0) >= wanted[word] for word in wanted)


def _last(bootstrap: str) -> dict[str, int]:
    return {word: int(text) for word, text in read(bootstrap, "counts")}


def _progress(bootstrap: str) -> int:
    return sum(_last(bootstrap).values())


def tests(options: Options) -> Iterator[Result]:
    chosen = options.chosen(_TESTS)
    if not chosen:
        return
    folders = [f"{jars.streams_and_file_connectors()}/*", f"{jars.tools()}/*"]
    source = Path(__file__).with_name("Count.java")
    classes = jars.compiled(source, options.scratch / "classes", ":".join(folders))
    for name in _TESTS:
        if name not in chosen:
            continue
        with options.broker(SETTINGS) as bootstrap:
            started = time.monotonic()
            try:
                classpath = [str(classes), *folders]
                note, status = count(bootstrap, *_TESTS[name], options.scratch, classpath), "passed"
            except AssertionError as wrong:
                print(str(wrong), file=sys.stderr, flush=True)
                note, status = str(wrong).strip().replace("\n", " ")[:300], "failed"
            yield Result(name, status, time.monotonic() - started, note)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, "4.3.1"))
