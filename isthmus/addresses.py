"""A cluster that no file declares, as commands are told of it: an address, or an alias of a topology, and its
`client.properties`."""

from __future__ import annotations

from pathlib import Path

from isthmus.output import USAGE, fail
from isthmus.topologies import access_of


def told(
    address: str | None, config: Path | None, option: str, topology: Path | None
) -> tuple[str, dict[str, str]]:
    """Where it is and how to be let in. Ends with a usage error that names the option."""
    properties = _properties(config)
    where = address or properties.get("bootstrap.servers")
    if not where:
        fail(f"say {option} host:port, or give bootstrap.servers in its properties file", USAGE)
    access = access_of(where, topology)
    return access.bootstrap, {**access.properties, **properties}


def _properties(file: Path | None) -> dict[str, str]:
    from protocol.client.properties import client_security
    from protocol.properties_text import PropertiesError, as_mapping, read_properties_file

    if file is None:
        return {}
    try:
        found = as_mapping(read_properties_file(file))
        client_security(found)
    except (PropertiesError, ValueError) as error:
        fail(str(error) if str(file) in str(error) else f"{file}: {error}", USAGE)
    return found
