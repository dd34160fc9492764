"""The sentence in a run's story for each event, as a user reads it, and which sentences are grave."""

import pytest

from deploy.core.facts import NodeState
from deploy.run.state.sentences import apart_words, lost_in, recovered_sentence, regroup_words, sentence_of


def of_role(phase, role="reward", node="gpu-2", **more):
    return {"kind": "role", "role": role, "node": node, "phase": phase, **more}


def outside(*paths, files=1, size=10):
    return {"kind": "outside", "node": "gpu-2", "paths": list(paths), "files": files, "bytes": size}


def aside(files=0, size=10, place="earlier/1", **more):
    return {"kind": "put_aside", "node": "gpu-2", "files": files, "bytes": size, "place": place, **more}


@pytest.mark.parametrize(
    ("event", "words", "grave"),
    [
        ({"kind": "checkpoint_failed", "step": 7, "message": "disk full"}, "at step 7 failed: disk full", True),
        ({"kind": "checkpoint_damaged", "message": "step-7"}, "skipped a damaged checkpoint: step-7", True),
        ({"kind": "own_library", "path": "work/muster"}, "loads the script's own work/muster, not Muster's", False),
        (
            {"kind": "shared", "files": 2, "bytes": 10, "source": "a", "node": "b"},
            "copying 2 files (10 B) from a to b",
            False,
        ),
        (
            {"kind": "evaluated", "step": 9, "values": {"accuracy": 0.5, "loss": 1.25}},
            "step 9: held-out accuracy 50.0 %, held-out loss 1.25",
            False,
        ),
        ({"kind": "evaluated", "step": 9, "values": {"loss": 1.25}}, "step 9: held-out loss 1.25", False),
        (aside(3), "3 files (10 B) from earlier starts on gpu-2 are kept in earlier/1/", False),
        (aside(message="a link"), "files (10 B) from earlier starts on gpu-2 are kept in earlier/1/ (a link)", False),
        (
            aside(place="", message="no room"),
            "could not be put aside, and this start may overwrite them: no room",
            True,
        ),
        (of_role("ready"), "reward on gpu-2 is ready", False),
        (of_role("ready", node="reward-0"), "reward-0 is ready", False),
        (of_role("ready", node="reward"), "reward is ready", False),
        (of_role("ready", node="rewards-0"), "reward on rewards-0 is ready", False),
        (of_role("ended", again=True), "reward on gpu-2 has ended: it starts again (restart 1)", True),
        (of_role("ended", again=True, restarts=4, why="died"), "gpu-2 died: it starts again (restart 4)", True),
        (outside("/opt/a/m.pt"), "wrote /opt/a/m.pt (10 B) where nothing is kept: it is lost with the", True),
        (outside("/opt/a b/m.pt"), "`--keep '/opt/a b'` keeps it", True),
        (outside("/m.pt", "/n.pt", files=3), "wrote /m.pt and 2 other files (10 B) where nothing is kept", True),
        (outside("/m.pt"), "`--keep /` keeps it", True),
        (outside("/muster/run/x.pt"), "outside its folder: at a restart, no other host gets it", False),
        (outside("/muster/cache/x.pt"), "among the shared downloads, which a fetch does not copy", True),
    ],
)
def test_an_event_is_one_sentence(event, words, grave):
    text, is_grave = sentence_of(event)
    assert words in text
    assert is_grave == grave


def test_a_role_that_keeps_dying_is_reported_less_and_less_often():
    told = [n for n in range(1, 40) if sentence_of(of_role("ended", again=True, restarts=n))]
    assert told == [1, 2, 4, 8, 16, 32]
    assert sentence_of(of_role("ended")) is None, "one that does not start again is told of by its end"
    assert sentence_of({"kind": "step"}) is None


def members(now, before=("a", "b", "c"), planned=3, **more):
    return {"members": list(now), "before": list(before), "planned": planned, **more}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (members("ab"), "c is lost: a and b continue from step 8 (2 of 3 nodes)"),
        (members("a"), "b and c are lost: a continues from step 8 (1 of 3 nodes)"),
        (members("ab", left=["c"]), "c has left: a and b continue from step 8 (2 of 3 nodes)"),
        (members("abc", "ab"), "c is back: a, b and c continue from step 8 (3 of 3 nodes)"),
        (
            members("abd", spares=["d"]),
            "c is lost; d takes a free place: a, b and d continue from step 8 (3 of 3 nodes)",
        ),
        (members("ac", "ab"), "b is lost; c is back: a and c continue from step 8 (2 of 3 nodes)"),
        (members("abc"), ""),
    ],
)
def test_a_change_of_nodes_says_who_is_lost_has_left_or_is_back_and_who_continues(event, words):
    assert regroup_words(event, step=8) == words


def test_a_scripts_step_is_not_given_and_a_lost_node_that_still_runs_is_cut_off():
    cut = apart_words({"left_out": "c", "others": ["a"]})
    assert cut == "c and a are cut off from each other"
    assert regroup_words(members("ab"), script=True, apart={"c": cut}) == (
        f"{cut}: a and b start the script again from what it kept (2 of 3 nodes)"
    )
    assert regroup_words(members("a"), apart={"c": cut}).startswith("b and c are lost")
    assert lost_in(members("a", left=["b"])) == ["c"]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("paused", "b is no longer paused, after 5 s"),
        ("closed", "b can write into the run's folder again"),
        ("unseen", "b answers again"),
    ],
)
def test_the_end_of_a_trouble_is_reported_for_a_running_node_only(trouble, words):
    assert recovered_sentence(NodeState("b", "running"), "b", trouble, 5.0) == words
    assert recovered_sentence(NodeState("b", "exited", 1), "b", trouble, 5.0) == ""
