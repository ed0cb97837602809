"""Builds functions from generated source lines, and finds the field behind a failing line.

Each line remembers the path of the field it handles ("topics[{i1}].name"). Compiled code therefore keeps no
book while it runs: when it fails, the traceback's line number gives the path, and the frame's locals give the
array indexes and the position.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_MARK = "__field_paths__"


class Source:
    """Lines of Python, each with a field path, and the constants they use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._paths: list[str] = []
        self._path: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)
        self._paths.append(self.path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines indented under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @property
    def path(self) -> str:
        return "".join(self._path)

    @contextmanager
    def at_path(self, path: str) -> Iterator[None]:
        """Lines that belong to the field at this full path, wherever they are written."""
        kept, self._path = self._path, [path]
        yield
        self._path = kept

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Lines that belong to a field below the present one."""
        self._path.append(step)
        yield
        self._path.pop()

    def constant(self, prefix: str, value: Any) -> str:
        """A name for `value` in the compiled code; equal objects share one."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"{prefix}_{len(self.constants)}"
        self.constants[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def build(self, function: str) -> Callable[..., Any]:
        scope: dict[str, Any] = {**self.constants, _MARK: self._paths}
        exec(compile(self.text, f"<{self.name}>", "exec"), scope)  # noqa: S102  # our own lines, no input in them
        built: Callable[..., Any] = scope[function]
        return built


def locate(trace: TracebackType | None) -> tuple[str, int]:
    """(field path, position or -1) of the compiled lines in a traceback; nested functions add to the path."""
    path, pos = "", -1
    while trace is not None:
        frame = trace.tb_frame
        paths = frame.f_globals.get(_MARK)
        if paths is not None:
            path += paths[trace.tb_lineno - 1].format_map(frame.f_locals)
            pos = frame.f_locals.get("pos", pos)
        trace = trace.tb_next
    return path.lstrip("."), pos
