"""The file that tells clients where to connect: the "externalised client configuration" of DR runbooks.

A runbook moves clients by replacing this file; clients watch it (`read_client_config`) or are restarted by
whoever runs them. Written by rename, so that nobody reads half of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClientConfig:
    cluster: str
    bootstrap_servers: str
    topics: tuple[str, ...]
    generation: int
    """Grows with every change, so that a watcher knows a new one."""


def write_client_config(path: Path, cluster: str, bootstrap_servers: str, topics: list[str]) -> ClientConfig:
    try:
        generation = read_client_config(path).generation + 1
    except FileNotFoundError:
        generation = 1
    config = ClientConfig(cluster, bootstrap_servers, tuple(topics), generation)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(asdict(config), indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, path)
    return config


def read_client_config(path: Path) -> ClientConfig:
    """Raises FileNotFoundError before the first one was written."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return ClientConfig(
        content["cluster"], content["bootstrap_servers"], tuple(content["topics"]), content["generation"]
    )
