"""The demonstration's report: every figure in one place, the promises, and their verdict.

`build/demo/report.json` is `Report.to_json()`; `lines()` is what a person reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dr_runbooks.demo.measure import Consumed, RecoveryPoint

AUDIT_CLASSES = ("compared", "lost", "duplicate", "corrupt", "reordered")


@dataclass
class Report:
    produced: int = 0
    acknowledged: int = 0
    produce_errors: list[str] = field(default_factory=list)
    east: int = 0
    west: int = 0
    restored: int = 0
    weather_produced: int = 0
    weather_mirrored: int = 0
    rpo: RecoveryPoint = field(default_factory=lambda: RecoveryPoint(-1, -1.0))
    rto_seconds: float = -1.0
    consumed: Consumed = field(default_factory=lambda: Consumed(-1, -1, -1))
    audit_mirror: dict[str, int] = field(default_factory=dict)
    audit_restore: dict[str, int] = field(default_factory=dict)
    backup_objects: int = 0
    backup_bytes: int = 0
    resumed_records: int = -1
    resumed_expected: int = -2
    rpo_objective: float = 0.0
    rto_objective: float = 0.0
    restarts: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    wall_seconds: float = 0.0

    def promises(self) -> dict[str, bool]:
        """What isthmus promises here, and whether it held."""
        clean = {"lost": 0, "corrupt": 0, "reordered": 0}
        return {
            "every record was acknowledged": self.acknowledged == self.produced and not self.produce_errors,
            "east holds every acknowledged record": self.east == self.acknowledged,
            "west holds every record of east": self.west >= self.east > 0,
            "weather is on the other side too": self.weather_mirrored >= self.weather_produced > 0,
            "the group missed nothing": self.consumed.missing == 0 and self.consumed.foreign == 0,
            f"RPO within {self.rpo_objective:g} s": 0 <= self.rpo.seconds <= self.rpo_objective,
            f"RTO within {self.rto_objective:g} s": 0 <= self.rto_seconds <= self.rto_objective,
            "the mirror's audit is clean": self._audited(self.audit_mirror, self.east, clean),
            "the restored topic's audit is clean": self._audited(self.audit_restore, self.restored, clean),
            "the restored topic holds every record": self.restored == self.east,
            "the group went on after the restore": self.resumed_records == self.resumed_expected,
        }

    @staticmethod
    def _audited(audit: dict[str, int], expected: int, clean: dict[str, int]) -> bool:
        return audit.get("compared") == expected and all(audit.get(name) == 0 for name in clean)

    def kept(self) -> bool:
        return all(self.promises().values())

    def to_json(self) -> dict[str, Any]:
        return {
            "records": {
                "produced": self.produced,
                "acknowledged": self.acknowledged,
                "east": self.east,
                "west": self.west,
                "restored": self.restored,
                "weather": {"produced": self.weather_produced, "mirrored": self.weather_mirrored},
            },
            "rpo": {"records": self.rpo.records, "seconds": round(self.rpo.seconds, 3)},
            "rto": {"seconds": round(self.rto_seconds, 3)},
            "consumed": self.consumed._asdict(),
            "audit": {"mirror": self.audit_mirror, "restore": self.audit_restore},
            "backup": {"objects": self.backup_objects, "bytes": self.backup_bytes},
            "resumed": {"records": self.resumed_records, "expected": self.resumed_expected},
            "produce_errors": self.produce_errors[:10],
            "restarts": self.restarts,
            "promises": self.promises(),
            "phases": {name: round(seconds, 2) for name, seconds in self.phases.items()},
            "wall_seconds": round(self.wall_seconds, 2),
        }

    def lines(self) -> Iterator[str]:
        yield f"records   produced {self.produced:,}   east {self.east:,}   west {self.west:,}"
        yield f"          restored {self.restored:,}"
        yield (
            f"lost east RPO {self.rpo.records:,} records, {self.rpo.seconds:.2f} s of data"
            f"   RTO {self.rto_seconds:.2f} s"
        )
        yield f"the group missed {self.consumed.missing:,} and saw {self.consumed.duplicates:,} twice"
        for name, audit in (("mirror", self.audit_mirror), ("restore", self.audit_restore)):
            figures = "   ".join(f"{key} {audit.get(key, -1):,}" for key in AUDIT_CLASSES)
            yield f"audit of the {name:<8} {figures}"
        yield f"backup    {self.backup_objects} objects, {self.backup_bytes:,} bytes"
        yield ""
        for promise, held in self.promises().items():
            yield f"  {'kept  ' if held else 'BROKEN'} {promise}"
