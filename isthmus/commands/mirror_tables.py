"""What `isthmus mirrors` shows: how mirrors stand, what a switch would cost, what it did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.commands.link_gaps import difference_json
from isthmus.output import note, print_json, print_table, say
from isthmus.times import shown

if TYPE_CHECKING:
    from replicator.acknowledgements import Difference
    from replicator.mirrors.assessing import Risk
    from replicator.mirrors.left_behind import LeftBehind
    from replicator.mirrors.reversing import Parting
    from replicator.settings import LinkSettings

RISK_COLUMNS = (
    "topic", "partition", "mirror_end", "source_end", "records", "seconds", "open_transactions", "counted",
)  # fmt: skip
CUT_COLUMNS = ("topic", "partition", "common_end", "old_end", "new_end", "records", "seconds")


class Standing(NamedTuple):
    """How mirrors stand, what they lack that nobody has acknowledged (None: that is not known), and which of
    their sources refuse writers."""

    risks: list[Risk]
    left_behind: LeftBehind
    differences: list[Difference] | None
    fenced: list[str]
    groups: dict[str, str]
    """Those that would not go on where they are at the source, with why."""
    made_again: dict[str, list[dict[str, Any]]]
    """By topic, the mirrors that were deleted at the target before its mirror of now."""


def show_risks(link: str, found: Standing, *, as_json: bool) -> None:
    rows = [risk.to_json() for risk in found.risks]
    if as_json:
        topics: dict[str, dict[str, Any]] = {}
        for row in rows:
            each = topics.setdefault(row["topic"], {"records": 0, "seconds": 0.0, "exact": True})
            each["records"] = _sum(each["records"], row["records"])
            each["seconds"] = _most(each["seconds"], row["seconds"])
            each["exact"] = each["exact"] and row["counted"] == "now"
        lacks = None
        if found.differences is not None:
            lacks = [difference_json(lack) for lack in found.differences]
        print_json(
            {
                "link": link,
                "at_risk": topics,
                "partitions": rows,
                "differences": lacks,
                "not_mirrored": found.left_behind.texts,
                "fenced": found.fenced,
                "groups": found.groups,
                "made_again": found.made_again,
            }
        )
        return
    print_table(RISK_COLUMNS, [[row[column] for column in RISK_COLUMNS] for row in rows])
    for name, why in found.left_behind.texts.items():
        say(f"not mirrored: {name}: {why}")
    for lack in found.differences or ():
        say(f"not acknowledged: {lack}")
    for name, former in found.made_again.items():
        for one in former:
            say(f"made again: {name}, {shown(one['at_ms'])}: {one['why']}")
    for group, reason in found.groups.items():
        say(f"group {group}: {reason}")
    if found.fenced:
        say(
            f"the source refuses writers: {', '.join(found.fenced)}. Where no promotion is under way, one was"
            f" broken off: isthmus mirrors promote '{link}' goes on with it, isthmus mirrors unfence '{link}'"
            " gives it up"
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _most(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def plan(what: str, found: Standing) -> str:
    lines = [f"{what}:"]
    for name in sorted({risk.topic for risk in found.risks}):
        of = [risk for risk in found.risks if risk.topic == name]
        records = None if any(risk.records is None for risk in of) else sum(risk.records or 0 for risk in of)
        seconds = (
            None if any(risk.seconds is None for risk in of) else max(risk.seconds or 0.0 for risk in of)
        )
        least = "" if all(risk.is_exact for risk in of) else "at least "
        at_risk = "not known" if records is None else f"{least}{records} records"
        time = "" if seconds is None else f", {seconds:g} s"
        opened = sum(risk.open_transactions for risk in of)
        aborted = f"; {opened} open transactions" if opened else ""
        lacks = sum(each.tp.topic == name for each in found.differences or ())
        missing = f"; {lacks} gaps that nobody has acknowledged" if lacks else ""
        lines.append(f"  {name}: {len(of)} partitions; not at the mirror: {at_risk}{time}{aborted}{missing}")
    lines += [f"  {name} stays behind: {why}" for name, why in found.left_behind.texts.items()]
    lines += [f"  group {group}: {reason}" for group, reason in found.groups.items()]
    return "\n".join(lines)


def show_cuts(link: str, found: list[Parting], *, as_json: bool) -> None:
    rows = [parting.to_json() for parting in found]
    if as_json:
        print_json({"link": link, "partitions": rows, "records_cut": sum(row["records"] for row in rows)})
        return
    print_table(CUT_COLUMNS, [[row[column] for column in CUT_COLUMNS] for row in rows])


def cut_plan(settings: LinkSettings, found: list[Parting], folder: Path) -> str:
    lines = [f"{settings.source.alias} becomes a mirror of {settings.target.alias}:"]
    for name in sorted({each.topic for each in found}):
        cut = sum(each.records for each in found if each.topic == name)
        lines.append(
            f"  {name}: {cut} records that only {settings.source.alias} has are saved to {folder}, and cut"
        )
    return "\n".join(lines)


def show_done(link: str, what: str, found: dict[str, Any], before: Standing, *, as_json: bool) -> None:
    left_behind = before.left_behind.texts
    if as_json:
        print_json({"link": link, **found, "not_mirrored": left_behind})
        return
    least = "" if found["lost_is_known"] else "at least "
    say(f"{what}: {', '.join(found['topics'])}")
    say(
        f"lost: {least}{found['records_lost']} records; transactions aborted: {found['aborted_transactions']}"
    )
    for name, why in left_behind.items():
        say(f"{name} stayed behind: {why}")
    if least:
        say(
            "what the old side took in after it was last heard is not counted; once it is back,"
            f" isthmus mirrors reverse '{link}' --dry-run counts it"
        )
    for group, reason in sorted(found["groups"].items()):
        if reason:
            say(f"group {group}: {reason}")


def say_once() -> Callable[[str], None]:
    """Says a thing when it is new: some are looked at ten times a second."""
    said: list[str] = []

    def tell(text: str) -> None:
        if said[-1:] != [text]:
            said.append(text)
            note(text)

    return tell
