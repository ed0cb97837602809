"""Links, copies and commands are let in by tokens (OAUTHBEARER) where Apache Kafka 4.3 verifies them."""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from protocol.client import AuthenticationError, ClusterClient, TokenError
from protocol.client.access import Access
from replicator.settings import LinkSettings
from tests.cluster.links import content, create, eventually, fresh, produce, running, some
from tests.support.broker import BrokerProcess
from tests.support.secure_side import kafka_listening
from tests.support.token_server import CLIENT, SECRET, TokenServer

pytestmark = pytest.mark.interop

LIFETIME_S = 3.0
KAFKA = "org.apache.kafka.common.security.oauthbearer."
JAAS = f"{KAFKA}OAuthBearerLoginModule required"


@dataclass
class Guarded:
    """Apache Kafka with a listener that wants tokens, and the provider of these."""

    bootstrap: str
    open: str
    provider: TokenServer

    def properties(self, **more: str) -> dict[str, str]:
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{KAFKA}OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.provider.url,
            "sasl.jaas.config": f'{JAAS} clientId="{CLIENT}" clientSecret="{SECRET}" scope="kafka";',
        }
        return given | {name.replace("_", "."): text for name, text in more.items()}

    def access(self, **more: str) -> Access:
        return Access(self.bootstrap, self.properties(**more), "east")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with TokenServer() as provider:
        keys, listener = provider.address("keys"), "listener.name.tokens."
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            f"{listener}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{listener}oauthbearer.sasl.jaas.config": f"{JAAS};",
            f"{listener}oauthbearer.sasl.server.callback.handler.class": (
                f"{KAFKA}OAuthBearerValidatorCallbackHandler"
            ),
            f"{listener}oauthbearer.connections.max.reauth.ms": str(int(LIFETIME_S * 1000)),
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.clock.skew.seconds": "0",
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
        with kafka_listening(("PLAINTEXT", "TOKENS"), settings, allowed) as ports:
            yield Guarded(f"127.0.0.1:{ports['TOKENS']}", f"127.0.0.1:{ports['PLAINTEXT']}", provider)


def _link(guarded: Guarded, ours: str, topic: str, *, back: bool = False) -> LinkSettings:
    ends = [
        {"alias": "east", "bootstrap": guarded.bootstrap, "properties": guarded.properties()},
        {"alias": "west", "bootstrap": ours},
    ]
    source, target = reversed(ends) if back else ends
    given = {"source": source, "target": target, "topics": [topic], "progress_interval_s": 0.3}
    return LinkSettings.model_validate(given)


async def test_links_go_on_over_many_tokens_and_sessions_with_every_record_once(
    guarded: Guarded, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads behind tokens and one writes there. In the middle the provider fails for longer than a token
    holds, so both are shut out for a while."""
    topic, other = fresh("read"), fresh("written")
    provider = guarded.provider
    monkeypatch.setattr(provider, "lifetime_s", LIFETIME_S)
    async with ClusterClient(guarded.open) as east, ClusterClient(broker.bootstrap) as west:
        await create(east, topic)
        await create(west, other)
        async with (
            running(_link(guarded, broker.bootstrap, topic)),
            running(_link(guarded, broker.bootstrap, other, back=True)),
        ):
            asked, began = len(provider.asked), time.monotonic()
            for number in itertools.count():
                spent_s = time.monotonic() - began
                if spent_s > 3.5 * LIFETIME_S:
                    break
                failing = LIFETIME_S < spent_s < 2.3 * LIFETIME_S
                provider.answer = (lambda: (503, "text/html", "busy")) if failing else None
                await produce(east, topic, some(3, f"{number}"))
                await produce(west, other, some(3, f"{number}"))
                await asyncio.sleep(0.05)
            assert len(provider.asked) > asked + 4

            async def all_there() -> bool:
                there = await content(west, f"east.{topic}"), await content(east, f"west.{other}")
                return tuple(map(len, there)) >= ((number * 3,) * 2)

            await eventually(all_there, "all is copied")
        assert await content(west, f"east.{topic}") == await content(east, topic)
        assert await content(east, f"west.{other}") == await content(west, other)


async def test_a_file_is_read_again_for_each_connection(guarded: Guarded, tmp_path: Path) -> None:
    """Something else keeps the token in it; sessions end by themselves, the next one has what is there."""
    file = tmp_path / "token"
    file.write_text(guarded.provider.token())
    access = guarded.access(sasl_oauthbearer_token_endpoint_url=file.as_uri())
    async with access.client("tests") as client:

        async def is_let_in() -> bool:
            try:
                await client.metadata(())
            except (AuthenticationError, TokenError):
                return False
            return True

        async def is_refused() -> bool:
            return not await is_let_in()

        assert await is_let_in()
        file.write_text(guarded.provider.token(exp=time.time() - 60))
        await eventually(is_refused, "the next session")
        file.write_text(f"\n{guarded.provider.token()}\n")
        await eventually(is_let_in, "the one after")


async def test_who_is_not_let_in_is_told_why(guarded: Guarded) -> None:
    with TokenServer() as stranger:
        settings = guarded.properties(sasl_oauthbearer_token_endpoint_url=stranger.url)
        with pytest.raises(
            AuthenticationError, match=r"east cannot be reached .*token from http.* is refused:"
        ):
            async with Access(guarded.bootstrap, settings, "east").client("tests"):
                pass
    wrong = guarded.access(sasl_jaas_config=f'{JAAS} clientId="{CLIENT}" clientSecret="hunter2";')
    with pytest.raises(TokenError, match=r"east cannot be reached .*HTTP 401 \(invalid_client\)") as refused:
        async with wrong.client("tests"):
            pass
    assert "hunter2" not in str(refused.value)
    assert "look at the client's id and secret" in str(refused.value)


def _listing(guarded: Guarded, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`isthmus topics list` with the client settings of a topology."""
    east = {
        "datacenter": "here",
        "bootstrap_servers": guarded.bootstrap,
        "client": guarded.properties(**more),
    }
    content = {"version": 1, "name": "tokens", "datacenters": {"here": {}}, "clusters": {"east": east}}
    file = folder / "topology.yaml"
    file.write_text(json.dumps({**content, "data_directory": str(folder / "data")}))
    command = [sys.executable, "-m", "isthmus", "topics", "list", "--cluster", "east", "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_command_is_let_in_or_says_why_not(guarded: Guarded, tmp_path: Path) -> None:
    done = _listing(guarded, tmp_path)
    assert done.returncode == 0, done.stderr
    wrong = f'{JAAS} clientId="{CLIENT}" clientSecret="hunter2";'
    done = _listing(guarded, tmp_path, sasl_jaas_config=wrong)
    assert done.returncode == 1
    assert "east cannot be reached (SASL_PLAINTEXT at " in done.stderr
    assert "HTTP 401 (invalid_client); look at the client's id and secret" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_commands_over_librdkafka_have_the_same_tokens(guarded: Guarded) -> None:
    """Beside librdkafka's own way to a token endpoint (OIDC)."""
    asked = len(guarded.provider.asked)
    ours = AdminClient(guarded.access().librdkafka())
    assert ours.list_topics(timeout=20).cluster_id
    assert len(guarded.provider.asked) > asked
    own = AdminClient(
        {
            "bootstrap.servers": guarded.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": guarded.provider.url,
        }
    )
    assert own.list_topics(timeout=20).cluster_id
    theirs, mine = guarded.provider.asked[-1], guarded.provider.asked[asked]
    assert json.dumps(mine[1]) == json.dumps(theirs[1])
    assert mine[0]["Authorization"] == theirs[0]["Authorization"]
