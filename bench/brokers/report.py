"""What the benchmark says: one line per row while it runs, and `broker.json` at the end.

A row of loads has `name`, for each side `mb_s`, `mb_cpu_s`, `p50_ms`, `p99_ms`, `resident_mb`, and
`ratio_mb_s`, `ratio_mb_cpu_s`, `must_mb_s`, `must_cpu` (ours / Kafka's). Other rows carry what they measure
and `ratio` with `must_ratio_max`, or `must_max` for a bound on ours alone. `met` says whether all of a row's
demands hold, None where one of the sides is missing. A row without figures has `not_measured`: why.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.brokers.sides import OURS, THEIRS

Row = dict[str, Any]
_HEAD = f"{'MB/s':>8} {'MB/CPU-s':>9} {'p50 ms':>8} {'p99 ms':>8} {'res. MB':>8}"


def medians(runs: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Of each figure over the repetitions; None where no run has it."""
    found: dict[str, float | None] = {}
    for name in runs[0]:
        values = [value for run in runs if (value := run[name]) is not None]
        found[name] = round(median(values), 3) if values else None
    return found


def compare(row: Row, must_mb_s: float | None, must_cpu: float | None) -> None:
    """Add ratios and demands to a row of loads."""
    row |= {"ratio_mb_s": None, "ratio_mb_cpu_s": None, "must_mb_s": must_mb_s, "must_cpu": must_cpu}
    row["met"] = None
    if OURS in row and THEIRS in row:
        ours, theirs = row[OURS], row[THEIRS]
        row["ratio_mb_s"] = round(ours["mb_s"] / theirs["mb_s"], 2)
        row["ratio_mb_cpu_s"] = round(ours["mb_cpu_s"] / theirs["mb_cpu_s"], 2)
        row["met"] = row["ratio_mb_s"] >= (must_mb_s or 0) and row["ratio_mb_cpu_s"] >= (must_cpu or 0)


def bound(name: str, figures: dict[str, Any], *, value: float | None, must_max: float) -> Row:
    """A row about our side alone."""
    met = None if value is None else value <= must_max
    return {"name": name, OURS: figures, "value": value, "must_max": must_max, "met": met}


def beside(
    name: str, sides: dict[str, dict[str, Any]], figures: tuple[str, ...], must_ratio_max: float
) -> Row:
    """A row where less is better: ours / Kafka's of the worst of `figures`."""
    row: Row = {"name": name, **sides, "ratio": None, "must_ratio_max": must_ratio_max, "met": None}
    if OURS in sides and THEIRS in sides:
        ratios = [sides[OURS][figure] / sides[THEIRS][figure] for figure in figures if sides[THEIRS][figure]]
        row["ratio"] = round(max(ratios), 2)
        row["met"] = row["ratio"] <= must_ratio_max
    return row


def given_up(name: str, why: str) -> Row:
    """A row that was to be measured and was not."""
    return {"name": name, "not_measured": why, "met": None}


def head() -> str:
    return f"{'':34} | {'isthmus':^45} | {'Apache Kafka':^45} |\n{'':34} | {_HEAD} | {_HEAD} |  ratio  (CPU)"


def line(row: Row) -> str:
    mark = {True: "", False: "  << must be better", None: ""}[row["met"]]
    if "not_measured" in row:
        return f"{row['name']:34} | << {row['not_measured']}"
    if "ratio_mb_s" not in row:
        return f"{row['name']:34} | {_figures(row)}{mark}"
    cells = [f"{row['name']:34}"]
    for side in (OURS, THEIRS):
        each = row.get(side, {})
        names = ("mb_s", 8, 0), ("mb_cpu_s", 9, 0), ("p50_ms", 8, 2), ("p99_ms", 8, 2), ("resident_mb", 8, 0)
        cells.append(" ".join(number(each.get(name), width, digits) for name, width, digits in names))
    if row["ratio_mb_s"] is not None:
        cells.append(f"{row['ratio_mb_s']:6.2f} {row['ratio_mb_cpu_s']:6.2f}")
    return " | ".join(cells) + mark


def number(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def _figures(row: Row) -> str:
    parts = [f"{side}: {figures_of(row[side])}" for side in (OURS, THEIRS) if side in row]
    if row.get("ratio") is not None:
        parts.append(f"ratio {row['ratio']:.2f}, at most {row['must_ratio_max']}")
    elif "must_max" in row:
        parts.append(f"at most {row['must_max']:g}")
    return " | ".join(parts)


def figures_of(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in figures.items())


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_plain(each)}" for name, each in value.items()) + ")"
    return "-" if value is None else f"{value:.4g}"


def write(path: Path, options: dict[str, Any], rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **options, "rows": rows}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
