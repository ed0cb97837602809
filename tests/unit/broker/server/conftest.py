"""A broker with a client for each test of a handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.served import Served, served


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data") as running:
        yield running
