"""A broker as placement sees it. Must not know how it was found."""

from typing import NamedTuple


class Candidate(NamedTuple):
    """A living broker and where it is; `rack` None = it does not say."""

    broker_id: int
    rack: str | None = None
