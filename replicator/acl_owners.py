"""What other links into one target have granted there: an ACL may stand for ACLs of several sources.

Owns finding and reading their progress topics. Knows nothing of what to do about it.
"""

from __future__ import annotations

import logging

from protocol.client import Acl, ClusterClient
from protocol.errors import ErrorCode, KafkaError
from replicator.progress import ProgressStore
from replicator.settings import is_progress_topic

_log = logging.getLogger("isthmus.replicator")


async def acls_of_others(target: ClusterClient, own: str) -> set[Acl]:
    """By all progress topics that the link may read at the target, but for its own. Raises ProtocolError."""
    found: set[Acl] = set()
    for topic in (await target.metadata(None)).topics:
        if topic == own or not is_progress_topic(topic):
            continue
        try:
            found.update((await ProgressStore(target, topic).refresh()).acls())
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            _log.warning("%s may not be read: ACLs that its link needs too may be revoked", topic)
    return found
