"""Settings of Apache Kafka that a `server.properties` may hold and that this broker does not act on.

`IGNORED` are accepted with a warning: they tune Kafka's threads, sockets or JVM and change no promise.
`REFUSED` would change what the broker promises (security, KRaft, tiered storage), so dropping them silently
would be a lie: they are errors that say what to do.
"""

from collections.abc import Mapping

IGNORED: Mapping[str, str] = {
    name: why
    for why, names in {
        "one event loop serves everything here": (
            "background.threads",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.alter.log.dirs.threads",
            "num.replica.fetchers",
            "queued.max.requests",
            "group.coordinator.threads",
            "group.coordinator.background.threads",
        ),
        "waiting requests need no purging here": (
            "delete.records.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests",
            "producer.purgatory.purge.interval.requests",
        ),
        "metrics are served by --metrics-port": (
            "kafka.metrics.polling.interval.secs",
            "kafka.metrics.reporters",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "auto.include.jmx.reporter",
        ),
        "there is one protocol version and one message format": (
            "inter.broker.protocol.version",
            "log.message.format.version",
            "log.message.downconversion.enable",
        ),
        "ZooKeeper requests are not limited here": ("zookeeper.max.in.flight.requests",),
        "it is not needed here": (
            "log.cleaner.io.buffer.load.factor",
            "log.cleaner.io.buffer.size",
            "log.initial.task.delay.ms",
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms",
            "replica.socket.receive.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
            "offsets.load.buffer.size",
            "transaction.state.log.load.buffer.size",
        ),
    }.items()
    for name in names
}

_KRAFT = "brokers of isthmus use ZooKeeper; remove it and set zookeeper.connect"
_AUTHORIZER = "there is no authorizer yet: every client that gets in may do everything; remove it"
_SECURITY = "this part of TLS and SASL is not offered (docs of broker/security); remove it"
_TIERED = "tiered storage is not offered; remove it"

_REFUSED_PREFIXES: Mapping[str, str] = {
    "controller.quorum.": _KRAFT,
    "metadata.log.": _KRAFT,
    "metadata.max.": _KRAFT,
    "broker.heartbeat.": _KRAFT,
    "ssl.": _SECURITY,
    "sasl.": _SECURITY,
    "delegation.token.": _SECURITY,
    "zookeeper.ssl.": _SECURITY,
    "remote.": _TIERED,
    "log.local.": _TIERED,
    "group.share.": "share groups are not offered; remove it",
    "group.streams.": "streams groups are not offered; remove it",
    "group.consumer.": "only classic consumer groups are offered; remove it",
}

_REFUSED: Mapping[str, str] = {
    "process.roles": _KRAFT,
    "node.id": "brokers of isthmus use ZooKeeper; write broker.id",
    "controller.listener.names": _KRAFT,
    "broker.session.timeout.ms": _KRAFT,
    "authorizer.class.name": _AUTHORIZER,
    "zookeeper.set.acl": _SECURITY,
    "principal.builder.class": _SECURITY,
    "super.users": _AUTHORIZER,
}


def refused(name: str) -> str | None:
    """Why a Kafka setting is an error here, or None."""
    if name in _REFUSED:
        return _REFUSED[name]
    return next((why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
