"""Kafka's, Strimzi's and Amazon's client settings for tokens, and what is wrong with them."""

import base64
import json
import sys
import types

import pytest

from protocol.client.access import Access
from protocol.client.errors import TokenError
from protocol.client.oauth import msk
from protocol.client.oauth.keeping import Refreshing
from protocol.client.oauth.settings import MECHANISMS, PASSED_OVER, TAKEN
from protocol.client.properties import client_security, without_effect
from protocol.client.security import SaslBearer, SecuritySettingsError
from protocol.client.tls import TlsSettingsError
from tests.support.certificates import Authority
from tests.support.token_server import CLIENT, SECRET
from topology.client_settings import NAMES

KAFKA = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{KAFKA}OAuthBearerLoginModule required"
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
URL = "sasl.oauthbearer.token.endpoint.url"
ID, PASS = (f"sasl.oauthbearer.client.credentials.client.{name}" for name in ("id", "secret"))
HANDLER = "sasl.login.callback.handler.class"
BASE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def bearer(properties) -> SaslBearer:
    sasl = client_security(BASE | properties).sasl
    assert isinstance(sasl, SaslBearer)
    assert sasl.mechanism == "OAUTHBEARER"
    return sasl


def jaas(**options: str) -> str:
    named = (f'{name.replace("__", ".")}="{text}"' for name, text in options.items())
    return f"{MODULE} {' '.join(named)};"


def client_of(headers) -> str:
    return base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()


def posted(server, properties) -> tuple[dict[str, str], dict[str, str]]:
    server.answer = lambda: (200, "application/json", '{"access_token": "t"}')
    assert bearer(properties).tokens.ask("broker").text == "t"
    return server.asked[-1]


@pytest.mark.parametrize(
    "handler",
    [
        {},
        {HANDLER: f"{KAFKA}OAuthBearerLoginCallbackHandler"},
        {HANDLER: f"{KAFKA}secured.OAuthBearerLoginCallbackHandler"},
    ],
)
def test_client_credentials_of_the_login_module(server, handler):
    options = jaas(clientId=CLIENT, clientSecret=SECRET, scope="a b", extension_logicalCluster="lkc-1")
    sasl = bearer({URL: server.url, "sasl.jaas.config": options, **handler})
    assert sasl.extensions == (("logicalCluster", "lkc-1"),)
    assert sasl.tokens.ask("broker").subject == CLIENT
    assert server.asked[0][1] == {"grant_type": "client_credentials", "scope": "a b"}
    assert SECRET not in repr(sasl)


def test_settings_of_their_own_come_before_the_login_module(server):
    options = jaas(clientId="old", clientSecret="old", scope="old")
    given = {URL: server.url, ID: CLIENT, PASS: SECRET, "sasl.oauthbearer.scope": "new"}
    headers, form = posted(server, {**given, "sasl.jaas.config": options})
    assert (client_of(headers), form["scope"]) == (f"{CLIENT}:{SECRET}", "new")
    headers, form = posted(server, {URL: server.url, ID: CLIENT, PASS: SECRET})
    assert (client_of(headers), form) == (f"{CLIENT}:{SECRET}", {"grant_type": "client_credentials"})
    headers, _ = posted(server, {**given, "sasl.oauthbearer.header.urlencode": "true"})
    assert client_of(headers) == f"{CLIENT}:s3cr%3Dt+%26+more"


def test_assertions_are_read_from_their_file_each_time(server, tmp_path):
    """Strimzi's issue 11002: the assertion in a file ended, and the mirror stopped for good."""
    file = tmp_path / "assertion"
    server.answer = lambda: (200, "application/json", '{"access_token": "t"}')
    sasl = bearer({URL: server.url, ID: CLIENT, "sasl.oauthbearer.assertion.file": str(file)})
    with pytest.raises(TokenError, match="assertion: No such file"):
        sasl.tokens.ask("broker")
    for text in ("a.b.c", "d.e.f"):
        file.write_text(f"{text}\n")
        sasl.tokens.ask("broker")
        headers, form = server.asked[-1]
        assert "Authorization" not in headers
        assert form == {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": text,
        }
    retriever = {"sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}JwtBearerJwtRetriever"}
    given = {URL: server.url, "sasl.oauthbearer.assertion.file": str(file), "sasl.oauthbearer.scope": "s"}
    _, form = posted(server, {**given, **retriever})
    grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form == {"grant_type": grant, "assertion": "d.e.f", "scope": "s"}


