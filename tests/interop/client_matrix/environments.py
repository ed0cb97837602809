"""The environment of each client version: made once outside the repository, used by every later run.

Python clients get a virtual environment, KafkaJS a folder of node modules, Go clients a compiled program.
Knows nothing of scenarios.
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.suite import build_step, cache, need

CLIENTS = Path(__file__).parent / "clients"
_BUILD_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Client:
    """`prepare` makes the environment and returns the command that takes BOOTSTRAP SCENARIO TOPIC."""

    name: str
    version: str
    prepare: Callable[["Client"], list[str]]
    requirements: tuple[str, ...] = ()
    program: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}-{self.version}"


def _folder(client: Client, made: str) -> tuple[Path, bool]:
    """The client's folder and whether it is ready; a half-made one is begun again."""
    folder = cache("client_matrix") / client.title
    if (folder / made).exists():
        return folder, True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder, False


def _step(folder: Path, *command: str) -> None:
    build_step(command, folder, folder / "build.log", _BUILD_TIMEOUT_S)


def python(client: Client) -> list[str]:
    """A virtual environment with the client and its codecs."""
    folder, ready = _folder(client, ".ready")
    interpreter = folder / "bin" / "python"
    if not ready:
        _step(folder, sys.executable, "-m", "venv", "--without-pip", str(folder))
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(interpreter))
        _step(folder, *pip, "install", "-q", "--only-binary", ":all:", *client.requirements)
        (folder / ".ready").touch()
    return [str(interpreter), str(CLIENTS / client.program)]


def node(client: Client) -> list[str]:
    """A folder of node modules; the program is copied there, because node looks for modules beside it."""
    need("node", "npm")
    folder, ready = _folder(client, ".ready")
    if not ready:
        _step(folder, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *client.requirements)
        (folder / ".ready").touch()
    shutil.copyfile(CLIENTS / client.program, folder / client.program)
    return ["node", str(folder / client.program)]


def go(client: Client) -> list[str]:
    """A compiled program; it is built again when its source has changed."""
    need("go")
    source = (CLIENTS / client.program).read_text()
    lines = "\n".join(f"\t{each.replace('@', ' ')}" for each in client.requirements)
    module = f"module matrix\n\ngo 1.23\n\nrequire (\n{lines}\n)\n"
    folder, ready = _folder(client, "built.from")
    built_from = folder / "built.from"
    if not ready or built_from.read_text() != module + source:
        (folder / "main.go").write_text(source)
        (folder / "go.mod").write_text(module)
        _step(folder, "go", "mod", "tidy")
        _step(folder, "go", "build", "-o", "client", ".")
        built_from.write_text(module + source)
    return [str(folder / "client")]


_FRANZ = ("github.com/twmb/franz-go@v1.22.3", "github.com/twmb/franz-go/pkg/kadm@v1.20.0")
_PYTHON_CODECS = ("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "crc32c==2.9.post0")


def _confluent(version: str) -> Client:
    requirements = (f"confluent-kafka=={version}",)
    return Client("confluent-kafka", version, python, requirements, "confluent_client.py")


def _kafka_python(version: str) -> Client:
    requirements = (f"kafka-python=={version}", *_PYTHON_CODECS)
    return Client("kafka-python", version, python, requirements, "kafka_python_client.py")


def _aiokafka(version: str, *codecs: str) -> Client:
    return Client("aiokafka", version, python, (f"aiokafka=={version}", *codecs), "aiokafka_client.py")


ALL: Mapping[str, Client] = {
    client.title: client
    for client in (
        *map(_confluent, ("2.0.2", "2.8.2", "2.10.1", "2.11.1", "2.16.1")),
        *map(_kafka_python, ("2.0.2", "2.3.0", "3.0.12")),
        _aiokafka("0.8.1", "kafka-python==2.0.2", *_PYTHON_CODECS),
        _aiokafka("0.14.0", "cramjam==2.14.0"),
        Client("kafkajs", "2.2.4", node, ("kafkajs@2.2.4",), "kafkajs_client.js"),
        Client("franz-go", "1.22.3", go, _FRANZ, "franz_client.go"),
        Client("sarama", "1.45.2", go, ("github.com/IBM/sarama@v1.45.2",), "sarama_client.go"),
        Client("sarama", "1.61.1", go, ("github.com/IBM/sarama@v1.61.1",), "sarama_client.go"),
    )
}
