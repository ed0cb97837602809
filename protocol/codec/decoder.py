"""Compiles the straight-line decoder of one message in one version.

All structs of the message are inlined into one function; adjacent fields of fixed size (and the lengths that
follow them, in versions before KIP-482) are read by one `struct` call. Tagged fields are rare, so each struct
that has some gets a function of its own, called only when the count is not zero. Rules: a length is compared
with the bytes left before it is used; varints end after five bytes; unknown tags are skipped; records stay
slices of the input.
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from protocol.codec import wire
from protocol.codec.layout import (
    FIXED,
    Shape,
    is_compact,
    is_flexible,
    is_nullable,
    item_min_size,
    shape_of,
)
from protocol.codec.schema import EMPTY, Field, Message, Struct
from protocol.codec.source import Source
from protocol.types import ZERO_UUID

Store = Callable[[str], str]
"""Makes the statement that keeps a decoded value: an assignment or an append."""


def compile_decoder(message: type[Message], version: int) -> tuple[Callable[..., Any], str]:
    """(function(buf, pos, end) -> (instance, position after it), its source text)."""
    writer = _DecoderWriter(message, version)
    return writer.source.build("decode"), writer.source.text


def bad_length(length: int, left: int) -> wire.Malformed:
    if length == -1:
        return wire.Malformed("null, which this field cannot be")
    if length < 0:
        return wire.Malformed(f"length {length}")
    return wire.Malformed(f"length {length}, but only {left} bytes are left")


def bad_count(count: int, left: int, size: int) -> wire.Malformed:
    if count < 0:
        return bad_length(count, left)
    return wire.Malformed(f"{count} items of at least {size} bytes, but only {left} bytes are left")


def too_many() -> wire.Malformed:
    return wire.Malformed(f"more than {wire.MAX_ITEMS} array items in one message")


def bad_tag(tag: int, size: int) -> wire.Malformed:
    return wire.Malformed(f"tagged field {tag} does not fill its {size} bytes")


class _DecoderWriter:
    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = is_flexible(message, version)
        self.source = source = Source(f"decode {message.__name__} v{version}")
        source.constants |= {
            "new": object.__new__,
            "read_uvarint": wire.read_uvarint,
            "read_string_length": wire.read_string_length,
            "skip_tags": wire.skip_tags,
            "layout": wire.layout,
            "Malformed": wire.Malformed,
            "bad_length": bad_length,
            "bad_count": bad_count,
            "bad_tag": bad_tag,
            "too_many": too_many,
            "ZERO_UUID": ZERO_UUID,
        }
        self.level = 0
        self.run: list[tuple[str, str, str]] = []
        """Reads of fixed size that wait to be folded: target, layout code, field path."""
        self.tag_functions: list[tuple[str, Shape]] = []
        with source.block("def decode(buf, pos, end):"):
            source.line(f"room = {wire.max_items(message)}")
            self.struct(message, "o0")
            source.line("return o0, pos")
        while self.tag_functions:
            self.tag_function(*self.tag_functions.pop())

    def struct(self, struct: type[Struct], var: str) -> None:
        shape = shape_of(struct, self.version, self.flexible)
        self.source.line(f"{var} = new({self.source.constant(struct.__name__, struct)})")
        for field in (*shape.absent, *shape.tagged):
            self.source.line(f"{var}.{field.name} = {self.default(field)}")
        for field in shape.plain:
            self.field(field, var)
        if shape.flexible:
            self.tags(shape, var)
        self.flush()

    def default(self, field: Field) -> str:
        if field.default is not EMPTY:
            return repr(field.default)
        if field.kind.startswith("[]"):
            return "[]"
        if field.kind == "struct":
            return "None" if field.tag >= 0 else f"{self.source.constant('Struct', field.of)}()"
        zeros = {"bool": "False", "float64": "0.0", "string": '""', "bytes": 'b""', "records": "None"}
        return {**zeros, "uuid": "ZERO_UUID"}.get(field.kind, "0")

    def flush(self) -> None:
        """Reads the waiting fields of fixed size with one call."""
        if not self.run:
            return
        layout = Layout(">" + "".join(code for _, code, _ in self.run))
        unpack = self.source.constant("unpack", layout.unpack_from)
        targets = ", ".join(target for target, _, _ in self.run)
        with self.source.at_path(self.run[0][2]):
            if layout.format == ">B":
                self.source.line(f"{targets} = buf[pos]")
                self.source.line("pos += 1")
                self.run.clear()
                return
            self.source.line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, pos)")
            self.source.line(f"pos += {layout.size}")
        self.run.clear()

    def field(self, field: Field, var: str) -> None:
        target = f"{var}.{field.name}"
        if field.kind in FIXED:
            self.run.append((target, FIXED[field.kind][0], self.path_of(field)))
            return
        if field.kind in ("string", "bytes", "records"):
            self.variable(field, lambda value: f"{target} = {value}")
        elif field.kind == "struct":
            with self.source.at("." + field.name):
                self.struct_field(field, target)
        else:
            self.array(field, target)

    def path_of(self, field: Field) -> str:
        return f"{self.source.path}.{field.name}" if field.name else self.source.path

    def length(self, field: Field, code: str, read_long: str) -> None:
        """Reads a length into `n`: -1 is null."""
        if not is_compact(field, self.flexible):
            self.run.append(("n", code, self.path_of(field)))
            self.flush()
            return
        self.run.append(("n", "B", self.path_of(field)))
        self.flush()
        with self.source.at("." + field.name if field.name else ""):
            self.source.line(f"if n > 127: n, pos = {read_long}(buf, pos - 1)")
            self.source.line("n -= 1")

    def variable(self, field: Field, store: Store) -> None:
        """A string, bytes or records."""
        is_string = field.kind == "string"
        code, read_long = ("h", "read_string_length") if is_string else ("i", "read_uvarint")
        self.length(field, code, read_long)
        value = {"string": ".tobytes().decode()", "bytes": ".tobytes()", "records": ""}[field.kind]

        def read() -> None:
            self.source.line("e = pos + n")
            self.source.line("if e > end or e < pos: raise bad_length(n, end - pos)")
            self.source.line(store(f"buf[pos:e]{value}"))
            self.source.line("pos = e")

        with self.source.at("." + field.name if field.name else ""):
            self.unless_null(field, store, read)

    def unless_null(self, field: Field, store: Store, read: Callable[[], None]) -> None:
        if not is_nullable(field, self.version):
            read()
            return
        self.source.line(f"if n == -1: {store('None')}")
        with self.source.block("else:"):
            read()

    def struct_field(self, field: Field, target: str) -> None:
        assert field.of is not None
        self.level += 1
        var = f"o{self.level}"
        if not is_nullable(field, self.version):
            self.struct(field.of, var)
            self.source.line(f"{target} = {var}")
        else:
            self.run.append(("n", "B", self.source.path))
            self.flush()
            self.source.line(f"if n == 255: {target} = None")
            self.source.line('elif n != 1: raise Malformed(f"presence byte {n}, must be 1 or 255")')
            with self.source.block("else:"):
                self.struct(field.of, var)
                self.source.line(f"{target} = {var}")
        self.level -= 1

    def array(self, field: Field, target: str) -> None:
        self.length(field, "i", "read_uvarint")
        with self.source.at("." + field.name):
            self.unless_null(field, lambda value: f"{target} = {value}", lambda: self.items(field, target))

    def items(self, field: Field, target: str) -> None:
        source, inner = self.source, field.kind.removeprefix("[]")
        size = item_min_size(field, self.version, self.flexible)
        source.line(f"if n > (end - pos) // {size} or n < 0: raise bad_count(n, end - pos, {size})")
        source.line(f"room -= n{' // 8' if inner in FIXED else ''}")  # numbers take an eighth of an object
        source.line("if room < 0: raise too_many()")
        if inner == "uuid":
            source.line(f"{target} = [buf[p:p + 16].tobytes() for p in range(pos, pos + 16 * n, 16)]")
            source.line("pos += 16 * n")
        elif inner in FIXED:
            source.line(f"{target} = list(layout({FIXED[inner][0]!r}, n).unpack_from(buf, pos))")
            source.line(f"pos += {size} * n")
        else:
            self.loop(field, inner, target)

    def loop(self, field: Field, inner: str, target: str) -> None:
        self.level += 1
        index, values, var = f"i{self.level}", f"a{self.level}", f"o{self.level}"
        self.source.line(f"{target} = {values} = []")
        with self.source.block(f"for {index} in range(n):"), self.source.at(f"[{{{index}}}]"):
            if inner == "struct":
                assert field.of is not None
                self.struct(field.of, var)
                self.source.line(f"{values}.append({var})")
            else:
                self.variable(Field("", inner, field.versions), lambda value: f"{values}.append({value})")
        self.level -= 1

    def tags(self, shape: Shape, var: str) -> None:
        self.run.append(("n", "B", self.source.path))
        self.flush()
        if not shape.tagged:
            self.source.line("if n: pos = skip_tags(buf, pos - 1, end)")
        else:
            name = f"tags_{len(self.tag_functions)}_{self.level}_{shape.tagged[0].name}"
            self.tag_functions.append((name, shape))
            self.source.line(f"if n: pos = {name}({var}, buf, pos - 1, end)")

    def tag_function(self, name: str, shape: Shape) -> None:
        source = self.source
        with source.block(f"def {name}(o, buf, pos, limit):"):
            source.line(f"room = {wire.MAX_ITEMS}")
            source.line("count, pos = read_uvarint(buf, pos)")
            with source.block("for _ in range(count):"):
                source.line("tag, pos = read_uvarint(buf, pos)")
                source.line("size, pos = read_uvarint(buf, pos)")
                source.line("end = pos + size")
                source.line("if end > limit: raise bad_length(size, limit - pos)")
                for number, field in enumerate(shape.tagged):
                    with source.block(f"{'elif' if number else 'if'} tag == {field.tag}:"):
                        self.field(field, "o")
                        self.flush()
                source.line("else: pos = end")
                source.line("if pos != end: raise bad_tag(tag, size)")
            source.line("return pos")