def test_a_token_in_a_file(tmp_path):
    file = tmp_path / "a token"
    file.write_text("abc")
    for url in (file.as_uri(), file.as_uri().replace("file://", "file:")):
        assert bearer({URL: url}).tokens.ask("broker").text == "abc"


def test_strimzis_options(server, tmp_path):
    basis = {"oauth__token__endpoint__uri": server.url, "oauth__client__id": "a b"}
    secret = {"oauth__client__secret": "c&d"}
    more = {"oauth__scope": "s", "oauth__audience": "kafka", "oauth__sasl__extension__k": "v"}

    def asked(**options):
        return posted(server, {HANDLER: STRIMZI, "sasl.jaas.config": jaas(**basis, **options)})

    headers, form = asked(**secret, **more)
    assert client_of(headers) == "a+b:c%26d"
    assert form == {"grant_type": "client_credentials", "scope": "s", "audience": "kafka"}
    file = tmp_path / "assertion"
    file.write_text("x.y.z")
    _, form = asked(oauth__client__assertion__location=str(file))
    assert (form["client_assertion"], form["client_id"]) == ("x.y.z", "a b")
    headers, form = asked(oauth__refresh__token="r", **secret)
    assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "r")
    headers, form = asked(oauth__password__grant__username="ada", oauth__password__grant__password="p")
    assert (form["username"], form["password"], client_of(headers)) == ("ada", "p", "a+b:")
    fixed = bearer({"sasl.jaas.config": jaas(oauth__access__token="fixed", **more)})
    assert (fixed.tokens.ask("broker").text, fixed.extensions) == ("fixed", (("k", "v"),))
    file.write_text("in.a.file")
    kept = bearer({"sasl.jaas.config": jaas(oauth__access__token__location=str(file))})
    assert kept.tokens.ask("broker").text == "in.a.file"


def test_unsecured_tokens():
    options = jaas(
        unsecuredLoginStringClaim_sub="ada",
        unsecuredLoginNumberClaim_n="3",
        unsecuredLoginListClaim_scope="|a|b",
        unsecuredLoginLifetimeSeconds="60",
        unsecuredLoginExtension_trace="x",
    )
    sasl = bearer({"sasl.jaas.config": options})
    token = sasl.tokens.ask("broker")
    claims = token.text.split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert (found["sub"], found["n"], found["scope"]) == ("ada", 3, ["a", "b"])
    assert (round(token.ends - token.begins), sasl.extensions) == (60, (("trace", "x"),))


def test_times():
    given = {URL: "https://idp/token", ID: "a", PASS: "b"}
    sasl = bearer(
        {
            **given,
            "sasl.login.connect.timeout.ms": "1500",
            "sasl.login.read.timeout.ms": "2500",
            "sasl.login.refresh.window.factor": "0.5",
            "sasl.login.refresh.window.jitter": "0",
            "sasl.login.refresh.min.period.seconds": "1",
            "sasl.login.refresh.buffer.seconds": "2",
            "sasl.login.retry.backoff.ms": "300",
            "sasl.login.retry.backoff.max.ms": "4000",
        }
    )
    assert (sasl.tokens.ask.connect_s, sasl.tokens.ask.read_s) == (1.5, 2.5)
    assert sasl.tokens._refreshing == Refreshing(0.5, 0, 1, 2, 0.3, 4)
    assert bearer(given).tokens._refreshing == Refreshing()


