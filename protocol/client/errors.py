"""What can go wrong between a client and a broker, before there is an answer with a code in it.

Each error names the broker (`host:port`) and the API. Answers with an error code are
`protocol.errors.KafkaError`; bytes that make no sense are `DecodeError`.
"""

from __future__ import annotations

from protocol.errors import ProtocolError


class ClientError(ProtocolError):
    """Base of the errors of connections. Asking again may cure each of them, unless it says not.

    `to_do` is set by `doors`."""


class ConnectError(ClientError):
    """No connection could be made; nothing was sent."""


class TurnedAwayError(ConnectError):
    """Somebody took the connection and ended it before the first answer: TLS, a listener of another kind, or
    a broker that is just ending."""


class ConnectionLostError(ClientError):
    """The connection ended before the answer came. Whether the broker acted on the request is not known."""


class RequestTimeoutError(ClientError):
    """No answer in time. The connection is closed; whether the broker acted on the request is not known."""


class NotSupportedError(ClientError):
    """The broker and this client have no common version of the API. Asking again does not help."""


class WrongClusterError(ClientError):
    """The address leads to another cluster than before. Asking again does not help."""


class AuthenticationError(ClientError):
    """The broker refused the credentials. Asking again does not help."""


class TokenError(ConnectError):
    """There is no token to show to the broker (OAUTHBEARER), or it did not take one that was kept and is
    forgotten now. `curable`: whether asking again may help."""

    def __init__(self, what: str, to_do: str, *, curable: bool = True) -> None:
        super().__init__(what)
        self.to_do = to_do
        self.curable = curable

    def again(self, where: str = "") -> TokenError:
        """The same, for another caller; `where` stands in front."""
        return TokenError(where + self.what, self.to_do, curable=self.curable)
