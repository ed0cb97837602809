"""Tokens for Amazon MSK's IAM: a signed address, made by Amazon's own package (`pip install 'isthmus[msk]'`).

MSK takes them with OAUTHBEARER; its Java clients' own mechanism AWS_MSK_IAM becomes that here. Owns which AWS
identity signs (options of Amazon's `IAMLoginModule`) and the region. No message repeats a credential.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from protocol.client.errors import TokenError
from protocol.client.oauth.bearer import Token

MECHANISM: Final = "AWS_MSK_IAM"
_PACKAGE: Final = "aws_msk_iam_sasl_signer"
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", re.IGNORECASE)
_SESSION: Final = "isthmus"
_TO_DO: Final = "look at the AWS credentials of this process, and at awsProfileName and awsRoleArn"


def installed() -> bool:
    return find_spec(_PACKAGE) is not None


def region_of(host: str) -> str | None:
    """As a broker's name says it, else as AWS's own tools are told."""
    found = _REGION.search(host)
    if found is not None:
        return found[1].lower()
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class MskToken:
    """A source; `options` are the login module's."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, host: str) -> Token:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            session = self._session()
            region = region_of(host) or session.region_name
            if not region:
                raise TokenError(f"no token for MSK: the region of {host} is not known", "set AWS_REGION")
            return _signed(region, self._credentials(session, region))
        except (BotoCoreError, ClientError, ValueError) as error:
            raise TokenError(f"no token for MSK: {error}", _TO_DO) from None

    def _session(self) -> Any:
        import boto3

        return boto3.Session(profile_name=self.options.get("awsProfileName"))

    def _credentials(self, session: Any, region: str) -> Any:
        from botocore.credentials import Credentials

        role = self.options.get("awsRoleArn")
        if role is None:
            found = session.get_credentials()
            if found is None:
                raise ValueError("AWS credentials are not found")
            return found
        sts = session.client(
            "sts",
            region_name=self.options.get("awsStsRegion", region),
            aws_access_key_id=self.options.get("awsRoleAccessKeyId"),
            aws_secret_access_key=self.options.get("awsRoleSecretAccessKey"),
            aws_session_token=self.options.get("awsRoleSessionToken"),
        )
        wanted = {"RoleArn": role, "RoleSessionName": self.options.get("awsRoleSessionName", _SESSION)}
        if "awsRoleExternalId" in self.options:
            wanted["ExternalId"] = self.options["awsRoleExternalId"]
        taken = sts.assume_role(**wanted)["Credentials"]
        return Credentials(taken["AccessKeyId"], taken["SecretAccessKey"], taken["SessionToken"])


def _signed(region: str, credentials: Any) -> Token:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.credentials import CredentialProvider

    class Chosen(CredentialProvider):
        def load(self) -> Any:
            return credentials

    text, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Chosen())
    return Token(text, ends=ends_ms / 1000)