def test_tls_of_the_endpoint_is_the_login_modules_or_the_clients(tmp_path):
    mine, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    given = {"security.protocol": "SASL_SSL", URL: "https://idp/token", ID: "a", PASS: "b"}
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(mine.certificate_file)}

    def issuers(properties):
        context = client_security(BASE | given | properties).sasl.tokens.ask.context
        return {str(row["issuer"]) for row in context.get_ca_certs()}

    [ours] = issuers(
        {"sasl.jaas.config": jaas(**{name.replace(".", "__"): text for name, text in store.items()})}
    )
    assert ours in issuers(store)  # beside the system's
    own = {
        "oauth__client__id": "a",
        "oauth__client__secret": "b",
        "oauth__token__endpoint__uri": "https://idp/t",
    }
    own |= {f"oauth__{name.replace('.', '__')}": text for name, text in store.items()}
    assert issuers({URL: "", "sasl.jaas.config": jaas(**own), HANDLER: STRIMZI}) == {ours}
    with pytest.raises(
        SecuritySettingsError, match=r"sasl.jaas.config: ssl.truststore.location: /no: No such"
    ):
        issuers({"sasl.jaas.config": jaas(ssl__truststore__location="/no", ssl__truststore__type="PEM")})
    with pytest.raises(TlsSettingsError, match=r"ssl.truststore.location"):
        issuers({**store, "ssl.truststore.location": str(other.store("broker").parent / "none")})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, f"{URL}: is not set: where tokens come from"),
        ({URL: "idp/token"}, f"{URL}: a token endpoint is https://"),
        ({URL: "ftp://idp/token", ID: "a", PASS: "hunter2"}, f"{URL}: a token endpoint is https://"),
        ({URL: "https://idp/token"}, f"{ID}: is not set, nor is clientId in sasl.jaas.config"),
        ({URL: "https://idp/token", ID: "a"}, f"{PASS}: is not set, nor is clientSecret"),
        ({URL: "https://idp/t", ID: "a", PASS: " "}, f"{PASS}: is not set"),
        ({URL: "https://idp/t", "sasl.jaas.config": "x hunter2"}, "sasl.jaas.config: is not `Module"),
        ({HANDLER: "org.example.Mine"}, f"{HANDLER}: org.example.Mine is a Java class, .* write {URL}"),
        (
            {HANDLER: "io.confluent.kafka.clients.plugins.auth.token.TokenUserLoginCallbackHandler"},
            "TokenUserLoginCallbackHandler asks Confluent's metadata service",
        ),
        (
            {URL: "https://idp/t", "sasl.oauthbearer.jwt.retriever.class": "a.B"},
            "jwt.retriever.class: a.B is not",
        ),
        (
            {URL: "https://i/t", ID: "a", "sasl.oauthbearer.assertion.private.key.file": "k"},
            "sasl.oauthbearer.assertion.file: is not set; assertions are not signed here",
        ),
        (
            {URL: "https://i/t", ID: "a", PASS: "b", "sasl.login.read.timeout.ms": "0"},
            "read.timeout.ms: is not a",
        ),
        (
            {URL: "https://i/t", ID: "a", PASS: "b", "sasl.login.refresh.window.factor": "1.5"},
            "between 0.5 and 1",
        ),
        ({"sasl.oauthbearer.token.endpoint.uri": "https://i"}, f"endpoint.uri: .* did you mean {URL}"),
        (
            {"sasl.jaas.config": jaas(oauth__client__id="a", oauth__client__secret="b")},
            "sasl.jaas.config: oauth.token.endpoint.uri is not set",
        ),
        ({"sasl.jaas.config": jaas(oauth__access__token="a b hunter2")}, "oauth.access.token is no token"),
        ({"sasl.jaas.config": jaas(unsecuredLoginNumberClaim_n="x")}, "unsecuredLoginNumberClaim_n is not"),
        (
            {"sasl.jaas.config": jaas(unsecuredLoginListClaim_n="|x")},
            "unsecuredLoginStringClaim_sub is not set",
        ),
        (
            {URL: "https://i/t", ID: "a", PASS: "b", "sasl.jaas.config": jaas(extension_auth="x")},
            "sasl.jaas.config: extension_auth: the name",
        ),
    ],
)
def test_what_is_wrong(settings, why):
    with pytest.raises(SecuritySettingsError, match=why) as error:
        bearer(settings)
    assert "hunter2" not in str(error.value)


