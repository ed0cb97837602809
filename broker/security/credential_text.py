"""SCRAM credentials and users' names as Kafka writes them in ZooKeeper: /config/users/<user>, a setting for
each mechanism: `SCRAM-SHA-256` = `salt=…,stored_key=…,server_key=…,iterations=…`.

Pure. (Kafka: `ScramCredentialUtils`, `Sanitizer`.)
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote, unquote_plus

from protocol.scram import Credential

DEFAULT_USER = "<default>"
"""Name of the node with the quotas of users that have none of their own; it is nobody."""


class CredentialFormatError(ValueError):
    """The text is not a credential."""


def credential_to_text(credential: Credential) -> str:
    return (
        f"salt={_text64(credential.salt)},stored_key={_text64(credential.stored_key)},"
        f"server_key={_text64(credential.server_key)},iterations={credential.iterations}"
    )


def credential_from_text(text: str) -> Credential:
    """Raises CredentialFormatError, without the text."""
    try:
        parts = dict(part.split("=", 1) for part in text.split(","))
        if set(parts) != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError(f"it has {', '.join(sorted(parts))}")
        salt, stored_key, server_key = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return Credential(salt, stored_key, server_key, int(parts["iterations"]))
    except (ValueError, binascii.Error):
        raise CredentialFormatError("not salt=…,stored_key=…,server_key=…,iterations=…") from None


def node_of_user(user: str) -> str:
    """Name of the user's node: percent-encoded where Java's form encoding encodes, blanks as %20."""
    return quote(user, safe="-_.").replace("~", "%7E")  # Java encodes this one too


def user_of_node(node: str) -> str:
    return unquote_plus(node)


def _text64(value: bytes) -> str:
    return base64.b64encode(value).decode()
