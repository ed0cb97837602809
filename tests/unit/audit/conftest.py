"""One Spark session for all tests of the package; it takes seconds to start."""

from collections.abc import Iterator
from typing import Any

import pytest

from audit.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session
