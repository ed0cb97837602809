"""How a link as a whole stands, by what its workers say; and how a process counts since when it waits."""

from protocol.client import ConnectError
from protocol.types import TopicPartition
from replicator.latency import Latencies
from replicator.link_report import at_worker, left_out, topic_latencies
from replicator.link_standing import in_words, link_standing
from replicator.phase import CLAIM, COPIES, FENCING, FIRST, TAKE_OVER, Phase
from replicator.settings import LinkSettings
from replicator.troubles import Troubles
from replicator.workers.control import Wish
from replicator.workers.report import WorkerReport

NOW = 1_000_000_000


def worker(name, **said):
    return WorkerReport(name, name, at_ms=NOW, began_ms=NOW - 60_000, **said)


def waits(step, since=NOW - 5000, reason=""):
    phase = Phase(step, lambda: since)
    troubles = Troubles(lambda: since)
    if reason:
        troubles.note("start", reason)
    return phase.to_json(troubles.get("start"), link="east->west")


def standing(*workers, **said):
    return link_standing(workers, "east->west", **{"known": True, **said})


def test_one_that_copies_makes_the_link_run_whatever_others_wait_for():
    found = standing(worker("a", standing=waits(CLAIM)), worker("b", standing=waits(COPIES, NOW - 9000)))
    assert (found["state"], found["since_ms"], found["reason"]) == ("running", NOW - 9000, "")


def test_a_link_that_runs_and_does_not_reach_a_cluster_says_so_first():
    silent = {"west": "west cannot be reached", "topics": "no broker can be reached"}
    found = standing(worker("a"), worker("b", problems=silent))
    assert (found["state"], found["reason"]) == ("running", "west cannot be reached")
    assert standing(worker("a", problems={"orders": "it has other settings"}))["reason"] == ""


def test_a_worker_of_an_older_version_that_says_no_state_copies():
    assert standing(worker("a")) == link_standing([worker("a")], "east->west", known=True)
    assert (standing(worker("a"))["state"], standing(worker("a"))["since_ms"]) == ("running", NOW - 60_000)


def test_of_several_that_wait_the_leader_tells_why():
    leader = worker("b", leads=True, standing=waits(TAKE_OVER, reason="MirrorMaker 2 still copies"))
    found = standing(worker("a", standing=waits(FIRST, reason="not begun")), leader)
    assert (found["state"], found["reason"]) == ("starting", "MirrorMaker 2 still copies")


def test_nobody_and_nobody_any_more_are_told_apart_with_what_to_do():
    gone = standing(worker("host:7", silent=True))
    assert (gone["state"], gone["since_ms"]) == ("not running", NOW)
    assert "host:7" in gone["reason"]
    never = standing(known=False, source_problem="east cannot be reached")
    assert never["since_ms"] is None
    assert "ever" in never["reason"]
    assert "east cannot be reached" in never["reason"]
    for found in (gone, never):
        assert "isthmus replicate FILE --link 'east->west'" in found["to_do"]
        assert in_words(found, "")[0].startswith("state: not running")


def test_a_link_that_is_paused_as_a_whole_says_by_whom():
    found = standing(worker("a"), paused=Wish("me", NOW - 7000, "upgrade"))
    assert (found["state"], found["reason"]) == ("paused", "paused by me: upgrade")
    assert found["since_ms"] == NOW - 7000
    assert "isthmus links resume" in found["to_do"]


def test_a_step_lasts_since_it_was_entered_first_and_what_is_tried_again_begins_nothing_anew():
    now = iter(range(100, 200))
    phase = Phase(FIRST, lambda: next(now))
    assert phase.since_ms == 100
    phase.enter(FENCING)
    phase.enter(FENCING)
    assert phase.since_ms == 101
    phase.enter(TAKE_OVER)
    assert phase.since_ms == 102


def test_a_trouble_keeps_its_beginning_while_its_words_change():
    now = iter(range(100, 200))
    troubles = Troubles(lambda: next(now))
    error = ConnectError("no way")
    error.to_do = "go round"
    assert troubles.note("east", error)
    assert not troubles.note("east", error)
    assert troubles.note("east", "another word")
    assert (troubles.since, troubles.texts) == ({"east": 100}, {"east": "another word"})
    troubles.note("west", error)
    assert (troubles["west"].what, troubles["west"].to_do) == ("no way", "go round")
    assert troubles.texts["west"] == "no way; go round"


def test_what_to_do_names_the_link_and_is_said_once_a_step_takes_long():
    now = [0]
    phase = Phase(FIRST, lambda: now[0])
    assert phase.to_json(link="east->west")["to_do"] == ""
    now[0] = 3000
    assert "isthmus links check 'east->west'" in phase.to_json(link="east->west")["to_do"]
    assert "isthmus links check 'east->west'" in waits(FIRST, reason="not now")["to_do"]


def test_old_and_new_workers_read_each_other():
    one = worker("a", standing=waits(FIRST), problems={"start": "x"}, problems_since={"start": 5})
    assert WorkerReport.decode(one.encode()) == one


def test_percentiles_of_a_topic_are_those_of_all_its_records_on_all_workers():
    here, there = Latencies(0.0), Latencies(0.0)
    here.add(0.002, 98)
    there.add(0.5, 1)
    there.add(4.0, 1)
    workers = [
        WorkerReport.decode(worker(name, latencies={"orders": of.counts()}).encode())
        for name, of in (("a", here), ("b", there))
    ]
    gone = worker("c", silent=True, latencies={"orders": {9999: 1}, "old": {1: 1}})
    found = topic_latencies([*workers, gone])
    assert found.keys() == {"orders"}
    assert found["orders"]["records"] == 100
    assert found["orders"]["p50"] < 0.0022
    assert 0.5 <= found["orders"]["p99"] < 0.54
    assert found["orders"]["max"] >= 4


def test_a_link_that_was_handed_back_is_not_to_be_started_beside_mirrormaker():
    found = standing(handed_back_ms=7)
    assert (found["state"], found["since_ms"], found["reason"]) == (
        "not running",
        7,
        "MirrorMaker 2 has its work",
    )
    assert "stop that first" in found["to_do"]
    assert standing(worker("a"), handed_back_ms=7)["state"] == "running"


def test_what_filters_leave_out_is_told_from_what_is_behind():
    """By the filters of now, changed by command or not; what a worker says of its own counts before."""
    rows = [{"topic": name} | at_worker(TopicPartition(name, 0), None) for name in ("orders", "payments")]
    settings = LinkSettings(
        source={"alias": "east", "bootstrap": "a:1"}, target={"alias": "west", "bootstrap": "b:1"}
    )

    def reasons(live, of=rows):
        return [row["reason"] for row in left_out(of, settings, live)]

    assert reasons({}) == [None, None]
    assert reasons({"topics": ["pay.*"]}) == ["no pattern in topics matches", None]
    assert reasons({"topics_exclude": ["pay.*"]}) == [None, "excluded by topics_exclude"]
    assert reasons({"naming": "identity"}) == [None, None]  # as an older version let one set it
    held = [rows[0] | {"worker": "vm:1", "reason": ""}]
    assert reasons({"topics": ["pay.*"]}, held) == [""]
