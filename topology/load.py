"""Read a topology file: YAML with line marks, then every problem at once.

Three passes that all run, so that one mistake does not hide another: shape and types (pydantic), references
between parts (`references`), secrets by reference (`secrets`). Where they find nothing, what does not go
together in a link (`links`). Raises `TopologyError` or returns the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from protocol.yaml_text import YamlTextError, line_of, parse_yaml, plain
from replicator.wrong_values import in_words
from topology.broker_settings import setting_problems
from topology.client_settings import client_problems, client_properties
from topology.links import link_problems
from topology.models import Rest, Topology
from topology.problems import Problem, TopologyError, dotted, suggestion
from topology.references import reference_problems
from topology.secrets import resolve_secrets

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def load_topology(path: Path) -> Topology:
    """The validated topology of `path`, with its data directory made absolute.

    Raises TopologyError with all problems, also when the file cannot be read.
    """
    return _topology(read_yaml(path), source=str(path), folder=path.parent)


def parse_topology(text: str, *, source: str = "topology", folder: Path = Path()) -> Topology:
    """As `load_topology`, from text; a relative data directory starts at `folder`."""
    return _topology(_parse_yaml(text, source), source=source, folder=folder)


def read_yaml(path: Path) -> dict[str, Any]:
    """The YAML mapping of a file with its line marks. Raises TopologyError, also when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TopologyError(str(path), [Problem(0, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise TopologyError(str(path), [Problem(0, "", f"cannot be read as UTF-8: {error}")]) from None
    return _parse_yaml(text, str(path))


def _topology(document: dict[str, Any], *, source: str, folder: Path) -> Topology:
    problems: list[Problem] = []
    content = resolve_secrets(
        plain(document), lambda at, message: problems.append(_problem(document, at, message))
    )
    topology: Topology | None = None
    try:
        topology = Topology.model_validate(content)
    except ValidationError as error:
        problems.extend(shape_problems(document, error, Topology))
    found = (
        *reference_problems(content),
        *setting_problems(content),
        *client_problems(content, folder),
    )
    problems.extend(_problem(document, at, message) for at, message in found)
    if not problems and topology is not None:
        problems.extend(_problem(document, at, message) for at, message in link_problems(topology))
    if problems or topology is None:
        raise TopologyError(source, problems)
    data = topology.data_directory
    if not data.is_absolute():
        data = (folder / data).resolve()
    clusters = {
        name: cluster.model_copy(update={"client": client_properties(cluster.client, folder.resolve())})
        for name, cluster in topology.clusters.items()
    }
    rest = _rest(topology.rest, folder)
    return topology.model_copy(update={"data_directory": data, "clusters": clusters, "rest": rest})


def _rest(rest: Rest | None, folder: Path) -> Rest | None:
    """With paths that hold anywhere."""
    if rest is None:
        return None
    paths = {name: getattr(rest, name) for name in ("token_file", "keystore", "client_ca")}
    return rest.model_copy(update={name: (folder / path).resolve() for name, path in paths.items() if path})


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        documents = parse_yaml(text)
    except YamlTextError as error:
        raise TopologyError(source, [Problem(error.line, "", str(error))]) from None
    if len(documents) > 1:
        raise TopologyError(source, [Problem(1, "", "holds several documents: one is expected")])
    if not documents or not isinstance(documents[0], dict):
        raise TopologyError(source, [Problem(1, "", "a mapping (version: 1 …) is expected")])
    document: dict[str, Any] = documents[0]
    return document


def _problem(document: Any, at: tuple[str | int, ...], message: str) -> Problem:
    return Problem(line_of(document, at), dotted(at), message)


def shape_problems(document: Any, error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
    """What pydantic found wrong with a document of the shape `model`, in our words and with lines."""
    by_place: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for item in error.errors():
        by_place.setdefault(_yaml_path(document, item["loc"], item["type"]), []).append(item)
    for at, items in by_place.items():
        if items[0]["type"] == "too_short" and any(other[:-1][: len(at)] == at for other in by_place):
            continue  # entries that are wrong are not counted, and are told themselves
        message = in_words(items)
        if items[0]["type"] == "extra_forbidden":
            message += suggestion(str(at[-1]), _fields_at(model, at[:-1]))
        yield _problem(document, at, message)


def _yaml_path(document: Any, loc: tuple[int | str, ...], kind: str) -> tuple[str | int, ...]:
    """Pydantic adds parts for union members and mapping keys that are not in the file: leave those out. What
    is missing is not in the file either."""
    path: list[str | int] = []
    node: Any = document
    for index, part in enumerate(loc):
        inside = (isinstance(node, dict) and part in node) or (
            isinstance(node, list) and isinstance(part, int)
        )
        if inside:
            path.append(part)
            node = node[part]
        elif index == len(loc) - 1 and kind == "missing":
            path.append(part)
    return tuple(path)


def _fields_at(root: type[BaseModel], path: tuple[str | int, ...]) -> set[str]:
    model: Any = root
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            names = {field.alias or name: field for name, field in model.model_fields.items()}
            if part not in names:
                return set()
            model = _without_none(names[str(part)].annotation)
        else:
            model = _element(model)
    inner = model if isinstance(model, type) else _element(model)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return {field.alias or name for name, field in inner.model_fields.items()}
    return set()


def _without_none(annotation: Any) -> Any:
    """`M` of `M | None`."""
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    return arguments[0] if isinstance(annotation, UnionType) and len(arguments) == 1 else annotation


def _element(annotation: Any) -> Any:
    """The model inside `dict[str, M]`, `tuple[M, ...]` or `M | None`."""
    for argument in get_args(annotation):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
        nested = _element(argument)
        if nested is not None:
            return nested
    return None
