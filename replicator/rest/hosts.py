"""Who is asked, by the Host of a request: without a token only this machine itself.

Owns the check against DNS rebinding: a page of the web whose name is made to lead to 127.0.0.1 may ask as if
it were served from here, and would pause links from a browser on this machine. With a token it gets nowhere.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def refusal(host: str) -> str | None:
    """Why a request to that Host (name and port) is not answered; None: it is."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name is not None and is_local(name):
        return None
    who = f"Host {host} is not this machine" if host else "a request without Host"
    return f"{who}: ask 127.0.0.1 or localhost, or start with --rest-token-file"


def is_local(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
