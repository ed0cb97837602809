"""The token of a broker's run."""

import json

from broker.control import paths
from broker.control.run_record import FILE_NAME, RunRecord
from broker.control.zookeeper_types import SessionExpired


class Forgetful:
    """A ZooKeeper that loses the session twice before it takes a write."""

    def __init__(self):
        self.put_at = []
        self.waited = 0

    async def put(self, path, data):
        self.put_at.append((path, data.decode()))
        if len(self.put_at) < 3:
            raise SessionExpired(path)

    async def wait_connected(self):
        self.waited += 1


async def test_a_session_that_ends_between_registration_and_token_does_not_end_the_broker(tmp_path):
    """Seen in an hour of faults: it ended with SessionExpiredError, though it was registered again."""
    zookeeper = Forgetful()
    await RunRecord(zookeeper, 1, [str(tmp_path)]).begin()
    token = json.loads((tmp_path / FILE_NAME).read_text())["token"]
    assert zookeeper.put_at == [(paths.broker_run(1), token)] * 3
    assert zookeeper.waited == 2
