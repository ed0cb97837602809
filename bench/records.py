"""Records per second of our batch code, beside the pure-Python and the compiled code of others.

    python -m bench.records

CPU time, best of several rounds; figures of different machines cannot be compared, ratios can.
"""

import time
import warnings
from collections.abc import Callable, Iterable

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch

from protocol.records import Codec, Record, build_batch, decode_batches

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by an old call
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

ROUNDS = 7
WIDTHS = (22, 9, 9, 9, 9, 13, 13)


def rate(count: int, action: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return count / best


def drain(records: Iterable[object]) -> None:
    for _ in records:
        pass


def main() -> None:
    names = ("records", "build", "decode", "lz4", "zstd", "kafka-python", "aiokafka (C)")
    print(*(f"{name:>{width}}" for name, width in zip(names, WIDTHS, strict=True)))
    for count, size, headers in ((10_000, 100, 0), (10_000, 100, 2), (1_000, 1_000, 0)):
        records = [
            Record(
                number,
                1_700_000_000_000 + number,
                b"key-%d" % number,
                b"value %d " % number * (size // 10),
                [(f"header-{index}", b"value") for index in range(headers)],
            )
            for number in range(count)
        ]
        plain = build_batch(records)
        packed = {codec: build_batch(records, codec=codec) for codec in (Codec.LZ4, Codec.ZSTD)}
        rates = [
            rate(count, lambda records=records: build_batch(records)),
            rate(count, lambda batch=plain: drain(decode_batches(batch))),
            *(rate(count, lambda batch=batch: drain(decode_batches(batch))) for batch in packed.values()),
            rate(count, lambda batch=plain: drain(KafkaPythonBatch(batch))),
            rate(count, lambda batch=plain: drain(AiokafkaBatch(bytearray(batch)))),
        ]
        columns = (f"{value:>{width},.0f}" for value, width in zip(rates, WIDTHS[1:], strict=True))
        print(f"{f'{size} B, {headers} headers':>{WIDTHS[0]}}", *columns)


if __name__ == "__main__":
    main()
