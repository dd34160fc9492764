"""The agent knows first-hand how ranks ended: which, when, with what code, and whether they ran out of memory."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from deploy.causes.end_causes import Cause
from trainer.node.agent.diary import Diary
from trainer.node.ending.rank_lives import Ends, Memory, ended_how, ended_why, new_life

HOME = os.getcwd()


def node(tmp_path, body, ranks=2, ask_after="", **variables):
    """Run one node with a user's script to its end; return its exit code, verdict, ranks' events and output."""
    (tmp_path / "train.py").write_text("import os, signal, sys, time\nrank = int(os.environ['RANK'])\n" + body)
    environment = {**os.environ, "PET_NPROC_PER_NODE": str(ranks), "MUSTER_RUN_DIR": str(tmp_path / "run")}
    environment |= {"MUSTER_NODE": "gpu-b", "PET_MASTER_PORT": "0", "PYTHONPATH": HOME, "OMP_NUM_THREADS": "1"}
    environment |= {"PET_MONITOR_INTERVAL": "0.1", "PET_SHUTDOWN_TIMEOUT": "5", **variables}
    line = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    agent = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = b""
    for words in agent.stdout:
        said += words
        if ask_after and ask_after.encode() in words:
            agent.send_signal(signal.SIGINT)
    code = agent.wait(60)
    left = tmp_path / "run/outcome/gpu-b-agent.json"
    events = [json.loads(line) for path in (tmp_path / "run/ranks").glob("*") for line in path.read_text().splitlines()]
    return code, json.loads(left.read_text()) if left.exists() else None, events, said.decode()


def ends(events):
    return {event["rank"]: event["code"] for event in events if event["kind"] == "ended"}


@pytest.mark.torch
def test_each_rank_is_reported_with_its_end_except_those_that_torchrun_ends(tmp_path):
    code, verdict, events, _ = node(tmp_path, "if rank == 1: os.kill(os.getpid(), 11)\ntime.sleep(60)")
    assert code == 1
    assert (verdict["verdict"], verdict["rank"], verdict["since"] > 0) == ("failed", 1, True)
    assert ends(events) == {1: -signal.SIGSEGV}
    assert {event["rank"] for event in events if event["kind"] == "began"} == {0, 1}


@pytest.mark.torch
def test_a_rank_that_ends_with_0_is_reported_while_the_other_continues(tmp_path):
    wait = "path = os.environ['MUSTER_RUN_DIR'] + '/ranks/rank-1.jsonl'\n"
    wait += "while rank == 0 and not (os.path.exists(path) and 'ended' in open(path).read()): time.sleep(0.05)"
    code, verdict, events, _ = node(tmp_path, wait)
    assert (code, verdict["verdict"], ends(events)) == (0, "done", {0: 0, 1: 0})


@pytest.mark.torch
def test_a_run_whose_rank_failed_before_it_was_asked_to_stop_has_failed(tmp_path):
    # The other rank takes a second to end, so that the request to stop comes while torchrun waits for it.
    body = "if rank == 1: raise ValueError('bad sample 7')\n"
    body += "signal.signal(15, lambda *_: (print('ending', flush=True), time.sleep(1), sys.exit(0)))\ntime.sleep(60)"
    code, verdict, _, _ = node(tmp_path, body, ask_after="ending")
    assert (code, verdict["verdict"], verdict["rank"]) == (1, "failed", 1)
    assert "ValueError: bad sample 7" in verdict["message"]


@pytest.mark.torch
def test_a_run_that_is_asked_to_stop_first_is_stopped_whatever_its_ranks_then_do(tmp_path):
    body = "signal.signal(15, lambda *_: os._exit(3))\nprint('here', flush=True)\ntime.sleep(60)"
    code, verdict, _, _ = node(tmp_path, body, ranks=1, ask_after="here")
    assert (code, verdict["verdict"]) == (75, "stopped")


def counts_of(tmp_path, text):
    """Return the file with the kernel's counts for this process's control group, with `text` as its first content."""
    counter = counter_of(tmp_path, "0::/box", "box/memory.events")
    counter.write_text(text)
    return counter


def counter_of(tmp_path, line, place):
    """Return the path of a control group's file, after /proc is made to say that this process is in that group."""
    own, counter = tmp_path / "proc/self/cgroup", tmp_path / "sys/fs/cgroup" / place
    for folder in (own.parent, counter.parent):
        folder.mkdir(parents=True)
    own.write_text(line + "\n")
    return counter


def test_a_kill_is_called_out_of_memory_only_if_the_kernel_says_so(tmp_path):
    counter = counts_of(tmp_path, "oom 0\noom_kill 2\n")
    memory = Memory(tmp_path)
    assert memory.killed() is False
    counter.write_text("oom 1\noom_kill 3\n")
    assert memory.killed() is True
    assert Memory(tmp_path / "nowhere").killed() is None
    said = {oom: ended_how(-9, oom) for oom in (True, False, None)}
    assert "out of memory in its container: the kernel says so" in said[True]
    assert "from outside (the kernel" in said[False]
    assert "not known" in said[None]
    assert ended_how(-11, True) == "was killed by SIGSEGV"
    assert ended_how(-40) == "was killed by SIGRTMIN+6"  # a signal without a name of its own


