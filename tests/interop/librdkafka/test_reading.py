"""The reader of the test-runner's output does not take a failure for a success."""

import pytest

from tests.interop.librdkafka.runner import read_result

PASSED = """\
[0012_produce_consume        /  1.500s] [ do_test_basics:12: something: PASS (0.10s) ]
============== ALL TESTS PASSED ==============
#==================================================================#
| <MAIN>                                   |     PASSED |   1.700s |
| 0012_produce_consume                     |     PASSED |   1.500s |
| 0012_other                               |    SKIPPED |   0.000s | not today
#==================================================================#
"""
FAILED = """\
### Test "0012_produce_consume (do_test_basics:9)" failed at 0012.c:64:verify() at Sat Nov 28: ###
Expected 3 messages, not 2
### Test "<MAIN>" failed at test.c:1950:test_wait_exit() at Sat Nov 28: ###
4 thread(s) still active in librdkafka
"""
NAME = "0012_produce_consume"


@pytest.mark.parametrize(
    ("name", "part", "text", "code", "status", "note"),
    [
        (NAME, "", PASSED, 0, "passed", ""),
        ("0012_other", "", PASSED, 0, "skipped", "not today"),
        (NAME, "", FAILED, -6, "failed", "Expected 3 messages, not 2"),
        (NAME, "", FAILED + PASSED, 1, "failed", "Expected 3 messages, not 2"),
        ("0012_other", "", FAILED, -6, "failed", "4 thread(s) still active in librdkafka"),
        (NAME, "", "", -9, "failed", "killed: it did not end in time"),
        (NAME, "", PASSED, -11, "failed", "crashed"),
        (NAME, "", "nothing", 0, "failed", "the runner says nothing of it (exit code 0)"),
        (f"{NAME}:basics", "basics", PASSED, 0, "passed", ""),
        (f"{NAME}:more", "more", PASSED, 0, "failed", "no subtest do_test_more has run"),
    ],
)
def test_what_the_runner_says(name: str, part: str, text: str, code: int, status: str, note: str) -> None:
    result = read_result(name, part, text, code, 1.0)
    assert (result.name, result.status, result.note) == (name, status, note)
