"""What `muster why` reports when ranks have ended or cannot answer, and which rank is slow."""

import json
import time

from deploy.commands import main
from deploy.host.facts import Container
from deploy.hosts.look import why
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.inquest.hang import RankDoing


def container(place, code):
    return Container("r1", f"h{place}", place, 2, "muster-r1", "exited" if code is not None else "running", code, 29500)


def test_a_run_whose_nodes_have_all_ended_is_reported_with_the_command_that_shows_its_end(capsys):
    assert why._is_over("r1", {"h0": container(0, 1), "h1": container(1, 137)}, "me@h0:2222,h1", Console())
    said = "".join(capsys.readouterr())
    assert "r1 has ended: h0 ended with code 1, h1 was killed by SIGKILL" in said
    assert "attach --hosts me@h0:2222,h1 --run r1" in said
    assert not why._is_over("r1", {"h0": container(0, 1), "h1": container(1, None)}, "h0,h1", Console())


def test_an_ended_local_run_is_reported_with_how_it_ended_and_no_error(tmp_path, monkeypatch, capsys):
    """A rank that was killed immediately leaves a record of its last action; it was once shown as answering no look."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho \'{"rank": 0, "node": "a", "doing": "silent"}\'\n')
    program.chmod(0o700)
    monkeypatch.setattr(why.sys, "executable", str(program))
    monkeypatch.setattr(why.folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/record.json").write_text('{"format": 1, "nodes": ["a"]}')
    (tmp_path / "r1/outcome.json").write_text('{"verdict": "stopped", "message": "train.py was asked to stop"}')
    assert why.why_here(Options(run="r1"), Console()) == 0
    said = "".join(capsys.readouterr())
    assert "r1 has ended: train.py was asked to stop" in said
    assert "muster explain r1" in said


def test_a_silent_local_node_is_reported_and_the_others_are_shown(tmp_path, monkeypatch, capsys):
    """As when its disk hangs: once, the command ended with a traceback and reported no rank."""
    program = tmp_path / "python"
    rank = '{"rank": 1, "node": "b", "doing": "script", "file": "train.py", "line": 7}'
    program.write_text(f"#!/bin/sh\n[ $MUSTER_NODE = a ] && exec sleep 60\necho '{rank}'\n")
    program.chmod(0o700)
    monkeypatch.setattr(why, "_LOOK_S", 3.0)  # the other node's answer takes a second on a busy machine
    monkeypatch.setattr(why.sys, "executable", str(program))
    monkeypatch.setattr(why.folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/record.json").write_text('{"format": 1, "nodes": ["a", "b"]}')
    assert why.why_here(Options(run="r1"), Console()) == 1
    out, err = capsys.readouterr()
    assert "train.py:7" in out
    assert "a: its node cannot report: no answer for 3 s" in err


def test_a_run_whose_ranks_have_not_begun_is_no_fault(tmp_path, monkeypatch, capsys):
    """`none of its ranks is running now`, with exit code 1, had read as a fault right after a start."""
    monkeypatch.setattr(why.sys, "executable", "/bin/true")
    monkeypatch.setattr(why.folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/record.json").write_text('{"format": 1, "nodes": ["a"]}')
    assert why.why_here(Options(run="r1"), Console()) == 0
    assert capsys.readouterr().err.splitlines() == [
        "r1: its ranks have not started yet",
        "hint: to see them start: muster attach --run r1",
    ]


def steps_of(folder, rank, node, own_ms, wait_ms, t):
    step = {
        "kind": "step",
        "rank": rank,
        "node": node,
        "step_ms": own_ms + wait_ms,
        "compute_ms": own_ms,
        "wait_ms": wait_ms,
    }
    lines = [json.dumps({**step, "t": t + number, "step": number, "count": 1}) for number in range(1, 9)]
    (folder / f"ranks/rank-{rank}.jsonl").write_text("\n".join([*lines, ""]))


def test_the_slow_rank_is_named_from_the_steps_of_the_last_minute(tmp_path):
    ranks = [RankDoing(0, "rack-1", "backward"), RankDoing(1, "rack-2", "script")]
    (tmp_path / "ranks").mkdir()
    for age, named in ((10.0, True), (500.0, False)):
        steps_of(tmp_path, 0, "rack-1", 100.0, 2000.0, time.time() - age)
        steps_of(tmp_path, 1, "rack-2", 2100.0, 0.0, time.time() - age)
        assert why._slow(tmp_path, ranks).startswith("rack-2 (rank 1) is slow: it computes for 2100 ms") == named
    assert not why._slow(tmp_path / "not-here", ranks)


def test_a_host_that_did_not_answer_is_named_and_not_listed_as_without_runs(tmp_path, monkeypatch, capfd):
    """`muster why latets`, a typing error, was once answered by "which run?: they have no runs"."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["why", "no-such.invalid"]) == 1
    said = capfd.readouterr().err
    assert "no-such.invalid: the name no-such.invalid does not resolve" in said
    assert "no runs" not in said
