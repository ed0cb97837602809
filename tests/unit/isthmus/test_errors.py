"""How commands fail: text on standard error, and one object on standard output for `--json`."""

import json
import os
import pty
import subprocess
import sys

import pytest

from connectors import errors
from connectors.errors import ConnectorError, NoSuchBackup, NotHeld, RestoreRefused
from isthmus.commands.consume import _json as record_json
from isthmus.output import Failed, fail, note, print_error, print_table, say
from isthmus.stores import run_connectors
from protocol.client.errors import ConnectError
from replicator.mirrors.assessing import NoSuchTopic
from tests.support.commands import ROOT, isthmus

TWO = "examples/two-datacenters.yaml"
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("links", "status", "a->b", "--topology", TWO), 2, "there is no link 'a->b' in the file"),
        (("status", "missing.yaml"), 2, "missing.yaml"),
        (("consume", "orders", "--cluster", NOWHERE), 1, f"{NOWHERE} cannot be reached"),
        (("topics", "describe", "--cluster", NOWHERE), 2, "Missing argument 'name'"),
        (("topics", "list", "--clusters", NOWHERE), 2, "No such option: --clusters"),
        (("topics", "lists", "--cluster", NOWHERE), 2, "No such command 'lists'"),
        (("topicz", "list", "--cluster", NOWHERE), 2, "No such command 'topicz'"),
    ],
)
def test_an_error_is_one_object_where_json_is_wanted(words: tuple[str, ...], code: int, message: str) -> None:
    plain, done = isthmus(*words), isthmus(*words, "--json")
    assert (plain.returncode, plain.stdout) == (code, "")
    assert (done.returncode, done.stderr) == (code, plain.stderr)
    error = json.loads(done.stdout)["error"]
    assert message in error["message"]
    assert error["exit_code"] == code


def test_what_to_do_stands_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    caught = ConnectError("east does not answer")
    caught.to_do = "start its brokers"
    try:
        try:
            raise caught
        except ConnectError as error:
            fail(f"this\nisthmus: {error}")
    except Failed as failed:
        print_error(failed)
    shown = json.loads(capsys.readouterr().out)["error"]
    said = {"message": f"this\n{caught}", "to_do": "start its brokers", "exit_code": 1}
    assert shown == said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchBackup("no b2"), 2),
        (NoSuchTopic("no orders"), 2),
        (NotHeld("b2", ["the backup holds no topic orders"]), 2),
        (errors.NoSuchTopic("no orders"), 2),
        (RestoreRefused("b2", ["orders holds records"]), 1),
        (ConnectorError("away"), 1),
        (ConnectError("away"), 1),
    ],
)
def test_a_name_that_is_not_there_is_wrong_usage(error: Exception, code: int) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(Failed) as ended:
        run_connectors(work)
    assert ended.value.exit_code == code


def test_what_is_told_already_is_not_told_twice() -> None:
    """A file's mistakes are in the answer of `validate`."""
    done = isthmus("topology", "validate", "missing.yaml", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["valid"] is False


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x04", 1), (b"n\n", 1)])
def test_a_question_that_gets_no_yes(key: bytes, code: int) -> None:
    """Ctrl-C, Ctrl-D and a no."""
    mine, terminal = pty.openpty()
    words = [sys.executable, "-m", "isthmus", "drill", "run", "dr_runbooks/failover.yaml"]
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(terminal)
    assert process.stderr is not None
    try:
        shown = b""
        while b"Do it?" not in shown:
            shown += process.stderr.read1() or pytest.fail(shown.decode())
        os.write(mine, key)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        os.close(mine)
    assert process.returncode == code
    assert b"Traceback" not in errors
    assert (b"nothing done" in errors) == (code == 1)


ESC, CSI = "\x1b", "\x9b"


def test_control_characters_of_names_do_not_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A group may be called so, or a file."""
    name = f"a{ESC}[2Jb{CSI}31m\rc\x7f\udcff"
    told = r"a\x1b[2Jb\x9b31m\rc\x7f\udcff"
    say(f"{name}\nnext")
    note(name)
    with pytest.raises(Failed) as failed:
        fail(name)
    shown = capsys.readouterr()
    assert shown.out == f"{told}\nnext\n"
    assert shown.err == f"{told}\nisthmus: {told}\n"
    print_error(failed.value)
    assert json.loads(capsys.readouterr().out)["error"]["message"] == name
    print_table(("group", "n"), [(f"{name}\n\t", 1), ("ü", 2)])
    assert capsys.readouterr().out.splitlines()[1:] == [
        rf"{told}\n\t  1",
        "ü" + " " * len(rf"{told}\n\t") + " 2",
    ]


def test_nor_do_those_of_a_log_line(capfd: pytest.CaptureFixture[str]) -> None:
    script = "import logging; from isthmus.logs import log_to_stderr; log_to_stderr();"
    script += f"logging.getLogger('isthmus').info('client %s', {ESC + CSI!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.endswith("isthmus: client \\x1b\\x9b\n")


def test_an_event_is_a_line_of_the_log_whatever_names_are_in_it() -> None:
    """Else a client could call itself like an event that was none. A traceback has several."""
    script = "import logging; from isthmus.logs import log_to_stderr; log_to_stderr()\n"
    script += "try: 1 / 0\n"
    script += "except Exception: logging.getLogger('isthmus').exception('client %s', 'a\\nERROR all is lost')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second, *_, last = done.stderr.splitlines()
    assert first.endswith("isthmus: client a\\nERROR all is lost")
    assert second.startswith("Traceback")
    assert last.startswith("ZeroDivisionError")


def test_records_as_json_are_data_that_no_terminal_obeys() -> None:
    class Message:
        key = value = staticmethod(lambda: f"{ESC}{CSI}ü".encode())
        partition = offset = staticmethod(lambda: 0)
        timestamp = staticmethod(lambda: (1, 0))
        headers = staticmethod(list)

    line = record_json(Message()).decode()  # type: ignore[arg-type]
    assert not {ESC, CSI} & {*line}
    assert json.loads(line)["value"] == f"{ESC}{CSI}ü"
    assert "ü" in line