def test_each_cause_that_an_agent_names_is_in_the_control_sides_list():
    causes = [ended_why(-9, True), ended_why(-9, True, of_host=True), ended_why(-9, False), ended_why(-11, True)]
    assert causes == ["container-out-of-memory", "host-out-of-memory", "killed", "killed"]
    assert all(
        map(Cause.of_slug, [*causes, "stopped", "locked-up", "trained-alone", "left-early", "ended-from-outside"])
    )
    assert ended_why(1) == "", "of an exception its words tell"


@pytest.mark.parametrize("line", ["5:memory,cpu:/box", "3:cpu:/\n7:memory:/box"])
def test_version_1_of_control_groups_is_read_as_well(tmp_path, line):
    counter = counter_of(tmp_path, line, "memory/box/memory.oom_control")
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    memory = Memory(tmp_path)
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert memory.killed() is True


@pytest.mark.parametrize(("met", "of_host"), [(4, True), (5, False)])
def test_a_kill_is_blamed_on_the_host_if_the_container_has_not_reached_its_own_limit(tmp_path, met, of_host):
    counter = counts_of(tmp_path, "low 0\noom 4\noom_kill 1\n")
    memory = Memory(tmp_path)
    assert memory.killed() is False
    counter.write_text(f"low 0\noom {met}\noom_kill 2\n")
    assert (memory.killed(), memory.of_host()) == (True, of_host)


def test_without_kernel_counts_from_start_to_end_an_out_of_memory_kill_is_unknown(tmp_path):
    counter = counter_of(tmp_path, "0::/box", "box/memory.events")
    late = Memory(tmp_path)
    counter.write_text("oom 0\noom_kill 1\n")
    early = Memory(tmp_path)
    assert (late.killed(), early.killed()) == (None, False)
    counter.unlink()
    assert early.killed() is None


def test_a_rank_that_ended_by_itself_is_reported_with_its_code_and_no_cause():
    assert [ended_how(code) for code in (0, 3)] == ["ended with code 0", "ended with code 3"]
    assert ended_why(0) == ""


def test_a_line_that_is_still_being_written_is_read_once_it_is_whole(tmp_path):
    path, noted = tmp_path / "journal.jsonl", Ends(tmp_path)
    whole = json.dumps({"t": 1.0, "local_rank": 0, "rank": 4, "world": 8, "attempt": 0, "pid": 7}) + "\n"
    path.write_text(whole + '{"t": 2.0, "local')
    assert [life.rank for life in noted.read()] == [4]
    with path.open("a") as file:
        file.write('_rank": 0, "pid": 7, "code": 0}\n')
    assert [(life.rank, life.code, life.ended) for life in noted.read()] == [(4, 0, 2.0)]


def test_each_start_of_a_rank_is_a_life_of_its_own():
    given = {"RANK": "3", "TORCHELASTIC_RESTART_COUNT": "2"}
    first, second = new_life(given), new_life(given)
    assert first != second
    assert [life.rpartition("-")[0] for life in (first, second)] == ["3-2", "3-2"]


@pytest.mark.parametrize(
    ("crash", "how", "error"),
    [
        ({"why": "b.py failed", "error": "ValueError: 1"}, "ended with code 0, but b.py failed", "ValueError: 1"),
        (None, "ended with code 1", ""),
        ("b.py failed", "ended with code 1", ""),
        ({"why": ["\x1b[2J"], "cause": {}}, "ended with code 0, but ['\\x1b[2J']", ""),
    ],
)
def test_the_end_note_of_a_rank_that_ended_with_0_says_which_process_below_failed(tmp_path, crash, how, error):
    """This holds even if a script has written a note there that the agent does not accept."""
    begin = {"local_rank": 0, "rank": 1, "attempt": 0, "world": 3, "pid": 14, "t": 100.0}
    end = {"local_rank": 0, "pid": 14, "t": 101.0, "code": 1, "crash": crash}
    for odd in ({}, {"why": "x", "more": 1}, {"1": 2}):
        (tmp_path / "journal.jsonl").write_text(f"{json.dumps(begin)}\n{json.dumps({**end, 'crash': odd})}\n")
        assert [life.code for life in Ends(tmp_path).read()] == [None], "a crash has a reason, and nothing else"
    (tmp_path / "journal.jsonl").write_text(f"{json.dumps(begin)}\n{json.dumps(end)}\n")
    diary = Diary(tmp_path / "run", "n1", tmp_path)
    diary.record_news(lambda local_rank: "")
    (told,) = told_ends(tmp_path)
    assert (told["how"], told["error"]) == (how, error)


