#!/usr/bin/env python3
"""Writes `protocol/messages/` from Kafka's own message definitions.

    tools/generate_messages.py --jar kafka-clients-4.3.1.jar --jar kafka-group-coordinator-4.3.1.jar \\
        --jar kafka-transaction-coordinator-4.3.1.jar --jar kafka-clients-3.9.1.jar

The first jar that defines a message with at least one version wins, so name the newest first; the messages of
ZooKeeper mode (LeaderAndIsr, UpdateMetadata, StopReplica, ControlledShutdown) exist only up to 3.9.
Only facts go over: names, types, versions, tags, nullability, defaults. Kafka's texts stay where they are.
"""

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

APIS = (  # noqa: SIM905  # words read better than a list
    "Produce Fetch ListOffsets Metadata LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown "
    "OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups "
    "ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId "
    "OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit "
    "DescribeAcls CreateAcls DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs "
    "DescribeLogDirs SaslAuthenticate CreatePartitions CreateDelegationToken RenewDelegationToken "
    "ExpireDelegationToken DescribeDelegationToken DeleteGroups ElectLeaders IncrementalAlterConfigs "
    "AlterPartitionReassignments ListPartitionReassignments OffsetDelete DescribeClientQuotas "
    "AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials AlterPartition "
    "UpdateFeatures Envelope DescribeCluster DescribeProducers DescribeTransactions ListTransactions "
    "AllocateProducerIds ConsumerGroupHeartbeat ConsumerGroupDescribe GetTelemetrySubscriptions "
    "PushTelemetry DescribeTopicPartitions "
).split()
"""What a broker of ours or its clients may ever say; Raft, share groups and Streams groups are left out."""

OTHERS = (  # noqa: SIM905
    "RequestHeader ResponseHeader ConsumerProtocolSubscription ConsumerProtocolAssignment "
    "DefaultPrincipalData ControlRecordTypeSchema EndTxnMarker LegacyOffsetCommitKey "
    "LegacyOffsetCommitValue OffsetCommitKey OffsetCommitValue GroupMetadataKey GroupMetadataValue "
    "TransactionLogKey TransactionLogValue "
).split()

PYTHON_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16", "uint32"), "int"),
    "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "uuid": "bytes",
    "records": "RecordData",
}  # fmt: skip
ZEROS: dict[str, Any] = {"int": 0, "bool": False, "float": 0.0, "str": "", "bytes": b"", "RecordData": None}

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent


def snake(name: str) -> str:
    """Kafka's CamelCase as a Python name: `TopicConfigErrorCode` to `topic_config_error_code`."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def definitions(paths: Iterable[Path]) -> dict[str, Json]:
    """Message definitions by name out of jars or folders; the first usable one of a name wins."""
    found: dict[str, Json] = {}
    for path in paths:
        for text in _texts(path):
            definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
            if definition["validVersions"] != "none":
                found.setdefault(definition["name"], definition)
    return found


def _texts(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield from (file.read_text() for file in sorted(path.glob("*.json")))
        return
    with zipfile.ZipFile(path) as jar:
        for entry in sorted(jar.namelist()):
            if entry.startswith("common/message/") and entry.endswith(".json"):
                yield jar.read(entry).decode()


def default_of(field: Json) -> Any:
    """Kafka's default as a Python value; `...` for a new struct."""
    kind, given = field["type"], field.get("default", "")
    if given in ("null", None):
        return None
    if kind.startswith("[]"):
        return []
    if kind not in PYTHON_TYPES:
        return None if "tag" in field else ...
    if kind == "uuid":
        return bytes(16)
    python = PYTHON_TYPES[kind]
    if given == "" or python in ("bytes", "RecordData"):
        return ZEROS[python]
    if python == "int":
        return int(str(given), 0)
    if python == "bool":
        return str(given) == "true"
    return float(given) if python == "float" else given


def structs_of(definition: Json) -> list[tuple[str, list[Json]]]:
    """(class name, fields) of a message, inner structs first, the message itself last."""
    ordered: dict[str, list[Json]] = {}
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}

    def visit(name: str, fields: list[Json]) -> None:
        for field in fields:
            inner = field["type"].removeprefix("[]")
            if inner not in PYTHON_TYPES and inner not in ordered:
                visit(inner, field.get("fields") or common[inner])
        ordered[name] = fields

    visit(definition["name"], definition["fields"])
    return list(ordered.items())


