"""`BrokerConfig`: all settings of a broker in one frozen object, and what follows from them.

Defaults of topic settings (`log.segment.bytes`, `log.retention.hours`) are in `topic_defaults`, see
`topic_settings`. Must not know where values come from.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from broker.config.cluster_settings import CoordinatorSettings, ReplicationSettings, TopicCreationSettings
from broker.config.definition import Definition, definitions
from broker.config.kinds import split_servers
from broker.config.listeners import Endpoint, parse_listeners, parse_protocol_map
from broker.config.security_settings import ListenerSecurity, SecuritySettings, listener_security
from broker.config.server_settings import ConnectionSettings, IdentitySettings, LogSettings
from broker.config.topic_settings import TopicConfig


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    IdentitySettings,
    ConnectionSettings,
    SecuritySettings,
    LogSettings,
    TopicCreationSettings,
    ReplicationSettings,
    CoordinatorSettings,
):
    """The settings of one broker. `given` are the texts that were set, as opposed to defaults."""

    topic_defaults: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    given: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where to listen."""
        return parse_listeners(self.listeners, parse_protocol_map(self.listener_security_protocol_map))

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """What to tell clients; hosts and ports are as written (port 0 = the bound one)."""
        texts = self.advertised_listeners or self.listeners
        return parse_listeners(texts, parse_protocol_map(self.listener_security_protocol_map))

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener that brokers use among themselves."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        wanted = self.security_inter_broker_protocol
        return next(endpoint.name for endpoint in self.endpoints if endpoint.protocol == wanted)

    def security_of(self, listener: str) -> ListenerSecurity:
        """TLS and SASL of a listener: its own settings over the general ones."""
        protocol = parse_protocol_map(self.listener_security_protocol_map)[listener]
        return listener_security(self, listener, protocol, self.given)

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.log_dirs or (self.log_dir,)

    @property
    def zookeeper_preferred(self) -> tuple[str, ...]:
        """Servers of ZooKeeper that are tried first, as `zookeeper.connect` names them."""
        return split_servers(self.zookeeper_connect_preferred or "")

    @property
    def zookeeper_wait_ms(self) -> int:
        """How long to wait for ZooKeeper at start."""
        return self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Effective settings of a topic with these overrides. Raises ConfigError."""
        return self.topic_defaults.with_overrides(overrides)


BROKER_DEFINITIONS: Mapping[str, Definition] = definitions(BrokerConfig)
