"""`isthmus log …`: look into a broker's log directory without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.output import DIFFERENCES, USAGE, fail, print_json, print_table, say

if TYPE_CHECKING:
    from protocol.records import Record

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Look into a broker's log directory.")
Json = Annotated[bool, typer.Option("--json", help="for machines")]


@app.callback()
def log() -> None:
    """Look into a broker's log directory without a broker."""  # keeps `dump` a command of its own


@app.command()
def dump(
    segment: Annotated[Path, typer.Argument(help="a .log file", show_default=False)],
    records: Annotated[bool, typer.Option("--records", help="also every record")] = False,
    as_json: Json = False,
) -> None:
    """Show the batches of a segment file and check their checksums; ends with 3 when one does not hold.

    Example: isthmus log dump build/broker/log/orders-0/00000000000000000000.log --records
    """
    from protocol.errors import DecodeError
    from protocol.records import Codec, check_crc, iter_headers, read_records

    try:
        data = segment.read_bytes()
    except OSError as error:
        fail(f"{segment} cannot be read: {error.strerror}", USAGE)
    rows: list[dict[str, Any]] = []
    end = 0
    for position, header in iter_headers(data):
        row = {
            "position": position,
            "offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "bytes": header.size,
            "codec": Codec(header.codec).name.lower(),
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "sequence": header.base_sequence,
            "max_timestamp": header.max_timestamp,
            "crc": "ok" if check_crc(data, position, header) else "WRONG",
        }
        if records and row["crc"] == "ok":
            try:
                row["content"] = [
                    {
                        "offset": r.offset,
                        "timestamp": r.timestamp,
                        "key": _text(r.key),
                        "value": _text(r.value),
                    }
                    for r in read_records(data, position, header)
                ]
            except DecodeError as error:
                row["crc"] = f"WRONG: {error}"
        rows.append(row)
        end = position + header.size
    if as_json:
        print_json({"file": str(segment), "batches": rows, "bytes_after_last_batch": len(data) - end})
    else:
        _show(rows)
        if end < len(data):
            say(f"{len(data) - end} bytes behind the last whole batch: a torn tail, cut at the next start")
    if end < len(data) or any(row["crc"] != "ok" for row in rows):
        raise typer.Exit(DIFFERENCES)


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no batches")
        return
    columns = [column for column in rows[0] if column != "content"]
    if not any("content" in row for row in rows):
        print_table(columns, [[row[column] for column in columns] for row in rows])
        return
    for row in rows:
        say("  ".join(f"{column} {row[column]}" for column in columns))
        for record in row.get("content", []):
            say(f"    {record['offset']}  {record['timestamp']}  {record['key']}  {record['value']}")


def _record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="backslashreplace")
