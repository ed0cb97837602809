"""What a broker does not import: its start is measured beside Apache Kafka's, and memory as well."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["numpy", "pyspark", "boto3"])
def test_a_broker_process_does_not_import(module: str) -> None:
    text = f"import sys, isthmus.commands.broker, broker.process; sys.exit({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], check=False, timeout=120)
    assert done.returncode == 0, f"importing broker.process imports {module}"
