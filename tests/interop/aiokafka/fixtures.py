"""Stands in for the `conftest.py` of aiokafka's tests, which starts Kafka in a container.

Copied beside those tests by `run.py`. Gives them what they ask of the class they run in: an event loop, the
address of a broker that runs already, and nothing of what only a container could have (TLS, SASL, Kerberos).
"""

import asyncio
import gc
import os

import pytest


@pytest.fixture(scope="class")
def loop():
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.call_soon(made.stop)
        made.run_forever()
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    host, _, port = os.environ["AIOKAFKA_BROKER"].partition(":")
    request.cls.loop = loop
    request.cls.kafka_host = host
    request.cls.kafka_port = int(port)
    request.cls.hosts = [f"{host}:{port}"]
    request.cls.kafka_version = os.environ["AIOKAFKA_EXPECTS"]
    for only_in_a_container in ("kafka_ssl_port", "kafka_sasl_plain_port", "kafka_sasl_ssl_port"):
        setattr(request.cls, only_in_a_container, 0)


@pytest.fixture
def ssl_folder():
    pytest.skip("no TLS")
