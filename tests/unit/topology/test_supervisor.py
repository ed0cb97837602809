"""The supervisor against real child processes (an object store is the quickest part there is)."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from topology.control import ControlError, ControlServer, NoSuchPart, request
from topology.load import parse_topology
from topology.models import Topology
from topology.process import ProcessFailed, SupervisedProcess
from topology.runtime import DirectoryUnusable, NotRunning, Runtime
from topology.supervisor import AlreadyRunning, Supervisor

TEXT = """\
version: 1
name: stores
data_directory: state
datacenters: {here: {}}
clusters: {east: {datacenter: here, bootstrap_servers: "127.0.0.1:1"}}
object_stores:
  vault: {kind: local, bucket: backups}
"""


def supervisor(folder: Path) -> Supervisor:
    return Supervisor(parse_topology(TEXT, folder=folder), folder / "topology.yaml")


async def until(condition: Callable[[], bool], bound_s: float = 30) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.02)


def pid_of(running: Supervisor) -> int | None:
    pid = running.status()[0]["pid"]
    assert pid is None or isinstance(pid, int)
    return pid


async def test_a_killed_process_comes_back_and_a_stopped_one_stays_down(tmp_path: Path) -> None:
    running = supervisor(tmp_path)
    await running.start()
    try:
        first = pid_of(running)
        assert first is not None
        port = running.runtime.ports["vault-store"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: pid_of(running) not in (None, first) and running.status()[0]["state"] == "ready")
        assert running.status()[0]["restarts"] == 1
        assert running.runtime.ports["vault-store"] == port

        await running.kill_parts(["vault"])
        await asyncio.sleep(0.5)  # five looks of the watcher: it must leave the process down
        assert pid_of(running) is None
        await running.start_parts(["datacenter:here"])
        assert pid_of(running) is not None
    finally:
        await running.stop()
    assert pid_of(running) is None


async def test_one_supervisor_per_data_directory(tmp_path: Path) -> None:
    running = supervisor(tmp_path)
    await running.start()
    try:
        with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"):
            await supervisor(tmp_path).start()
    finally:
        await running.stop()


async def test_a_data_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryUnusable, match="file cannot be used: Not a directory"):
        Runtime.load(tmp_path / "file")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "supervisor.lock").mkdir()
    with pytest.raises(DirectoryUnusable, match="state cannot be used: Is a directory"):
        await supervisor(tmp_path).start()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"ports": {}}'])
def test_a_damaged_note_of_ports_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "runtime.json").write_text(content)
    assert Runtime.load(tmp_path) == Runtime(tmp_path)


async def test_control_socket_acts_and_refuses(tmp_path: Path) -> None:
    runtime = Runtime.load(tmp_path / "state")
    with pytest.raises(NotRunning):
        await request(runtime, "status")
    running = supervisor(tmp_path)
    await running.start()
    control = ControlServer(running)
    await control.start()
    try:
        assert [row["name"] for row in await request(runtime, "status")] == ["vault-store"]
        assert await request(runtime, "stop", ["vault"]) == ["vault-store"]
        assert pid_of(running) is None
        with pytest.raises(NoSuchPart, match="there is no 'volt'"):
            await request(runtime, "start", ["volt"])
        with pytest.raises(ControlError, match="there is no request 'dance'"):
            await request(runtime, "dance")
        await request(runtime, "down")
        assert control.down.is_set()
    finally:
        await control.close()
        await running.stop()


async def test_a_process_that_ends_early_shows_its_last_words(tmp_path: Path) -> None:
    process = SupervisedProcess("x", ("/bin/sh", "-c", "echo no disk left; exit 4"), tmp_path / "x.log")
    process.spawn()
    with pytest.raises(ProcessFailed, match=r"exit code 4[\s\S]*no disk left"):
        await process.wait_ready(10)


async def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TEXT)
    process = SupervisedProcess(
        "up",
        (sys.executable, "-m", "isthmus", "up", str(tmp_path / "topology.yaml")),
        tmp_path / "up.log",
    )
    process.spawn()
    await process.wait_ready(60)
    rows = await request(Runtime.load(tmp_path / "state"), "status")
    child = rows[0]["pid"]
    await process.kill()
    await until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text())


async def test_a_declared_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = TEXT.replace("bucket: backups", f"bucket: backups, port: {port}")
        running = Supervisor(parse_topology(text, folder=tmp_path), tmp_path / "topology.yaml")
        with pytest.raises(ProcessFailed, match=rf"listens at port {port} \(vault-store\): end it"):
            await running.start()
    await running.start()
    await running.stop()


@pytest.mark.parametrize("setting", ["port", "metrics_port"])
async def test_a_brokers_declared_ports_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Both stand under the broker's name: one must not hide the other."""
    monkeypatch.setattr("topology.supervisor._PORT_WAIT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        clusters = f"clusters: {{east: {{datacenter: here, brokers: [{{id: 1, {setting}: {port}}}]}}}}"
        text = "\n".join(clusters if line.startswith("clusters") else line for line in TEXT.splitlines())
        running = Supervisor(parse_topology(text, folder=tmp_path), tmp_path / "topology.yaml")
        with pytest.raises(ProcessFailed, match=rf"listens at port {port} \(east-broker-1\): end it"):
            await running.start()
        assert {row["state"] for row in running.status()} == {"stopped"}


async def test_up_that_is_stopped_before_it_is_ready_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    with socket.create_server(("127.0.0.1", 0)) as other:  # it waits some seconds for this port
        file.write_text(TEXT.replace("bucket: backups", f"bucket: backups, port: {other.getsockname()[1]}"))
        starting = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", "up", str(file)), stderr=asyncio.subprocess.PIPE
        )
        try:
            await until((tmp_path / "state" / "runtime.json").exists, bound_s=60)
            starting.terminate()
            _, errors = await asyncio.wait_for(starting.communicate(), 60)
        finally:
            if starting.returncode is None:
                starting.kill()
                await starting.wait()
    assert starting.returncode == 1
    assert b"stores was interrupted before it was ready" in errors


async def test_a_chosen_port_that_is_taken_meanwhile_is_chosen_anew(tmp_path: Path) -> None:
    """Somebody else binds it between the choice and the start of our process."""
    lines: list[str] = []
    others: list[socket.socket] = []
    running = Supervisor(
        parse_topology(TEXT, folder=tmp_path), tmp_path / "topology.yaml", report=lines.append
    )
    choose = running.runtime.choose_ports

    def choose_and_lose(topology: Topology) -> None:
        choose(topology)
        if not others:
            others.append(socket.create_server(("127.0.0.1", running.runtime.ports["vault-store"])))

    running.runtime.choose_ports = choose_and_lose  # type: ignore[method-assign]
    try:
        await running.start()
        taken = others[0].getsockname()[1]
        assert running.runtime.ports["vault-store"] != taken
        assert running.status()[0]["state"] == "ready"
        assert any(f"another program took port {taken} (vault-store) meanwhile" in line for line in lines)
        assert running.runtime.ports == Runtime.load(tmp_path / "state").ports
    finally:
        await running.stop()
        others[0].close()
