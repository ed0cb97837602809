"""The users' SCRAM credentials: kept in ZooKeeper, known here, so that authenticating never waits.

Reads /config/users at start and follows /config/changes after it; changes by compare-and-set, so that quotas
in the same node stay. What cannot be read is said aloud and is no credential. (Kafka: `ScramCredentials`
over `ZkAdminManager`, KIP-554.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from broker.security.credential_text import (
    DEFAULT_USER,
    CredentialFormatError,
    credential_from_text,
    credential_to_text,
    node_of_user,
    user_of_node,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.scram import MECHANISMS, Credential

_log = logging.getLogger("isthmus.broker")
_USERS = "users"

Edit = Callable[[dict[str, str]], dict[str, str]]
Changes = Mapping[str, Credential | None]
"""By mechanism: the new credential, or None where the old one is to go."""


class Entities(Protocol):
    """What is needed of `broker.control.config_store.ConfigStore`."""

    async def entity_names(self, kind: str) -> list[str]: ...

    async def entity(self, kind: str, name: str) -> dict[str, str]: ...

    async def change_entity(self, kind: str, name: str, edit: Edit) -> None: ...

    def on_entity_change(self, kind: str, follow: Callable[[str], Awaitable[None]]) -> None: ...


class CredentialStore:
    """Start it with `start`. Without that it knows nobody."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._users: dict[str, dict[str, Credential]] = {}

    async def start(self) -> None:
        self._entities.on_entity_change(_USERS, self._load)
        for node in await self._entities.entity_names(_USERS):
            await self._load(node)

    def find(self, mechanism: str, user: str) -> Credential | None:
        return self._users.get(user, {}).get(mechanism)

    async def stored(self, user: str) -> dict[str, Credential]:
        """A user's credentials by mechanism, as they are stored now."""
        return _credentials(user, await self._entities.entity(_USERS, node_of_user(user)))

    async def all_stored(self) -> dict[str, dict[str, Credential]]:
        users = (user_of_node(node) for node in await self._entities.entity_names(_USERS) if _is_user(node))
        found = {user: await self.stored(user) for user in users}
        return {user: credentials for user, credentials in found.items() if credentials}

    async def change(self, user: str, changes: Changes) -> None:
        """All of them or none. Raises KafkaError RESOURCE_NOT_FOUND where what is to go is not there."""

        def edit(current: dict[str, str]) -> dict[str, str]:
            for mechanism, credential in changes.items():
                if credential is not None:
                    current[mechanism] = credential_to_text(credential)
                elif current.pop(mechanism, None) is None:
                    raise KafkaError(
                        ErrorCode.RESOURCE_NOT_FOUND,
                        "Attempt to delete a user credential that does not exist",
                    )
            return current

        await self._entities.change_entity(_USERS, node_of_user(user), edit)
        await self._load(node_of_user(user))

    async def _load(self, node: str) -> None:
        if not _is_user(node):
            return
        user = user_of_node(node)
        credentials = _credentials(user, await self._entities.entity(_USERS, node))
        if credentials:
            self._users[user] = credentials
        else:
            self._users.pop(user, None)


def _is_user(node: str) -> bool:
    """Whether a changed entity is a user: below users are also the quotas of their clients."""
    return node != DEFAULT_USER and "/" not in node


def _credentials(user: str, settings: Mapping[str, str]) -> dict[str, Credential]:
    found = {}
    for mechanism in MECHANISMS:
        if mechanism in settings:
            try:
                found[mechanism] = credential_from_text(settings[mechanism])
            except CredentialFormatError as error:
                _log.error("the %s credential of user %s has no effect: %s", mechanism, user, error)
    return found
