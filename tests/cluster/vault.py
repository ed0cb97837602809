"""What tests of backups share: a bucket of its own, and backup and restore with few words."""

import random
from dataclasses import dataclass
from typing import Any

from connectors.backup import backup
from connectors.manifest import Manifest
from connectors.object_store import ObjectStoreSettings
from connectors.restore import restore
from connectors.restore_report import RestoreReport
from connectors.settings import BackupSettings, RestoreSettings
from tests.support.s3 import S3Server


@dataclass
class Vault:
    """An empty bucket."""

    store: ObjectStoreSettings

    async def backup(self, bootstrap: str, *topics: str, **settings: Any) -> Manifest:
        return await backup(self.backup_settings(bootstrap, *topics, **settings))

    def backup_settings(self, bootstrap: str, *topics: str, **settings: Any) -> BackupSettings:
        given = {"backup_id": "b1", "bootstrap": bootstrap, "topics": topics, "store": self.store}
        return BackupSettings.model_validate(given | settings)

    async def restore(self, bootstrap: str, **settings: Any) -> RestoreReport:
        return await restore(self.restore_settings(bootstrap, **settings))

    def restore_settings(self, bootstrap: str, **settings: Any) -> RestoreSettings:
        given = {"backup_id": "b1", "bootstrap": bootstrap, "store": self.store}
        return RestoreSettings.model_validate(given | settings)


def new_vault(server: S3Server) -> Vault:
    return Vault(
        ObjectStoreSettings(
            bucket=f"vault-{random.getrandbits(64):016x}",
            endpoint=server.endpoint,
            access_key=server.access_key,
            secret_key=server.secret_key,
            create_bucket=True,
        )
    )
