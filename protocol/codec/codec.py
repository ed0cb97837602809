"""The four calls of the codec and their errors.

Compiled functions are kept per (class, version). Errors of any kind inside compiled code (short buffers, bad
UTF-8, numbers out of range) leave here as one exception that names message, version, field and position.
"""

import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

from protocol.codec.decoder import compile_decoder
from protocol.codec.encoder import compile_encoder
from protocol.codec.schema import Message
from protocol.codec.source import locate
from protocol.codec.wire import Malformed
from protocol.errors import DecodeError, EncodeError
from protocol.types import Buffer

M = TypeVar("M", bound=Message)


class _Compiled(dict[tuple[type[Message], int], Callable[..., Any]]):
    """Compiled functions by class and version, made when first asked for."""

    def __init__(
        self, compiler: Callable[..., tuple[Callable[..., Any], str]], error: type[Exception]
    ) -> None:
        self.compiler = compiler
        self.error = error

    def __missing__(self, key: tuple[type[Message], int]) -> Callable[..., Any]:
        cls, version = key
        low, high = cls.VALID_VERSIONS
        if not low <= version <= high:
            raise self.error(f"{cls.__name__} has versions {low} to {high}, not {version}")
        function = self[key] = self.compiler(cls, version)[0]
        return function


_DECODERS = _Compiled(compile_decoder, DecodeError)
_ENCODERS = _Compiled(compile_encoder, EncodeError)
_DECODE_FAILURES = (Malformed, struct.error, IndexError, UnicodeDecodeError)
_ENCODE_FAILURES = (Malformed, struct.error, AttributeError, TypeError, ValueError, OverflowError)


def decode(cls: type[M], version: int, data: Buffer, pos: int = 0) -> M:
    """The message that fills `data` from `pos` to its end. Bytes that are left over are refused."""
    function = _DECODERS[cls, version]
    buf = data if type(data) is memoryview else memoryview(data)
    size = len(buf)
    try:
        message: M
        message, end = function(buf, pos, size)
    except _DECODE_FAILURES as failure:
        raise _decode_error(cls, version, failure, size) from None
    if end != size:
        raise DecodeError(f"{cls.__name__} v{version}: {size - end} bytes left over after position {end}")
    return message


def decode_from(cls: type[M], version: int, data: Buffer, pos: int = 0) -> tuple[M, int]:
    """The message that starts at `pos`, and the position after it."""
    function = _DECODERS[cls, version]
    buf = data if type(data) is memoryview else memoryview(data)
    try:
        decoded: tuple[M, int] = function(buf, pos, len(buf))
        return decoded
    except _DECODE_FAILURES as failure:
        raise _decode_error(cls, version, failure, len(buf)) from None


def encode(message: Message, version: int) -> list[Buffer]:
    """Segments to be written one after the other; record batches are segments of their own, never copied."""
    out: list[Buffer] = []
    segments: list[Buffer] = []
    try:
        _ENCODERS[type(message), version](message, out, segments)
        if out:
            segments.append(b"".join(out))
    except _ENCODE_FAILURES as failure:
        raise _encode_error(message, version, failure) from None
    return segments


def dumps(message: Message, version: int) -> bytes:
    """The message as one bytes object."""
    return b"".join(encode(message, version))


def compiled_source(cls: type[Message], version: int, direction: Literal["decode", "encode"]) -> str:
    """The Python that runs for this message and version, for reading and debugging."""
    return (compile_decoder if direction == "decode" else compile_encoder)(cls, version)[1]


def _decode_error(cls: type[Message], version: int, failure: Exception, size: int) -> DecodeError:
    path, pos = locate(failure.__traceback__)
    if isinstance(failure, Malformed):
        reason = str(failure)
    elif isinstance(failure, UnicodeDecodeError):
        reason = f"text is not UTF-8 ({failure.reason})"
    else:
        reason = "the data ends inside this field"
    return DecodeError(f"{_where(cls, version, path)} at position {pos} of {size}: {reason}")


def _encode_error(message: Message, version: int, failure: Exception) -> EncodeError:
    path, _ = locate(failure.__traceback__)
    return EncodeError(f"{_where(type(message), version, path)}: {_reason(failure, failure.__traceback__)}")


def _reason(failure: Exception, trace: TracebackType | None) -> str:
    if isinstance(failure, AttributeError) and failure.obj is None:
        return "None, which this version cannot say"
    return str(failure)


def _where(cls: type[Message], version: int, path: str) -> str:
    return f"{cls.__name__} v{version}{f', field {path}' if path else ''}"