def render(definition: Json) -> str:
    """The Python module of one message."""
    name = definition["name"]
    structs = structs_of(definition)
    body = "\n\n".join(_class(definition, struct, fields) for struct, fields in structs)
    versions = definition["validVersions"].partition("-")
    what = f"{name}{f' (API key {_key(definition)})' if _is_api(definition) else ''}"
    span = f"version {versions[0]}" if not versions[1] else f"versions {versions[0]} to {versions[2]}"
    bases = ("Message", "Request", "Response", "RecordSchema")
    names = ("EMPTY", *sorted(("Field", "RecordData", "Struct", *bases)))
    imports = [x for x in names if re.search(rf"\b{x}\b", body)]
    lines = [f'"""{what}, {span}. Generated by tools/generate_messages.py: do not edit."""', ""]
    typing = ["ClassVar"]
    answer = []
    if definition["type"] == "request":
        typing.insert(0, "TYPE_CHECKING")
        response = name.removesuffix("Request") + "Response"
        answer = ["", "if TYPE_CHECKING:", f"    from protocol.messages.{snake(response)} import {response}"]
    lines += [
        f"from typing import {', '.join(typing)}",
        "",
        f"from protocol.codec.schema import {', '.join(imports)}",
    ]
    if "ZERO_UUID" in body:
        lines.append("from protocol.types import ZERO_UUID")
    return "\n".join([*lines, *answer, "", "", body, ""])


def _is_api(definition: Json) -> bool:
    return definition["type"] in ("request", "response")


def _key(definition: Json) -> int:
    return int(definition["apiKey"])


def _base(definition: Json) -> str:
    kinds = {"request": "Request", "response": "Response", "coordinator-key": "RecordSchema"}
    return {**kinds, "coordinator-value": "RecordSchema"}.get(definition["type"], "Message")


def _class(definition: Json, name: str, fields: list[Json]) -> str:
    names = [snake(field["name"]) for field in fields]
    lines = [
        f"class {name}({_class_base(definition, name)}):",
        f"    __slots__ = ({''.join(f'{n!r}, ' for n in names)})",
    ]
    if name == definition["name"]:
        low, dash, high = definition["validVersions"].partition("-")
        flexible = definition.get("flexibleVersions", "none")
        if "apiKey" in definition:
            constant = "API_KEY" if _is_api(definition) else "RECORD_TYPE"
            lines.append(f"    {constant}: ClassVar[int] = {_key(definition)}")
        lines.append(f"    VALID_VERSIONS: ClassVar[tuple[int, int]] = ({low}, {high if dash else low})")
        first = None if flexible == "none" else int(flexible.removesuffix("+"))
        lines.append(f"    FLEXIBLE_FROM: ClassVar[int | None] = {first}")
    rows = ", ".join(_row(field) for field in fields)
    lines.append(f"    FIELDS: ClassVar[tuple[Field, ...]] = ({rows + ',' if rows else ''})")
    if fields:
        parameters = ", ".join(_parameter(field) for field in fields)
        lines += ["", f"    def __init__(self, *, {parameters}) -> None:"]
        lines += [f"        self.{snake(f['name'])} = {_value(f)}" for f in fields]
    return "\n".join(lines) + "\n"


def _class_base(definition: Json, name: str) -> str:
    if name != definition["name"]:
        return "Struct"
    base = _base(definition)
    return f'Request["{name.removesuffix("Request")}Response"]' if base == "Request" else base


def _row(field: Json) -> str:
    kind = field["type"]
    inner = kind.removeprefix("[]")
    is_struct = inner not in PYTHON_TYPES
    python = PYTHON_TYPES.get(kind)
    shown = ("[]struct" if kind.startswith("[]") else "struct") if is_struct else kind
    tagged = field.get("taggedVersions", "none")
    parts = [repr(snake(field["name"])), repr(shown), repr(field.get("versions") or tagged)]
    if is_struct:
        parts.append(f"of={inner}")
    if field.get("nullableVersions"):
        parts.append(f"null={field['nullableVersions']!r}")
    value = default_of(field)
    zero = ZEROS.get(python) if python else ([] if kind.startswith("[]") else ...)
    if kind != "uuid" and value != zero and not (is_struct and "tag" in field):
        parts.append(f"default={value!r}")
    if "tag" in field:
        parts.append(f"tag={field['tag']}, tagged={tagged!r}")
    if str(field.get("ignorable", "false")).lower() == "true":
        parts.append("ignorable=True")
    if field.get("flexibleVersions"):
        parts.append(f"flexible={field['flexibleVersions']!r}")
    return f"Field({', '.join(parts)})"


