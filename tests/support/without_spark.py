"""The environment of a Python that has what `pip install .` brings, and not the extra `spark`."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HIDING = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pyarrow", "pandas"):
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


def without_spark(folder: Path) -> dict[str, str]:
    """For a process that is started with it; `folder` gets a `sitecustomize`."""
    (folder / "sitecustomize.py").write_text(_HIDING)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
