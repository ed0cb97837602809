"""The files with which links are measured: what they say has an effect."""

from types import SimpleNamespace

import pytest

from bench.links.sides import CONTENDERS, TUNED, Ground, _properties_file
from replicator.mirrormaker.file import parse_mirrormaker


@pytest.mark.parametrize("contender", CONTENDERS)
def test_every_setting_stands_where_mirrormaker_takes_it(tmp_path, contender):
    ends = (SimpleNamespace(bootstrap=f"{host}:1") for host in "ab")
    text = _properties_file("e1", contender, Ground(*ends, tmp_path), "orders").read_text()
    remarks = [str(remark) for remark in parse_mirrormaker(text).remarks]
    assert [text for text in remarks if "no effect" in text] == []
    assert ("e1.consumer.fetch.min.bytes=262144" in text) is (contender == TUNED)
