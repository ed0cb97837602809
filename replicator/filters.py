"""Which topics, groups and topic settings a link takes: patterns as MirrorMaker 2 reads them.

Owns matching, pure. A pattern matches whole names; exclusion wins; an empty list matches nothing. Each
decision about a topic comes with its reason, for the status page.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Final

from replicator.cycles import is_cycle
from replicator.naming import HEARTBEATS, Naming

INTERNAL: Final = "internal topic"
NO_HEARTBEATS: Final = "heartbeats are not replicated"


def came_from(alias: str) -> str:
    """The reason for leaving out what the other cluster has sent here."""
    return f"its name says that it came from {alias}"


def check_pattern(text: str) -> None:
    """Raises ValueError for what is no regular expression, or is one that Java reads in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # sets within sets
        try:
            re.compile(text)
        except (re.error, FutureWarning) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from error


def split_patterns(text: str) -> tuple[str, ...]:
    """One text with commas, as MM2 writes lists. Raises ValueError."""
    found = tuple(filter(None, re.split(r"\s*,\s*", text.strip())))
    for pattern in found:
        check_pattern(pattern)
        plain = re.sub(r"\\.", "", pattern)
        if plain.count("{") != plain.count("}"):
            raise ValueError(
                f"a comma ends a pattern, within braces too, so {pattern!r} would be one: write it without,"
                " or as a list where a file has lists"
            )
    return found


class PatternList:
    """Several regular expressions, each on its own: flags and groups of one mean nothing to the others."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(map(re.compile, patterns))

    def matches(self, name: str) -> bool:
        """Whether one of them matches the whole name."""
        return any(pattern.fullmatch(name) for pattern in self._patterns)


class TopicFilter:
    """Says why a topic is left out, or None when it is copied."""

    def __init__(
        self,
        naming: Naming,
        topics: Sequence[str],
        exclude: Sequence[str],
        *,
        heartbeats: bool = True,
    ) -> None:
        self._naming = naming
        self._topics = PatternList(topics)
        self._exclude = PatternList(exclude)
        self._heartbeats = heartbeats
        self._not_heartbeats: set[str] = set()

    def heartbeats_by_name(self, topics: Iterable[str]) -> list[str]:
        """Those that are copied only because their names look like heartbeats of a cluster upstream."""
        return [
            topic
            for topic in topics
            if self._looks_like_heartbeats(topic)
            and not self._topics.matches(topic)
            and not self._exclude.matches(topic)
        ]

    def tell(self, topic: str, *, is_heartbeats: bool) -> None:
        """What a look into a topic has shown (`upstream`)."""
        (self._not_heartbeats.discard if is_heartbeats else self._not_heartbeats.add)(topic)

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return self._heartbeats and topic != HEARTBEATS and self._naming.original(topic) == HEARTBEATS

    def accepts(self, topic: str) -> bool:
        """Whether it is copied."""
        return self.refuses(topic) is None

    def refuses(self, topic: str) -> str | None:
        """The reason for not copying `topic`; None: it is copied.

        Heartbeats of clusters upstream are copied whatever `topics` says (MM2's rule), so that a chain of
        clusters can be seen at its end.
        """
        if self._naming.is_internal(topic):
            return INTERNAL
        if is_cycle(topic, self._naming):
            return came_from(self._naming.target)
        if topic == HEARTBEATS:
            return None if self._heartbeats else NO_HEARTBEATS
        if self._exclude.matches(topic):
            return "excluded by topics_exclude"
        if self._looks_like_heartbeats(topic) and topic not in self._not_heartbeats:
            return None
        if not self._topics.matches(topic):
            if topic in self._not_heartbeats:
                return "no pattern in topics matches, and it holds no heartbeats of a cluster upstream"
            return "no pattern in topics matches"
        return None


class NameFilter:
    """Patterns to take and patterns to leave out."""

    def __init__(self, take: Sequence[str], exclude: Sequence[str]) -> None:
        self._take = PatternList(take)
        self._exclude = PatternList(exclude)

    def accepts(self, name: str) -> bool:
        """Whether `name` is taken and not excluded."""
        return self._take.matches(name) and not self._exclude.matches(name)