def test_which_settings_count():
    for name in TAKEN:
        assert without_effect(name, "PLAIN")
        assert not without_effect(name, "OAUTHBEARER")
    assert all(without_effect(name, mechanism) for name in PASSED_OVER for mechanism in ("", *MECHANISMS))
    assert set(TAKEN) < set(NAMES)


def test_librdkafka_asks_where_our_client_does(server):
    options = jaas(clientId=CLIENT, clientSecret=SECRET, extension_a="b")
    access = Access("kafka.example:9092", {**BASE, URL: server.url, "sasl.jaas.config": options})
    found = access.librdkafka()
    text, ends, subject, extensions = found["oauth_cb"]("")
    assert (found["sasl.mechanism"], subject, extensions) == ("OAUTHBEARER", CLIENT, {"a": "b"})
    assert text.count(".") == 2
    assert ends > 0
    assert not [name for name in found if name.startswith("sasl.oauthbearer")]


@pytest.fixture
def signer(monkeypatch):
    """In the place of Amazon's package: what it was asked to sign."""
    asked = []
    module = types.ModuleType("aws_msk_iam_sasl_signer")
    module.__spec__ = types.SimpleNamespace()

    class MSKAuthTokenProvider:
        @staticmethod
        def generate_auth_token_from_credentials_provider(region, provider):
            found = provider.load()
            asked.append((region, found.access_key, found.token))
            return "c2lnbmVk", 1_700_000_000_000

    module.MSKAuthTokenProvider = MSKAuthTokenProvider
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    return asked


IAM = "software.amazon.msk.auth.iam."
MSK = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler",
}
HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "settings",
    [MSK, {HANDLER: f"{IAM}IAMOAuthBearerLoginCallbackHandler", "sasl.jaas.config": f"{MODULE};"}],
)
def test_amazon_msk(signer, settings):
    token = bearer(settings).tokens.ask(HOST)
    assert (token.text, token.ends) == ("c2lnbmVk", 1_700_000_000)
    assert signer == [("eu-west-1", "AKIDOFENV", None)]


def test_amazon_msk_profiles_and_regions(signer, monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text("[copier]\naws_access_key_id=AKIDOFPROFILE\naws_secret_access_key=hunter2\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    options = {"sasl.jaas.config": f"{IAM}IAMLoginModule required awsProfileName=copier;"}
    sasl = bearer(MSK | options)
    with pytest.raises(TokenError, match=r"the region of kafka.example is not known; set AWS_REGION"):
        sasl.tokens.ask("kafka.example")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    sasl.tokens.ask("kafka.example")
    sasl.tokens.ask("boot-x.c1.kafka-serverless.ap-south-1.amazonaws.com")
    assert signer == [("us-east-2", "AKIDOFPROFILE", None), ("ap-south-1", "AKIDOFPROFILE", None)]
    unknown = {"sasl.jaas.config": f"{IAM}IAMLoginModule required awsProfileName=nobody;"}
    with pytest.raises(TokenError, match=r"no token for MSK: The config profile \(nobody\)") as error:
        bearer(MSK | unknown).tokens.ask(HOST)
    assert "hunter2" not in str(error.value)


def test_amazon_msk_without_its_package(monkeypatch):
    monkeypatch.setattr(msk, "find_spec", lambda _: None)
    with pytest.raises(
        SecuritySettingsError, match=r"sasl.mechanism: .* pip install aws-msk-iam-sasl-signer"
    ):
        bearer(MSK)


def test_amazons_own_package_signs(monkeypatch):
    """What MSK takes: a signed address of its service, for a quarter of an hour."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="pip install aws-msk-iam-sasl-signer-python")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    token = bearer(MSK).tokens.ask(HOST)
    signed = base64.urlsafe_b64decode(token.text + "=" * (-len(token.text) % 4)).decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Expires=900" in signed
    assert "hunter2" not in signed
