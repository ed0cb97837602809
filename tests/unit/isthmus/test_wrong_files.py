"""Files that are missing or wrong, and names that a file does not have: one clear line, and exit code 2."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.cli import LazyCommands

GOOD = """\
version: 1
name: pair
data_directory: state
datacenters: {a: {}}
clusters: {east: {datacenter: a, brokers: [{id: 1}]}}
"""
CONNECTOR = """\
{"name": "mirror", "config": {
 "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
 "source.cluster.alias": "east", "topics": "orders"}}
"""
STRIMZI = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec: {replicas: 1}
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code and standard error of a command in a directory with some files."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(GOOD.replace("id: 1", "id: one"))
    Path("bad.json").write_text(GOOD.replace("id: 1", "id: one"))
    Path("empty.properties").write_text("")
    Path("connector.json").write_text(CONNECTOR)
    Path("connector.properties").write_text("connector.class=MirrorCheckpointConnector")
    Path("unicode.properties").write_text("clusters = east, west\neast->west.topics = \\u12\n")
    Path("mirror.properties").write_text("clusters = east, west\neast.bootstrap.servers = a:1\n")
    Path("strimzi.yaml").write_text(STRIMZI)
    Path("kafka-connector.yaml").write_text("apiVersion: v1\nkind: KafkaConnector\nspec: {class: x}\n")
    Path("latin.yaml").write_bytes(b"name: caf\xe9\n")

    def command(name: str, *arguments: str) -> tuple[int, str]:
        code = LazyCommands._load(name).main(args=list(arguments), standalone_mode=False)
        return code, capsys.readouterr().err

    return command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("up nosuch.yaml", "isthmus: nosuch.yaml cannot be read: No such file or directory\n"),
        ("up .", "isthmus: . cannot be read: Is a directory\n"),
        ("up latin.yaml", "latin.yaml cannot be read as UTF-8"),
        ("up bad.yaml", "bad.yaml: 1 problem\n  line 5: clusters.east.brokers.0.id"),
        ("topology validate bad.yaml", "line 5"),
        ("topology validate bad.yaml --json", ""),
        ("elect -c east -f nosuch.yaml", "nosuch.yaml cannot be read"),
        (
            "topics list -c 127.0.0.1:99999",
            "bootstrap address '127.0.0.1:99999' is not of the form host:port",
        ),
        ("elect -c a:b", "bootstrap address 'a:b' is not of the form host:port"),
        ("elect -c west -f good.yaml", "there is no cluster 'west' in good.yaml: east"),
        ("elect -c east@b -f good.yaml", "there is no datacenter 'b' in good.yaml: a"),
        ("links check -f nosuch.yaml", "nosuch.yaml cannot be read"),
        (
            "links fail-groups-back east->west -f good.yaml --group [",
            "--group: '[' is not a regular expression",
        ),
        ("net show good.yaml", "no network section"),
        ("drill check nosuch.yaml", "nosuch.yaml cannot be read"),
        ("demo nosuch.yaml", "nosuch.yaml cannot be read"),
        ("log dump nosuch.log", "nosuch.log cannot be read: No such file"),
        ("replicate nosuch.properties", "nosuch.properties: No such file"),
        ("replicate connector.json --check", "line 1: mirror: has no source.cluster.bootstrap.servers"),
        ("replicate connector.properties", "name: is missing: where its progress is kept"),
        ("links check east->west -f strimzi.yaml", "line 3: spec.target: is missing"),
        ("links status east->west -f strimzi.yaml", "line 3: spec.target: is missing"),
        (
            "replicate kafka-connector.yaml",
            "KafkaConnector: is not read: take what Strimzi's Connect cluster",
        ),
        ("replicate nosuch.json", "nosuch.json: No such file"),
        ("replicate unicode.properties", "1 problem\n  unicode.properties:2: \\u is not followed by"),
        *(
            (f"{words} {file}", f"{file} is a file of MirrorMaker 2: isthmus replicate and isthmus links")
            for words in ("topics list -c east -f", "copy --from east --to west --topics .* -f", "status")
            for file in ("mirror.properties", "connector.json", "strimzi.yaml")
        ),
        ("status bad.json", "bad.json: 1 problem\n  line 5: clusters.east.brokers.0.id"),
        ("replicate empty.properties", "clusters: is missing: the aliases of all clusters"),
    ],
)
def test_a_wrong_file_is_a_mistake_in_use(run: Run, words: str, told: str) -> None:
    code, errors = run(*words.split())
    assert code == 2, errors
    assert told in errors


def test_who_names_no_file_hears_that_one_is_to_be_named(run: Run) -> None:
    for command in (("links", "status", "east->west"), ("status",), ("topics", "list", "--cluster", "east")):
        code, said = run(*command)
        assert code == 2
        assert "name yours" in said
    assert "name yours" not in run("status", "nowhere.yaml")[1]


def test_a_file_of_links_leads_to_the_status_of_links(run: Run) -> None:
    Path("links.yaml").write_text(
        GOOD.replace(
            "brokers: [{id: 1}]}", "bootstrap_servers: a:1}, west: {datacenter: a, bootstrap_servers: b:1}"
        )
        + "links: {east->west: {}}\n"
    )
    code, said = run("status", "links.yaml")
    assert code == 1
    assert "isthmus links status LINK --topology links.yaml" in said
    assert "links status" not in run("status", "good.yaml")[1]


def test_a_full_disk_behind_the_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "isthmus", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "isthmus: standard output (or a file that it writes): No space left on device: not all of it is"
        " written; make room there\n"
    )
