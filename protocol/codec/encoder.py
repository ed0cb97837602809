"""Compiles the straight-line encoder of one message in one version.

Small values go to `out`; record batches go to `segments` as they are, so that a Fetch answer never copies
them. Adjacent fields of fixed size are packed by one `struct` call, with a pad byte for an empty tag section.
A value in a field that the version lacks is an error unless Kafka marks the field ignorable. Tagged fields at
their default are left out, the others go out in ascending order (KIP-482).
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from protocol.codec import wire
from protocol.codec.layout import FIXED, Shape, is_compact, is_flexible, is_nullable, shape_of
from protocol.codec.schema import EMPTY, Encoded, Field, Message, Struct
from protocol.codec.source import Source
from protocol.types import ZERO_UUID, Buffer


def compile_encoder(message: type[Message], version: int) -> tuple[Callable[..., Any], str]:
    """(function(instance, out, segments), its source text). What `out` still holds follows the segments."""
    if issubclass(message, Encoded):
        return _as_is, ""
    writer = _EncoderWriter(message, version)
    return writer.source.build("encode"), writer.source.text


def _as_is(message: Encoded, out: list[Buffer], segments: list[Buffer]) -> None:
    segments += message.segments


def not_in_version(value: object, version: int) -> wire.Malformed:
    return wire.Malformed(f"version {version} does not have this field, so {value!r} would be lost")


def not_nullable() -> wire.Malformed:
    return wire.Malformed("None, which this version cannot say")


def bad_uuid(value: Any) -> wire.Malformed:
    return wire.Malformed(f"an id has 16 bytes, not {len(value)}")


class _EncoderWriter:
    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = is_flexible(message, version)
        self.source = source = Source(f"encode {message.__name__} v{version}")
        source.constants |= {
            "U": wire.UVARINT_1,
            "uvarint": wire.uvarint,
            "string_length": wire.string_length,
            "layout": wire.layout,
            "record_segments": wire.record_segments,
            "join": b"".join,
            "Malformed": wire.Malformed,
            "not_in_version": not_in_version,
            "not_nullable": not_nullable,
            "bad_uuid": bad_uuid,
            "ZERO_UUID": ZERO_UUID,
        }
        self.level = 0
        self.run: list[tuple[str, str, str]] = []
        """Values of fixed size that wait to be packed: expression ("": a zero), layout code, field path."""
        self.tag_functions: list[tuple[str, Shape]] = []
        with source.block("def encode(o0, out, segments):"):
            self.struct(message, "o0")
            source.line("return out")
        while self.tag_functions:
            self.tag_function(*self.tag_functions.pop())

    def struct(self, struct: type[Struct], var: str) -> None:
        shape = shape_of(struct, self.version, self.flexible)
        for field in shape.absent:
            if not field.ignorable:
                with self.source.at("." + field.name):
                    value = f"{var}.{field.name}"
                    self.source.line(
                        f"if {self.is_set(field, value)}: raise not_in_version({value}, {self.version})"
                    )
        for field in shape.plain:
            self.field(field, f"{var}.{field.name}")
        if shape.flexible:
            self.tags(shape, var)
        self.flush()

    def is_set(self, field: Field, value: str) -> str:
        """Expression: the value differs from the default."""
        if field.default is None or (field.kind == "records" and field.default is EMPTY):
            return f"{value} is not None"
        if field.kind.startswith("[]"):
            return f"({value} is None or len({value}))"
        if field.kind == "struct":
            assert field.of is not None
            default = self.source.constant("default", field.of())
            return f"({value} is not None and {value} != {default})"
        if field.default is not EMPTY:
            return f"{value} != {field.default!r}"
        return f"{value} != ZERO_UUID" if field.kind == "uuid" else f"({value} or {value} is None)"

    def flush(self) -> None:
        """Packs the waiting values with one call."""
        if not self.run:
            return
        layout = Layout(">" + "".join(code for _, code, _ in self.run))
        values = ", ".join(value for value, _, _ in self.run if value)
        with self.source.at_path(self.run[0][2]):
            if values:
                self.source.line(f"out.append({self.source.constant('pack', layout.pack)}({values}))")
            else:
                self.source.line(f"out.append({bytes(layout.size)!r})")
        self.run.clear()

    def field(self, field: Field, value: str) -> None:
        if field.kind == "uuid":
            with self.source.at("." + field.name):
                self.source.line(f"if len({value}) != 16: raise bad_uuid({value})")
        if field.kind in FIXED:
            self.run.append((value, FIXED[field.kind][0], f"{self.source.path}.{field.name}"))
            return
        with self.source.at("." + field.name if field.name else ""):
            if field.kind in ("string", "bytes"):
                self.variable(field, value)
            elif field.kind == "records":
                self.records(field, value)
            elif field.kind == "struct":
                self.struct_field(field, value)
            else:
                self.array(field, value)

    def variable(self, field: Field, value: str) -> None:
        compact, nullable = is_compact(field, self.flexible), is_nullable(field, self.version)
        encode, code, long = (".encode()", "h", "string_length(n)")
        if field.kind == "bytes":
            encode, code, long = ("", "i", "uvarint(n + 1)")
        line = self.source.line
        if not nullable:
            line(f"b = {value}{encode}")
            if compact:
                self.flush()
                line("n = len(b)")
                line(f"out.append(U[n + 1] if n < 127 else {long})")
            else:
                self.run.append(("len(b)", code, self.source.path))
                self.flush()
            line("out.append(b)")
            return
        line(f"b = {value}")
        if compact:
            self.flush()
            line("if b is None: out.append(U[0])")
            with self.source.block("else:"):
                if encode:
                    line("b = b.encode()")
                line("n = len(b)")
                line(f"out.append(U[n + 1] if n < 127 else {long})")
                line("out.append(b)")
            return
        line('if b is None: n = -1; b = b""')
        line(f"else: b = b{encode}; n = len(b)")
        self.run.append(("n", code, self.source.path))
        self.flush()
        line("out.append(b)")

    def records(self, field: Field, value: str) -> None:
        compact, line = is_compact(field, self.flexible), self.source.line
        self.flush()
        size = "U[n + 1] if n < 127 else uvarint(n + 1)"
        if not compact:
            size = f"{self.source.constant('pack', Layout('>i').pack)}(n)"
        null = "U[0]" if compact else repr(b"\xff\xff\xff\xff")
        line(f"r = {value}")
        nullable = is_nullable(field, self.version)
        line(f"if r is None: {f'out.append({null})' if nullable else 'raise not_nullable()'}")
        with self.source.block("else:"):
            line("if type(r) is bytes: n = len(r); r = (r,)")
            line("elif type(r) is memoryview and r.format == 'B': n = len(r); r = (r,)")
            line("else: n, r = record_segments(r)")
            line(f"out.append({size})")
            with self.source.block("if n:"):
                line("segments.append(join(out))")
                line("segments.extend(r)")
                line("out.clear()")

    def struct_field(self, field: Field, value: str) -> None:
        assert field.of is not None
        self.level += 1
        var = f"o{self.level}"
        if is_nullable(field, self.version):
            self.flush()
            self.source.line(f"{var} = {value}")
            self.source.line(f"if {var} is None: out.append({bytes((255,))!r})")
            with self.source.block("else:"):
                self.source.line("out.append(U[1])")
                self.struct(field.of, var)
        else:
            self.source.line(f"{var} = {value}")
            self.struct(field.of, var)
        self.level -= 1

    def array(self, field: Field, value: str) -> None:
        compact, nullable, line = (
            is_compact(field, self.flexible),
            is_nullable(field, self.version),
            self.source.line,
        )
        self.level += 1
        values = f"a{self.level}"
        line(f"{values} = {value}")
        if nullable:
            self.flush()
            null = "U[0]" if compact else repr(b"\xff\xff\xff\xff")
            line(f"if {values} is None: out.append({null})")
            with self.source.block("else:"):
                self.items(field, values, compact)
        else:
            self.items(field, values, compact)
        self.level -= 1

    def items(self, field: Field, values: str, compact: bool) -> None:
        inner, line = field.kind.removeprefix("[]"), self.source.line
        if compact:
            self.flush()
            line(f"n = len({values})")
            line("out.append(U[n + 1] if n < 127 else uvarint(n + 1))")
        else:
            self.run.append((f"len({values})", "i", self.source.path))
            self.flush()
        if inner == "uuid":
            line(f"for b in {values}:")
            line("    if len(b) != 16: raise bad_uuid(b)")
            line(f"out.extend({values})")
        elif inner in FIXED:
            line(f"if {values}: out.append(layout({FIXED[inner][0]!r}, len({values})).pack(*{values}))")
        else:
            var = f"o{self.level}"
            with self.source.block(f"for {var} in {values}:"), self.source.at("[]"):
                if inner == "struct":
                    assert field.of is not None
                    self.struct(field.of, var)
                else:
                    self.field(Field("", inner, field.versions), var)

    def tags(self, shape: Shape, var: str) -> None:
        if not shape.tagged:
            self.run.append(("", "x", self.source.path))
            return
        self.flush()
        name = f"tags_{len(self.tag_functions)}_{self.level}_{shape.tagged[0].name}"
        self.tag_functions.append((name, shape))
        is_set = " or ".join(self.is_set(field, f"{var}.{field.name}") for field in shape.tagged)
        self.source.line(f"if {is_set}: {name}(out, {var})")
        self.source.line("else: out.append(U[0])")

    def tag_function(self, name: str, shape: Shape) -> None:
        source, self.level = self.source, 0
        with source.block(f"def {name}(target, o):"):
            source.line("found = []")
            for field in shape.tagged:
                with source.block(f"if {self.is_set(field, f'o.{field.name}')}:"):
                    source.line("out = []")
                    self.field(field, f"o.{field.name}")
                    self.flush()
                    source.line("b = join(out)")
                    source.line(f"found.append(uvarint({field.tag}) + uvarint(len(b)) + b)")
            source.line("target.append(uvarint(len(found)))")
            source.line("target.extend(found)")
