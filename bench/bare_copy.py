"""Files sent from one process to another over loopback with no broker: what the machine does by itself.

    python bench/bare_copy.py FILE ...                    sends; starts its own reader
    python bench/bare_copy.py --read PORT                 that reader: takes everything and drops it

A reader of cold data keeps both processors of a small machine busy (disk, page cache, two copies in the
kernel), whoever sends it. `bench.broker` sets a small producer's p99 beside a lagging reader against the one
beside this. Prints megabytes and seconds as one JSON object.
"""

import json
import os
import socket
import subprocess
import sys
import time

TURN = 1024 * 1024
ELSEWHERE = ("chrt", "--idle", "0")


def read(port: int) -> None:
    room = bytearray(TURN)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while sock.recv_into(room):
            pass


def send(paths: list[str]) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [*ELSEWHERE, sys.executable, __file__, "--read", str(listening.getsockname()[1])]
        with subprocess.Popen(command) as reader:
            connection, _ = listening.accept()
            begun = time.perf_counter()
            with connection:
                size = sum(_send_file(connection, path) for path in paths)
            if reader.wait(60):
                raise SystemExit("the reader failed")
    return {"mb": size / 1e6, "seconds": time.perf_counter() - begun}


def _send_file(connection: socket.socket, path: str) -> int:
    with open(path, "rb") as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, min(TURN, size - at))
    return at


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(int(sys.argv[2]))
    else:
        print(json.dumps(send(sys.argv[1:])), flush=True)
