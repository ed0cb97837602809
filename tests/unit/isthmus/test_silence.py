"""When a producer's silence is said: not for slow input, once after some seconds, again much later."""

from isthmus.silence import Silence


def test_only_records_that_wait_count_as_silence() -> None:
    clock, said = [0.0], list[str]()
    silence = Silence(said.append, lambda: ": why", lambda: clock[0])
    clock[0] = 60.0
    silence.look(0)  # the first line of standard input took a minute
    clock[0] = 64.0
    silence.look(3)
    assert said == []
    for clock[0] in (65.0, 66.0, 94.0):
        silence.look(3)
    assert said == ["no acknowledgement for 5 s, 3 records waiting, still trying: why"]
    clock[0] = 95.0
    silence.look(1)
    silence.heard()
    clock[0] = 101.0
    silence.look(2)
    assert [line.partition(",")[0] for line in said[1:]] == [
        "no acknowledgement for 35 s",
        "no acknowledgement for 6 s",
    ]
