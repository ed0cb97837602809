"""Messages to bytes and back, compiled per message and version at first use.

Public: `decode`, `decode_from`, `encode`, `dumps`, and the classes of `protocol.codec.schema`. Decoding takes
any bytes-like object, keeps record batches as slices of it and raises only `DecodeError`; encoding returns
segments to be written one after the other and raises only `EncodeError`.
"""

from protocol.codec.codec import compiled_source, decode, decode_from, dumps, encode

__all__ = ["compiled_source", "decode", "decode_from", "dumps", "encode"]
