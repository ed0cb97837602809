"""Requests and responses as they travel: headers around messages, and the size in front.

A frame here is what follows the 4-byte size. Header versions follow from the API and its version (KIP-482):
a flexible request has header v2, a flexible response header v1, and an ApiVersions response always header v0,
so that a client can read it before it knows anything (KIP-511). The client id never becomes compact.
"""

from struct import Struct as Layout
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple, TypeVar

from protocol.api import APIS, ApiKey
from protocol.codec import decode, encode
from protocol.codec.schema import Request, Response
from protocol.codec.wire import Malformed, skip_tags
from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.types import Buffer

R = TypeVar("R", bound=Response)

_REQUEST = Layout(">hhih")
# Looking up a member of an enum takes longer than all else that is done with a key.
_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_SIZED_REQUEST = Layout(">ihhih")
_CORRELATION = Layout(">i")
_SIZED_RESPONSE = Layout(">ii")
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class RequestHead(NamedTuple):
    """Header v1 or v2 of a request; `client_id` is None when the client sends null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHead, int]:
    """The header of a request, and the position of its body.

    A version that the API does not have is no error here: ApiVersions must answer it. An unknown API is one.
    """
    buf = frame if type(frame) is memoryview else memoryview(frame)
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(buf)
        api = APIS.get(key)
        if api is None:
            raise Malformed(f"unknown API key {key} (version {version})")
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            raise Malformed("ControlledShutdown v0 uses a header without client id, which is not supported")
        pos = _REQUEST.size
        client_id = None
        if size != -1:
            end = pos + size
            if end > len(buf) or size < 0:
                raise Malformed(f"client id of {size} bytes, {len(buf) - pos} are left")
            client_id = buf[pos:end].tobytes().decode()
            pos = end
        if api.flexible_from is not None and version >= api.flexible_from:
            pos = pos + 1 if not buf[pos] else skip_tags(buf, pos, len(buf))
    except Malformed as failure:
        raise DecodeError(f"request header: {failure}") from None
    except (StructError, IndexError):
        raise DecodeError(f"request header: the frame ends inside it, after {len(buf)} bytes") from None
    except UnicodeDecodeError:
        raise DecodeError("request header: the client id is not UTF-8") from None
    return RequestHead(key, version, correlation_id, client_id), pos


def encode_request(
    message: Request[Any], version: int, correlation_id: int, client_id: str | None = None
) -> list[Buffer]:
    """A request with header and size, as segments."""
    return with_header(type(message), version, correlation_id, client_id, encode(message, version))


def with_header(
    request: type[Request[Any]],
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: list[Buffer],
) -> list[Buffer]:
    """As `encode_request`, for a request of this class whose `body` is encoded already."""
    api = APIS[request.API_KEY]
    client = b"" if client_id is None else client_id.encode()
    tail = client + b"\0" if api.is_flexible(version) else client
    size = _REQUEST.size + len(tail) + sum(map(len, body))
    try:
        head = _SIZED_REQUEST.pack(
            size, api.key, version, correlation_id, -1 if client_id is None else len(client)
        )
    except StructError as failure:
        raise EncodeError(f"{api.name} request header: {failure}") from None
    return _in_front(head + tail, body)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """A response with header and size, as segments."""
    api = APIS[message.API_KEY]
    segments = encode(message, version)
    tail = b"\0" if _has_response_tags(message.API_KEY, version) else b""
    size = 4 + len(tail) + sum(map(len, segments))
    try:
        head = _SIZED_RESPONSE.pack(size, correlation_id)
    except StructError as failure:
        raise EncodeError(f"{api.name} response header: {failure}") from None
    return _in_front(head + tail, segments)


def correlation_id_of(frame: Buffer) -> int:
    """The correlation id of a response, before anyone knows which request it answers."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
        return correlation_id
    except StructError:
        raise DecodeError(f"response of {len(frame)} bytes, a header has at least 4") from None


def decode_response(frame: Buffer, request: type[Request[R]], version: int) -> tuple[int, R]:
    """(correlation id, message) of the answer to a request of this class and version.

    A broker that does not know the version of an ApiVersions request answers error 35 in version 0 (KIP-511).
    """
    buf = frame if type(frame) is memoryview else memoryview(frame)
    correlation_id, pos = correlation_id_of(buf), 4
    if _has_response_tags(request.API_KEY, version):
        try:
            pos = skip_tags(buf, pos, len(buf))
        except (Malformed, IndexError) as failure:
            raise DecodeError(f"response header of {request.__name__} v{version}: {failure}") from None
    if request.API_KEY == ApiKey.API_VERSIONS and bytes(buf[pos : pos + 2]) == _UNSUPPORTED_VERSION:
        version = 0
    answer: type[Any] = APIS[request.API_KEY].response
    return correlation_id, decode(answer, version, buf, pos)


def _has_response_tags(key: int, version: int) -> bool:
    return key != _API_VERSIONS and APIS[key].is_flexible(version)


def _in_front(head: bytes, segments: list[Buffer]) -> list[Buffer]:
    """Joins the header to the first segment, which is small: records never come first."""
    segments[0:1] = [head + segments[0]] if segments else [head]
    return segments
