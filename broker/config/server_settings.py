"""Settings of one broker process: who and where it is, its connections, its log.

Kafka's names (server.properties), defaults and limits; only settings that something reads. Times in ms unless
the name says otherwise, sizes in bytes. Source: the configuration reference of Kafka 3.9 and 4.x.
Must not know where values come from.
"""

import sys
from dataclasses import dataclass

from broker.config.definition import setting
from broker.config.kinds import Kind, at_least, directories, named, one_of, servers

_KAFKA_DIRECTORY = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own default
_MAX_INT = 2**31 - 1
_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


@dataclass(frozen=True, kw_only=True)
class IdentitySettings:
    """Who the broker is, where it listens, where its ZooKeeper and its data are."""

    broker_id: int = setting(
        "broker.id",
        Kind.INT,
        -1,
        "Number of this broker in its cluster; -1 takes the data directory's, or a new one.",
        at_least(-1),
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id", Kind.INT, 1000, "Numbers up to this one are never given out.", at_least(0)
    )
    broker_rack: str | None = setting(
        "broker.rack", Kind.STRING, None, "Place of this broker; replicas are spread over places.", named
    )
    listeners: tuple[str, ...] = setting(
        "listeners", Kind.LIST, ("PLAINTEXT://:9092",), "Where to accept connections, as NAME://host:port."
    )
    advertised_listeners: tuple[str, ...] = setting(
        "advertised.listeners",
        Kind.LIST,
        (),
        "Addresses told to clients and brokers; by default those of `listeners`.",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        Kind.STRING,
        _PROTOCOL_MAP,
        "Security protocol of each listener name, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        Kind.STRING,
        None,
        "Listener that brokers use among themselves; by default the first with the inter-broker protocol.",
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        Kind.STRING,
        "PLAINTEXT",
        "Security protocol between brokers, where no listener is named for it.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        Kind.STRING,
        None,
        "ZooKeeper servers as host:port,host:port, with an optional /chroot at the end.",
        servers,
    )
    zookeeper_connect_preferred: str | None = setting(
        "zookeeper.connect.preferred",
        Kind.STRING,
        None,
        "Those of the servers of zookeeper.connect that are tried first, as of the broker's own site;"
        " without it, and among them, the order is random as in Kafka.",
        servers,
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        Kind.INT,
        18_000,
        "Without contact for this long, ZooKeeper takes the broker for dead.",
        at_least(1),
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        Kind.INT,
        None,
        "How long to wait for ZooKeeper at start; by default the session timeout.",
        at_least(1),
    )
    log_dir: str = setting(
        "log.dir", Kind.STRING, _KAFKA_DIRECTORY, "Data directory, where log.dirs is not set.", directories
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs", Kind.LIST, (), "Data directories; partitions are spread over them.", directories
    )


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Limits on connections and requests."""

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", Kind.INT, 104_857_600, "Largest request that is accepted.", at_least(1)
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", Kind.INT, 102_400, "Send buffer of a socket; -1 is the system's choice."
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        102_400,
        "Receive buffer of a socket; -1 is the system's choice.",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", Kind.INT, 50, "Connections that may wait to be accepted.", at_least(1)
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", Kind.LONG, 600_000, "Idle connections are closed after this time."
    )
    max_connections: int = setting(
        "max.connections", Kind.INT, _MAX_INT, "Most connections of this broker.", at_least(0)
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", Kind.INT, _MAX_INT, "Most connections from one address.", at_least(0)
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Other limits for single addresses, as host:number,host:number.",
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        Kind.INT,
        _MAX_INT,
        "New connections a second above which they wait for their turn.",
        at_least(0),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        Kind.LONG,
        -1,
        "Request bytes waiting above which no more are read; -1 for no limit.",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        Kind.INT,
        30_000,
        "How long this broker waits for another one's answer.",
        at_least(1),
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", Kind.INT, 57_671_680, "Most bytes of one Fetch answer.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "Incremental fetch sessions that are kept.",
        at_least(0),
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Upkeep of the log, beside what topics set."""

    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        2**63 - 1,
        "How often logs are looked through for some that are due to be forced to disk.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often the recovery point is written down.",
        at_least(0),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often the start offsets of logs are written down.",
        at_least(0),
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often logs are looked through for segments to delete.",
        at_least(1),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", Kind.BOOLEAN, True, "Whether compacted topics are compacted."
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads", Kind.INT, 1, "Compactions that run at once.", at_least(0)
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "Pause of the cleaner when there is nothing to clean.",
        at_least(0),
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 134_217_728, "Memory for the cleaner's map of keys."
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        sys.float_info.max,
        "Reading and writing of the cleaner is held below this.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "A producer that has been quiet for this long is forgotten.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        600_000,
        "How often producers are looked through for some to forget.",
        at_least(1),
    )
