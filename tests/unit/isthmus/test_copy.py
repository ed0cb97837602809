"""What `isthmus copy` refuses before it asks any cluster."""

import pytest

from isthmus.cli import LazyCommands
from isthmus.commands.copy import _duration


def called(capsys, *arguments):
    """Exit code, and what was said on standard error."""
    command = LazyCommands._load("copy")
    code = command.main(args=list(arguments), prog_name="copy", standalone_mode=False)
    return code, capsys.readouterr().err


ENDS = ("--from", "a:1", "--to", "b:1")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*ENDS, "--topics", "("), "is not a regular expression"),
        (ENDS, "say what to copy"),
        ((*ENDS, "--topics", "x", "--rename", "broken"), "no rule for names"),
        (("--to", "b:1", "--topics", "x"), "say --from"),
        ((*ENDS, "--topics", "x", "--start", "middle"), "earliest or latest"),
        ((*ENDS, "--topics", "x", "--name", "a b"), "may hold letters"),
        ((*ENDS, "--topics", "x", "--from-config", "/nowhere"), "/nowhere: No such file"),
    ],
)
def test_wrong_usage_is_named(arguments, expected, capsys):
    code, said = called(capsys, *arguments)
    assert (code, expected in said) == (2, True), said


def test_wrong_security_is_named_without_the_secret(tmp_path, capsys):
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        'sasl.jaas.config=x.PlainLoginModule required username="u" password="hunter2";\n'
    )
    code, said = called(capsys, *ENDS, "--topics", "x", "--to-config", str(file))
    assert code == 2
    assert "GSSAPI is not offered" in said
    assert "hunter2" not in said


def test_time_left_is_readable():
    assert [_duration(seconds) for seconds in (3.4, 75, 7260)] == ["3 s", "1 min 15 s", "2 h 1 min"]