def test_the_agent_reports_ranks_whose_torchrun_was_killed_by_a_signal(tmp_path):
    place = {"rank": 1, "attempt": 0, "world": 3, "pid": 14, "t": 100.0}
    rows = [{"local_rank": 0, **place}, {"local_rank": 1, **place, "rank": 2}, {"local_rank": 1, "t": 101.0, "code": 0}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    diary = Diary(tmp_path / "run", "n1", tmp_path)
    diary.record_news(lambda local_rank: "")
    diary.report_torchrun_end(-11, lambda local_rank: "")
    ended = told_ends(tmp_path)
    assert [(event["rank"], event["code"]) for event in ended] == [(1, -11), (2, 0)]
    assert ended[0]["how"] == "lost its torchrun, which was killed by SIGSEGV"


def test_a_torchrun_killed_before_any_rank_began_is_reported_in_its_nodes_log(tmp_path, capsys):
    Diary(tmp_path / "run", "n1", tmp_path).report_torchrun_end(-11, lambda local_rank: "")
    assert capsys.readouterr().err == "n1 lost its torchrun, which was killed by SIGSEGV, before any rank started\n"


@pytest.mark.parametrize(
    ("code", "asked", "cut", "how", "cause"),
    [
        (-15, True, [], "was ended by the request to stop (SIGTERM)", "ended-from-outside"),
        (-9, True, [1], "was ended by the request to stop (SIGKILL)", "ended-from-outside"),
        (-15, False, [], "was killed by SIGTERM", "killed"),
        (-9, True, [], "was killed by SIGKILL", "killed"),
        (-11, True, [1], "was killed by SIGSEGV", "killed"),
    ],
)
def test_a_rank_that_ends_by_the_signal_of_a_stop_is_not_reported_as_killed(tmp_path, code, asked, cut, how, cause):
    place = {"rank": 1, "attempt": 0, "world": 3, "pid": 14, "t": 100.0}
    rows = [{"local_rank": 0, **place}, {"local_rank": 0, "pid": 14, "t": 101.0, "code": code}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    diary = Diary(tmp_path / "run", "n1", tmp_path)
    if asked:
        diary.report_stop_request(20.0)
        diary.killed_by_stop = cut
    diary.record_news(lambda local_rank: "")
    (told,) = told_ends(tmp_path)
    assert told["how"].startswith(how)
    assert told["cause"] == cause


def test_a_rank_that_torchrun_ends_is_reported_if_it_had_already_lost_a_peer(tmp_path):
    place = {"attempt": 0, "world": 3, "t": 100.0}
    rows = [{"local_rank": rank, "rank": rank, "pid": 14 + rank, **place} for rank in (0, 1)]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    diary = Diary(tmp_path / "run", "n1", tmp_path)
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:1: Connection reset by peer."
    words = ["Traceback (most recent call last):\n" + lost, "step 7\n"]
    diary.record_news(words.__getitem__)
    diary.report_torchrun_end(1, words.__getitem__)
    (told,) = told_ends(tmp_path)
    assert (told["rank"], told["code"], told["victim"]) == (0, 1, True)
    assert "Connection reset" in told["error"]


@pytest.mark.parametrize(("oom", "shown"), [(True, ("loading shard 7",)), (None, ("loading shard 7",)), (False, ())])
def test_the_last_lines_of_a_rank_killed_from_outside_do_not_hide_the_kill(tmp_path, oom, shown):
    place = {"local_rank": 0, "rank": 1, "attempt": 0, "world": 3, "pid": 14, "t": 100.0}
    (tmp_path / "journal.jsonl").write_text(f"{json.dumps(place)}\n{json.dumps({**place, 'code': -9})}\n")
    diary = Diary(tmp_path / "run", "n1", tmp_path)
    diary._memory = SimpleNamespace(killed=lambda: oom, of_host=lambda: False)
    diary.record_news(lambda local_rank: "loading shard 7\n")
    (failure,) = diary.failures
    assert failure.last_words.words == shown


@pytest.mark.holds("secrets-masked")
def test_events_show_no_secret_that_a_rank_has_written_into_names_and_notes(tmp_path):
    key, place = "sk-4711/sesame+open", {"local_rank": 0, "rank": 0, "world": 1, "attempt": 0, "pid": 14, "t": 100.0}
    # A process that no longer has the variable with the secret masks nothing itself.
    error = {"pid": 14, "error": f"ValueError: 401 for https://u:{key}@host"}
    rows = (error, place, {**place, "code": 1})
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    diary = Diary(tmp_path / "run", "n1", tmp_path, hidden=[key])
    diary.event("stuck", 0, file=f"key_{key}.py", collectives=[["0", 1, "f_sk_4711_sesame_open"]])
    diary.record_news(lambda local_rank: "")
    text = (tmp_path / "run/ranks/rank-0.jsonl").read_text()
    assert '"file": "key_***.py"' in text
    assert '["0", 1, "f_***"]' in text
    assert "https://u:***@host" in text
    assert diary.culprit.last_words.error == "ValueError: 401 for https://u:***@host"
    assert "sesame" not in text


def told_ends(folder):
    lines = [line for path in sorted((folder / "run" / "ranks").iterdir()) for line in path.read_text().splitlines()]
    return [event for line in lines if (event := json.loads(line))["kind"] == "ended"]
