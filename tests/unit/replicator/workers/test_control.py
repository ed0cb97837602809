"""Settings changed while a link runs: what is wrong with them is said as of a file."""

import pytest

from replicator.settings import ClusterEnd, LinkSettings
from replicator.workers.control import changed

SETTINGS = LinkSettings(
    source=ClusterEnd(alias="east", bootstrap="localhost:9092"),
    target=ClusterEnd(alias="west", bootstrap="localhost:9093"),
)


@pytest.mark.parametrize(
    ("name", "value"), [("rate_limit", "abc"), ("rate_limit", "-1"), ("topics", "orders(")]
)
def test_a_wrong_value_is_named_without_the_words_of_the_library(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        changed(SETTINGS, {name: value})
    said = str(caught.value)
    assert value in said
    assert "pydantic" not in said
    assert "\n" not in said
