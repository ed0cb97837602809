"""An answer that says one error everywhere: what a client gets when a handler failed unexpectedly.

Kafka builds it per request (`AbstractRequest.getErrorResponse`); here it follows from the schemas: a response
has one `error_code` on top, or one in each item of the array that mirrors the request's (topics, partitions,
groups, resources), whose identifying fields are copied. Knows nothing about any API in particular.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.api import APIS
from protocol.codec.schema import Field, Struct, version_range
from protocol.errors import ErrorCode

_CODES = ("error_code", "partition_error_code")
# What identifies an item has another name in some requests.
_ALIASES = {
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "partition_index": ("partition_index", "partition", "index"),
    "partition": ("partition", "partition_index"),
    "index": ("index",),
    "topic_id": ("topic_id",),
    "group_id": ("group_id",),
    "producer_id": ("producer_id",),
    "transactional_id": ("transactional_id",),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
}


def error_answer(request: Any, version: int, code: ErrorCode) -> Any | None:
    """The response to `request` in this version with `code` in it; None where it has no place for one."""
    response = APIS[request.API_KEY].response()
    return response if _fill(response, request, version, code) else None


def _fill(answer: Any, asked: Any, version: int, code: ErrorCode) -> bool:
    """Put the code and the identity of what was asked into an answer's struct; False without a place."""
    fields = list(_fields(answer, version))
    for field in fields:
        if field.name in _ALIASES:
            _identify(answer, asked, field)
    for field in fields:
        if field.name in _CODES:
            setattr(answer, field.name, code)
            return True
    for field in fields:
        if field.of is not None and field.kind == "[]struct" and _has_place(field.of, version):
            items = list(_asked_items(asked, version))
            made = [field.of() for _ in items]
            setattr(answer, field.name, made)
            return all(_fill(one, item, version, code) for one, item in zip(made, items, strict=True))
    return False


def _identify(answer: Any, asked: Any, field: Field) -> None:
    if isinstance(asked, str | int):
        if (field.kind == "string") == isinstance(asked, str):
            setattr(answer, field.name, asked)
        return
    for name in _ALIASES[field.name]:
        value = getattr(asked, name, None)
        if value is not None and not isinstance(value, list):
            setattr(answer, field.name, value)
            return


def _fields(struct: Any, version: int) -> Iterator[Field]:
    for field in type(struct).FIELDS:
        if version in version_range(field.versions):
            yield field


def _has_place(struct: type[Struct], version: int) -> bool:
    return any(
        field.name in _CODES
        or (field.of is not None and field.kind == "[]struct" and _has_place(field.of, version))
        for field in struct.FIELDS
        if version in version_range(field.versions)
    )


def _asked_items(asked: Any, version: int) -> Iterator[Any]:
    """The items of the request's first array that has any: structs, names or numbers."""
    if not isinstance(asked, Struct):
        return
    for field in _fields(asked, version):
        if field.kind in ("[]struct", "[]string", "[]int32"):
            items = getattr(asked, field.name)
            if items:
                yield from items
                return
