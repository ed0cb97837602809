"""Local S3 APIs for tests, each in a process of its own on a free port.

moto's server forgets everything when it ends; versitygw keeps objects on disk (skipped aloud where it is not
installed).
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from topology.runtime import free_port

_READY_S = 30.0


class S3Server:
    """`with S3Server(tmp_path) as s3:`; `s3.endpoint` takes any credentials."""

    access_key = "test-access"
    secret_key = "test-secret"

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.port = port or free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._log = directory / f"s3-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-W", "ignore", "-m", "moto.server"),
            *("-H", "127.0.0.1", "-p", str(self.port)),
        ]

    def start(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"S3 server did not start on {self.endpoint}: {self._log.read_text()}")
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            with self._client() as client:
                client.list_buckets()
        except (OSError, BotoCoreError, ClientError):
            return False
        return True

    def make_bucket(self, name: str) -> None:
        with self._client() as client:
            client.create_bucket(Bucket=name)

    def _client(self) -> closing[Any]:
        return closing(
            boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                region_name="us-east-1",
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
            )
        )


class VersityGateway(S3Server):
    """Objects are files below `directory`, so that they outlive the process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._objects = directory / "objects"
        self._objects.mkdir()
        self._sidecar = directory / "attributes"  # extended attributes are missing on some file systems
        self._sidecar.mkdir()

    def command(self) -> list[str]:
        home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
        program = shutil.which("versitygw", path=f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
        if program is None:
            package = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
            pytest.skip(f"no versitygw: GOBIN={home / 'bin'} go install {package}")
        return [
            *(program, "--port", f"127.0.0.1:{self.port}", "--quiet"),
            *("--access", self.access_key, "--secret", self.secret_key),
            *("posix", "--sidecar", str(self._sidecar), str(self._objects)),
        ]
