"""Small file systems of their own that can fail: ext4 on a loop device, with the errors that real disks give.

`fail` ends the file system as a lost device does (every call gives EIO), `go_read_only` lets it find damage,
after which ext4 mounted with `errors=remount-ro` refuses writes (EROFS). Needs root; where that or a loop
device is missing, the test that asks for one is skipped with the reason.
"""

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SHUTDOWN = 2 << 30 | 4 << 16 | ord("X") << 8 | 125
"""EXT4_IOC_SHUTDOWN."""
_WITH_ALL_WRITTEN = 0


class Disk:
    def __init__(self, image: Path, path: Path) -> None:
        self.path = path
        self._image = image
        self._device = ""

    def mount(self) -> None:
        """Attach and mount it, as a repaired disk comes back: its journal replayed, damage forgotten."""
        self._device = _run("losetup", "-f", "--show", str(self._image))
        subprocess.run(["e2fsck", "-fy", self._device], capture_output=True, check=False)
        _run("mount", "-t", "ext4", "-o", "errors=remount-ro", self._device, str(self.path))

    def unmount(self) -> None:
        if self._device:
            subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)
            subprocess.run(["losetup", "-d", self._device], capture_output=True, check=False)
            self._device = ""

    def fail(self) -> None:
        """Input/output error from now on, for reads as well; what was written before is on the disk."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITH_ALL_WRITTEN))
        finally:
            os.close(descriptor)

    def go_read_only(self) -> None:
        """Reads go on, writes are refused from now on."""
        name = os.path.basename(self._device)
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("test")

    def fill(self) -> None:
        """Take what room is left."""
        with contextlib.suppress(OSError), (self.path / "filler").open("ab", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass

    def make_room(self) -> None:
        (self.path / "filler").unlink()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextlib.contextmanager
def disk(directory: Path, name: str, megabytes: int = 24) -> Iterator[Disk]:
    """A mounted file system at `directory/name`; skips the test where there cannot be one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own that fails")
    image, path = directory / f"{name}.img", directory / name
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    made = Disk(image, path)
    try:
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        made.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        made.unmount()
        pytest.skip(f"a file system on a loop device cannot be made here: {getattr(error, 'stderr', error)}")
    try:
        yield made
    finally:
        made.unmount()
