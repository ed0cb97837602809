"""Starts a real ZooKeeper server as a child process: the only place that does.

Used by `isthmus broker --embedded-zookeeper`, by the local supervisor and by the tests. Production uses the
operator's own ensemble. The server has its own data directory (locked, so that two servers never share it),
a small heap, no admin server, and dies with the process that started it. It stands alone, or is one server of
an ensemble, which serves once enough of the others run (`zookeeper_ensemble`).
Must not know what is kept in ZooKeeper.
"""

import ctypes
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.control.java import find_java, zookeeper_classpath
from broker.control.zookeeper_ensemble import Ensemble

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_PR_SET_PDEATHSIG = 1
_PORT_ATTEMPTS = 5
_NOT_SERVING = "not currently serving requests"
_OF_ENSEMBLES = {"initLimit": 20, "syncLimit": 4, "reconfigEnabled": "false"}
"""In ticks of half a second: a server that the leader has not heard for two seconds is left out."""
_CAUSE = re.compile(r"(Caused by: |Error: )?[\w.$]+(Exception|Error)\b")


class EmbeddedZooKeeperError(Exception):
    """The server could not be started; the message says why and where its log is."""


class EmbeddedZooKeeper:
    """One ZooKeeper server process, stand-alone or of an `ensemble`.

    `port` 0 takes a free one. A server of an ensemble counts as started once it listens; whether enough
    others run, so that it serves, says `serving`. `fsync=False` trades the safety of ZooKeeper's own log for
    speed (tests).
    Start it from the main thread: the kernel ties the child's life to the thread that started it.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        heap_mb: int = 96,
        tick_ms: int = 500,
        fsync: bool = True,
        start_timeout_s: float = 30.0,
        lock_wait_s: float = 5.0,
        ensemble: Ensemble | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.host = host
        self.port = port
        self._chosen_port = port
        self._heap_mb = heap_mb
        self._tick_ms = tick_ms
        self._fsync = fsync
        self._start_timeout_s = start_timeout_s
        self._lock_wait_s = lock_wait_s
        self._ensemble = ensemble
        self._process: subprocess.Popen[bytes] | None = None
        self._lock_fd: int | None = None

    @property
    def connect(self) -> str:
        """Connection string without a chroot, as `zookeeper.connect` wants it."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log_file(self) -> Path:
        return self.data_dir / "zookeeper.log"

    def start(self) -> Self:
        """Start and wait until the server answers. Raises EmbeddedZooKeeperError or JavaError."""
        java, classpath = find_java(), zookeeper_classpath()
        self._prepare_directory()
        try:
            self._claim_directory()
            for attempt in range(_PORT_ATTEMPTS):
                self.port = self._chosen_port or _free_port(self.host)
                self._spawn(java, classpath)
                reason = self._wait_until_serving()
                if reason is None:
                    return self
                self._end_process()
                if self._chosen_port or "BindException" not in reason or attempt == _PORT_ATTEMPTS - 1:
                    raise EmbeddedZooKeeperError(
                        f"ZooKeeper did not start on {self.connect} with data in {self.data_dir}: {reason}"
                    )
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server (SIGTERM, then SIGKILL after the timeout) and release the data directory."""
        self._end_process(timeout_s)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def kill(self) -> None:
        """End the server at once, as a crash would; the data directory stays usable."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def pause(self) -> None:
        """Stop the process where it is, as a machine that hangs would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve, or does not run."""
        for line in four_letter_word(self.host, self.port, "srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def serving(self) -> bool:
        """Whether it takes requests: a server of an ensemble does not without a quorum."""
        return bool(self.mode)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare_directory(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(self.data_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise EmbeddedZooKeeperError(
                f"ZooKeeper data directory {self.data_dir} cannot be used: {error.strerror}"
            ) from error
        deadline = time.monotonic() + self._lock_wait_s  # the server of a killed broker needs a moment to die
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._lock_fd)
                    self._lock_fd = None
                    raise EmbeddedZooKeeperError(
                        f"ZooKeeper data directory {self.data_dir} is in use by another process"
                    ) from None
                time.sleep(0.05)

    def _claim_directory(self) -> None:
        """Leave our number in the directory. Raises EmbeddedZooKeeperError where another one's data lies."""
        if self._ensemble is None:
            return
        path, own = self.data_dir / "myid", self._ensemble.own_id
        found = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if found not in ("", str(own)):
            raise EmbeddedZooKeeperError(
                f"ZooKeeper data directory {self.data_dir} belongs to server {found} of its ensemble, not to "
                f"{own}: two servers with one memory can lose what was agreed; give each its own directory"
            )
        path.write_text(f"{own}\n", encoding="utf-8")

    def _spawn(self, java: str, classpath: str) -> None:
        config = self.data_dir / "zoo.cfg"
        config.write_text(self._config(), encoding="utf-8")
        logging_config = self.data_dir / "log4j2.properties"
        logging_config.write_text(LOG4J, encoding="utf-8")
        command = [
            java,
            f"-Xmx{self._heap_mb}m",
            "-Xss512k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Djute.maxbuffer=4194304",
            f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
            f"-Dlog4j2.configurationFile={logging_config}",
            "-cp",
            classpath,
            _MAIN,
            str(config),
        ]
        assert self._lock_fd is not None
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the broker, which still needs ZooKeeper to sign off
                pass_fds=(self._lock_fd,),  # the lock lasts as long as the server does
                preexec_fn=_die_with_parent(),
            )

    def _config(self) -> str:
        settings = {
            "dataDir": self.data_dir.resolve(),
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": self._tick_ms,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 120_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            **({} if self._ensemble is None else {**_OF_ENSEMBLES, **self._ensemble.settings()}),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _wait_until_serving(self) -> str | None:
        """None once the server answers, else the reason why it will not."""
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return f"exit code {self._process.returncode}; {self._last_log_line()}"
            if self._answers():
                return None
            time.sleep(0.02)
        return f"no answer within {self._start_timeout_s:g} s; {self._last_log_line()}"

    def _answers(self) -> bool:
        """Whether the server on our port serves, and is ours: another one may hold the port."""
        answer = four_letter_word(self.host, self.port, "srvr")
        if self._ensemble is not None and _NOT_SERVING in answer:
            return True  # it listens, the others are missing; it says no more yet
        if not answer.startswith("Zookeeper version"):
            return False
        directory = f"dataDir={self.data_dir.resolve()}{os.sep}"
        return any(
            line.startswith(directory) for line in four_letter_word(self.host, self.port, "conf").splitlines()
        )

    def _last_log_line(self) -> str:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        causes = [line for line in lines if _CAUSE.match(line)]
        return f"{causes[-1] if causes else 'nothing logged'} (log: {self.log_file})"

    def _end_process(self, timeout_s: float = 10.0) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None


def four_letter_word(host: str, port: int, word: str, timeout_s: float = 1.0) -> str:
    """Answer to one of ZooKeeper's four-letter commands, or "" when nobody answers."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(word.encode())
            answer = bytearray()
            while part := connection.recv(65536):
                answer += part
    except OSError:
        return ""
    return answer.decode("utf-8", errors="replace")


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> Callable[[], None] | None:
    """Has the kernel kill the child when this process dies, even by SIGKILL (Linux only)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return tie


LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
