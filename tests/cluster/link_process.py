"""A link as a process of its own, for tests that kill it: `python -m tests.cluster.link_process SETTINGS`.

SIGTERM stops it in order; the exit code is the link's. A line on standard output says that it would hear one.
"""

import asyncio
import logging
import signal
import sys

import uvloop
from prometheus_client import CollectorRegistry

from replicator.mirrors.running import run_mirrors
from replicator.settings import LinkSettings
from replicator.worker import run_link


async def main(settings: LinkSettings) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    run = run_mirrors if settings.offsets == "identical" else run_link
    return await run(settings, stop, CollectorRegistry())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s %(message)s")
    sys.exit(uvloop.run(main(LinkSettings.model_validate_json(sys.argv[1]))))
