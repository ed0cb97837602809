"""What members of a link's group can read of each other's settings."""

from typing import Any

from replicator.settings import LinkSettings
from replicator.workers.sharing import fingerprint


def link(password: str, **others: Any) -> LinkSettings:
    end = {"alias": "east", "bootstrap": "e:9092", "properties": {"sasl.password": password}}
    return LinkSettings.model_validate(
        {"source": end, "target": end | {"alias": "west", "bootstrap": "w:9092"}, **others}
    )


def test_the_fingerprint_knows_settings_but_no_password() -> None:
    assert fingerprint(link("secret")) == fingerprint(link("another"))
    assert fingerprint(link("secret")) != fingerprint(link("secret", topics=["orders"]))
