"""What `bench.link` says: one line per row while it runs, and `link.json` at the end.

Rows are those of `bench.brokers.report`, with two peers: `mm2` (MirrorMaker 2 as it comes) and `mm2_tuned`.
Ratios compare with the better of the two, for each figure by itself.
"""

from __future__ import annotations

from typing import Any

from bench.brokers.report import Row, figures_of, number
from bench.brokers.sides import OURS
from bench.links.sides import CONTENDERS, MIRROR, MM2, TUNED

ALONE = "no link"
_COLUMNS = (("mb_s", 7, 0), ("mb_cpu_s", 8, 1), ("resident_mb", 6, 0))
_HEAD = f"{'MB/s':>7} {'MB/CPU-s':>8} {'MB':>6}"


def loads(
    name: str, sides: dict[str, dict[str, Any]], must_mb_s: float | None, must_cpu: float | None
) -> Row:
    """A row where more is better: throughput, and throughput per CPU-second."""
    row: Row = {"name": name, **sides, "must_mb_s": must_mb_s, "must_cpu": must_cpu, "met": None}
    row["ratio_mb_s"] = _ratio(sides, "mb_s", max)
    row["ratio_mb_cpu_s"] = _ratio(sides, "mb_cpu_s", max)
    if row["ratio_mb_s"] is not None and row["ratio_mb_cpu_s"] is not None:
        row["met"] = row["ratio_mb_s"] >= (must_mb_s or 0) and row["ratio_mb_cpu_s"] >= (must_cpu or 0)
    return row


def less(name: str, sides: dict[str, dict[str, Any]], figures: tuple[str, ...], must_ratio_max: float) -> Row:
    """A row where less is better: ours beside the better one, by the worst of `figures`."""
    row: Row = {"name": name, **sides, "ratio": None, "must_ratio_max": must_ratio_max, "met": None}
    ratios = [found for figure in figures if (found := _ratio(sides, figure, min)) is not None]
    if ratios:
        row["ratio"] = max(ratios)
        row["met"] = row["ratio"] <= must_ratio_max
    return row


def no_less(
    name: str, sides: dict[str, dict[str, Any]], one: str, peer: str, figure: str, must_ratio_min: float
) -> Row:
    """A row where more is better: one of ours beside another of ours, by one figure."""
    row: Row = {"name": name, **sides, "ratio": None, "must_ratio_min": must_ratio_min, "met": None}
    mine, theirs = sides.get(one, {}).get(figure), sides.get(peer, {}).get(figure)
    if mine and theirs:
        row["ratio"] = round(mine / theirs, 3)
        row["met"] = row["ratio"] >= must_ratio_min
    return row


def at_most(name: str, sides: dict[str, dict[str, Any]], value: float | None, must_max: float) -> Row:
    """A bound on ours alone; the others' figures stand beside it."""
    met = None if value is None else value <= must_max
    return {"name": name, **sides, "value": value, "must_max": must_max, "met": met}


def alone(name: str, figures: dict[str, Any]) -> Row:
    """Figures of what nobody copies, to hold the others against."""
    return {"name": name, ALONE: figures, "met": None}


def _ratio(sides: dict[str, dict[str, Any]], figure: str, better: Any) -> float | None:
    ours = sides.get(OURS, {}).get(figure)
    theirs = [value for peer in (MM2, TUNED) if (value := sides.get(peer, {}).get(figure)) is not None]
    if ours is None or not theirs or not better(theirs):
        return None
    return round(float(ours / better(theirs)), 3)


def head() -> str:
    titles = ("isthmus", "MirrorMaker 2", "MM2 tuned")
    return (
        f"{'':34} |" + "|".join(f" {title:^{len(_HEAD)}} " for title in titles) + "|\n"
        f"{'':34} |" + "|".join(f" {_HEAD} " for _ in titles) + "|  ratio  (CPU)"
    )


def line(row: Row) -> str:
    mark = {True: "", False: "  << must be better", None: ""}[row["met"]]
    given_up = "; ".join(f"{side}: {why}" for side, why in row.get("given_up", {}).items())
    mark += f"  << {given_up}" if given_up else ""
    if "not_measured" in row:
        return f"{row['name']:34} | << {row['not_measured']}"
    if "ratio_mb_s" not in row:
        return f"{row['name']:34} | {_plain(row)}{mark}"
    cells = [
        " ".join(number(row.get(side, {}).get(name), width, digits) for name, width, digits in _COLUMNS)
        for side in CONTENDERS
    ]
    text = f"{row['name']:34} | " + " | ".join(cells) + " |"
    if row["ratio_mb_s"] is not None:
        text += f" {row['ratio_mb_s']:6.2f} {row['ratio_mb_cpu_s']:6.2f}"
        text += f"  (at least {row['must_mb_s'] or '-'}, {row['must_cpu'] or '-'})"
    return text + mark


def _plain(row: Row) -> str:
    parts = [f"{side}: {figures_of(row[side])}" for side in (MIRROR, *CONTENDERS, ALONE) if side in row]
    if row.get("ratio") is not None and "must_ratio_min" in row:
        parts.append(f"ratio {row['ratio']:.2f}, at least {row['must_ratio_min']:g}")
    elif row.get("ratio") is not None:
        parts.append(f"ratio {row['ratio']:.2f}, at most {row['must_ratio_max']:g}")
    elif "must_max" in row:
        parts.append(f"at most {row['must_max']:g}")
    return " | ".join(parts)
