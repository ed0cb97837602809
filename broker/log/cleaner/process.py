"""The cleaner's process: takes jobs from standard input, one a line, and writes events to standard output.

Compaction costs time of a processor and memory for a map; here neither takes anything from the event loop,
and the memory is given back when there is nothing to clean. The process ends with its broker, whatever
happens to that: the kernel ends it, and so does the end of its input.
"""

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from typing import Final

from broker import time_slice
from broker.log.cleaner.compaction import Compaction
from broker.log.cleaner.job import Event, Failed, Job, encode_event
from broker.log.cleaner.throttle import Throttle
from broker.log.disk_errors import FULL
from broker.log.errors import LogError
from protocol.errors import DecodeError

_PR_SET_PDEATHSIG: Final = 1
_NICE: Final = 10


def main() -> int:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the broker decides
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    time_slice.shorten(time_slice.KERNELS_OWN)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    while True:
        job = Job.decode(jobs.get())
        try:
            Compaction(job, _report, Throttle(job.bytes_per_second)).run()
        except OSError as error:
            message = f"{error.strerror}: {error.filename or job.directory}"
            _report(Failed(message=message, transient=error.errno in FULL, errno=error.errno or 0))
        except (LogError, DecodeError) as error:
            _report(Failed(message=str(error)))


def _read(jobs: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)  # the broker is gone, or has nothing more to do; what is half written is not used


def _report(event: Event) -> None:
    sys.stdout.buffer.write(encode_event(event))
    sys.stdout.buffer.flush()


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
