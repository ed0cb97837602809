"""The link table's ratios compare with the better MirrorMaker 2, figure by figure."""

from bench.links.report import at_most, less, line, loads


def side(mb_s, mb_cpu_s):
    return {"mb_s": mb_s, "mb_cpu_s": mb_cpu_s, "resident_mb": 100.0}


def test_more_is_better_beside_the_better_of_both():
    sides = {"isthmus": side(100.0, 500.0), "mm2": side(40.0, 50.0), "mm2_tuned": side(60.0, 45.0)}
    row = loads("catch-up", sides, 1.5, 10.0)
    assert (row["ratio_mb_s"], row["ratio_mb_cpu_s"], row["met"]) == (1.667, 10.0, True)
    assert loads("catch-up", sides, 2.0, 10.0)["met"] is False
    assert "must be better" in line(loads("catch-up", sides, 2.0, 10.0))


def test_less_is_better_by_the_worst_figure():
    sides = {
        "isthmus": {"p50_ms": 5.0, "p99_ms": 20.0},
        "mm2": {"p50_ms": 40.0, "p99_ms": 60.0},
        "mm2_tuned": {"p50_ms": 90.0, "p99_ms": 50.0},
    }
    row = less("latency", sides, ("p50_ms", "p99_ms"), 0.25)
    assert (row["ratio"], row["met"]) == (0.4, False)


def test_without_a_peer_nothing_is_claimed():
    row = loads("catch-up", {"isthmus": side(1.0, 1.0)}, 2.0, 10.0)
    assert row["met"] is None
    assert line(row)


def test_a_bound_on_ours_alone_and_who_gave_up():
    row = at_most("start", {"isthmus": {"s": 1.5}}, 1.5, 2.0) | {"given_up": {"mm2": "not done within 300 s"}}
    assert row["met"] is True
    assert "mm2: not done within 300 s" in line(row)
    assert at_most("start", {}, None, 2.0)["met"] is None
