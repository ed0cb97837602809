"""Settings of a broker and of topics, under Kafka's names: parsed once, typed, frozen.

`load` makes a `BrokerConfig` from texts and names every mistake at once; attribute names are Kafka's with
`_` for `.` (`config.num_partitions`). `config.topic_config(overrides)` is a topic's effective `TopicConfig`.
This package is below every other part of the broker and does no I/O beside reading a properties file.
"""

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import ConfigError, Definition, Synonym
from broker.config.kinds import Kind
from broker.config.listeners import Endpoint
from broker.config.load import load, read_properties
from broker.config.topic_settings import TOPIC_DEFINITIONS, TopicConfig, parse_topic_settings

__all__ = [
    "BROKER_DEFINITIONS",
    "TOPIC_DEFINITIONS",
    "BrokerConfig",
    "ConfigError",
    "Definition",
    "Endpoint",
    "Kind",
    "Synonym",
    "TopicConfig",
    "load",
    "parse_topic_settings",
    "read_properties",
]
