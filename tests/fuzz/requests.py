"""Request frames of every key and version: decoding says yes or DecodeError, and yes means the same again.

Input: a frame without its length. Nothing else may be raised; what was decoded and is written again decodes
to the same message.
"""

from __future__ import annotations

from protocol.api import APIS
from protocol.codec import decode_from, dumps
from protocol.errors import DecodeError, EncodeError
from protocol.frames import decode_request_header


def one(data: bytes) -> None:
    try:
        header, position = decode_request_header(data)
        api = APIS.get(header.api_key)
        if api is None or not api.min <= header.api_version <= api.max:
            return
        message, _ = decode_from(api.request, header.api_version, memoryview(data), position)
    except DecodeError:
        return
    try:
        again = dumps(message, header.api_version)
    except EncodeError as error:
        raise AssertionError(f"{api.name} v{header.api_version} decodes and does not encode") from error
    second, end = decode_from(api.request, header.api_version, memoryview(again), 0)
    assert end == len(again)
    assert dumps(second, header.api_version) == again