def _parameter(field: Json) -> str:
    kind = field["type"]
    inner = kind.removeprefix("[]")
    python = PYTHON_TYPES.get(inner, inner)
    python = f"list[{python}]" if kind.startswith("[]") else python
    value = default_of(field)
    if python != "RecordData" and (value is None or field.get("nullableVersions")):
        python += " | None"
    if value == [] or value is ...:
        shown = "EMPTY"
    elif value == bytes(16):
        shown = "ZERO_UUID"
    else:
        shown = repr(value)
    return f"{snake(field['name'])}: {python} = {shown}"


def _value(field: Json) -> str:
    name, value = snake(field["name"]), default_of(field)
    if value == []:
        return f"[] if {name} is EMPTY else {name}"
    if value is ...:
        return f"{field['type']}() if {name} is EMPTY else {name}"
    return name


def render_index(found: Mapping[str, Json]) -> str:
    """The table of APIs, so that none of the message modules has to be imported to know the versions."""
    rows, members = [], []
    for api in sorted(APIS, key=lambda name: _key(found[f"{name}Request"])):
        request, response = found[f"{api}Request"], found[f"{api}Response"]
        if any(request.get(k) != response.get(k) for k in ("validVersions", "flexibleVersions", "apiKey")):
            raise SystemExit(f"{api}: request and response differ in versions")
        low, dash, high = request["validVersions"].partition("-")
        flexible = request["flexibleVersions"]
        first = None if flexible == "none" else int(flexible.removesuffix("+"))
        rows.append(f"    ({_key(request)}, {api!r}, {low}, {high if dash else low}, {first}),")
        members.append(f"    {snake(api).upper()} = {_key(request)}")
    return "\n".join(
        [
            '"""All APIs: key, name, versions. Generated by tools/generate_messages.py: do not edit."""',
            "", "from enum import IntEnum", "", "", "class ApiKey(IntEnum):", *members, "", "",
            "ROWS: tuple[tuple[int, str, int, int, int | None], ...] = (",
            "    # key, name, lowest version, highest version, first flexible version", *rows, ")", "",
        ]
    )  # fmt: skip


def wanted() -> list[str]:
    return [f"{api}{kind}" for api in APIS for kind in ("Request", "Response")] + OTHERS


def message_modules(found: Mapping[str, Json]) -> dict[str, str]:
    """File names and texts of the wanted messages among `found`, not formatted yet."""
    return {f"{snake(name)}.py": render(found[name]) for name in wanted() if name in found}


def modules(found: Mapping[str, Json]) -> dict[str, str]:
    """File names and texts of the whole package, not formatted yet."""
    missing = [name for name in wanted() if name not in found]
    if missing:
        raise SystemExit(f"no jar defines {', '.join(missing)}: name all four jars (see --help)")
    package = (
        '"""One module per message of the Kafka protocol, generated by tools/generate_messages.py.\n\n'
        "Facts from Apache Kafka's message definitions (Apache License 2.0, see NOTICE). Nothing is\n"
        'imported here: take a message from its own module, or through `protocol.api` by key.\n"""\n'
    )
    return {**message_modules(found), "index.py": render_index(found), "__init__.py": package}


def write(texts: Mapping[str, str], folder: Path) -> None:
    """Writes modules and formats them with ruff, by the project's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    subprocess.run([*ruff, str(folder)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jar", type=Path, action="append", required=True, help="newest first")
    parser.add_argument("--target", type=Path, default=ROOT / "protocol/messages")
    arguments = parser.parse_args()
    texts = modules(definitions(arguments.jar))
    stale = {path.name for path in arguments.target.glob("*.py")} - set(texts)
    for name in stale:
        (arguments.target / name).unlink()
    write(texts, arguments.target)
    print(f"{len(texts)} modules written to {arguments.target}, {len(stale)} removed")


if __name__ == "__main__":
    main()
