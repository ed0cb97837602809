"""How numbers of things are said, and what to do where nobody offers SASL."""

from protocol.client.doors import advice
from protocol.counted import counted


def test_one_is_one():
    assert [counted(n, "record") for n in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert counted(10_000, "record", ",") == "10,000 records"


def test_a_listener_without_sasl_is_told_from_one_with_other_mechanisms():
    words = "a:1: SASL mechanism PLAIN is refused ({}); offered: {}"
    assert "has no SASL" in advice(words.format("ILLEGAL_SASL_STATE", "none"))
    assert "sasl.mechanism" in advice(words.format("UNSUPPORTED_SASL_MECHANISM", "SCRAM-SHA-256"))
