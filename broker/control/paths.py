"""Where things are in ZooKeeper: Kafka's classic layout, relative to the chroot. (Kafka: `ZkData`.)"""

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURES = "/feature"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = CONFIG_CHANGES + "/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

MIGRATION = "/migration"
"""Where a KRaft controller that takes a cluster over keeps how far it is (KIP-866)."""

PERSISTENT = (
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    "/config/clients",
    "/config/users",
    "/config/ips",
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    PRODUCER_ID_BLOCK,
    "/isr_change_notification",
    "/log_dir_event_notification",
)
"""Nodes that a broker makes at start where they are missing, as Kafka does."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_run(broker_id: int) -> str:
    """Not Kafka's: which run of a broker was the last one."""
    return f"/isthmus/runs/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, index: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{index}"


def partition_state(topic_name: str, index: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{index}/state"


def topic_config(name: str) -> str:
    return f"{CONFIG_TOPICS}/{name}"


def broker_config(name: str) -> str:
    return f"{CONFIG_BROKERS}/{name}"


def config_kind(kind: str) -> str:
    return f"/config/{kind}"


def entity_config(kind: str, name: str) -> str:
    return f"/config/{kind}/{name}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"
