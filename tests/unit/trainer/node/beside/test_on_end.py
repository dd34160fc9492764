"""How a run ended, by its witnesses' reports; and the --on-end command runs once, and no longer than it may."""

import fcntl
import io
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lab import waiting
from trainer.node.beside import on_end
from trainer.node.membership import alive

# These tests start programs.
pytestmark = pytest.mark.long

HOME = Path(__file__).resolve().parents[5]


def said(verdict, **more):
    return {"verdicts": [{"verdict": verdict, "rank": 0, "node": "a", "step": 3, **more}], "codes": [0]}


SILENT, KILLED = {"verdicts": [], "codes": [1]}, {"verdicts": [], "codes": [None]}


@pytest.mark.parametrize(
    ("ends", "lost", "word", "code"),
    [
        ([said("done"), said("done")], [], "done", 0),
        ([said("done"), said("failed")], [], "failed", 1),
        ([said("stopped"), said("refused")], [], "refused", 2),
        ([said("stopped"), SILENT], [], "stopped", 75),
        ([{**said("stopped"), "limit": True}, SILENT], [], "max-hours", 75),
        (
            [said("failed", message="was killed by SIGKILL", cause="container-out-of-memory")],
            [],
            "out-of-memory",
            1,
        ),
        ([SILENT, SILENT], [], "failed", 1),
        ([SILENT, KILLED], [], "killed", 137),
        ([SILENT], ["b"], "lost", 1),
        ([said("done")], ["b"], "lost", 1),
        ([said("done"), KILLED], [], "done", 0),
        ([said("failed")], ["b"], "failed", 1),
    ],
)
def test_the_worst_verdict_counts_and_a_silent_host_is_lost(ends, lost, word, code):
    told = on_end.describe(ends, lost)
    assert (told["end"], told["code"], told["lost"]) == (word, code, lost)


@pytest.mark.parametrize("since", [-5.0, float("nan"), True, 1e30])
def test_a_verdict_with_an_impossible_time_is_not_taken_as_the_first(since):
    odd, first = said("failed", since=since, message="odd"), said("failed", since=1e9, message="first")
    assert on_end.describe([odd, first], [])["message"] == "first"


@pytest.mark.parametrize(
    "end",
    [
        None,
        7,
        [],
        {"verdicts": 7, "codes": {}},
        {"verdicts": [7, {"verdict": []}], "codes": ["x", 1e9]},
        said("refused", code=2, since="x"),
        said("refused", code=2, message=["no", "text"]),
        said("odd", code=2),
        {"limit": "yes"},
    ],
)
def test_a_hostile_hosts_report_of_its_end_does_no_harm(end):
    odd = on_end._checked(end)
    told = on_end.describe([said("failed"), odd], [])
    assert (told["end"], odd["limit"]) == ("failed", False)


def plan(folder, command, **more):
    return {"command": command, "run": "r1", "folder": str(folder), "nodes": ["a"], "start": "r1-1", "restarts": False,
            "rank": 0, "hosts": [""], "names": ["a"], "place": 0, "port": 0, "token": "t", **more}  # fmt: skip


def witness(folder, command, **more):
    environment = {**os.environ, "PYTHONPATH": str(HOME), on_end.PLAN: json.dumps(plan(folder, command, **more))}
    return subprocess.Popen([sys.executable, "-P", "-m", "muster.trainer.node", "on_end"], env=environment)


def notes(folder):
    return waiting.events(folder, 0, "on_end")


def test_the_end_of_a_killed_node_is_reported(tmp_path):
    hold = (
        f"import time; from trainer.node.membership import alive\nfrom pathlib import Path\n"
        f"with alive.hold_lock(Path({str(tmp_path)!r}), 'a', 'r1-1'): time.sleep(600)"
    )
    node = subprocess.Popen([sys.executable, "-c", hold], env={**os.environ, "PYTHONPATH": str(HOME)})
    waiting.until(lambda: alive.read_lock(tmp_path, "a", "r1-1")[0], "the node")
    watching = witness(tmp_path, f'echo "$MUSTER_END $MUSTER_EXIT_CODE $MUSTER_RUN_ID" >{tmp_path}/told; exit 3')
    time.sleep(0.5)
    assert watching.poll() is None, "it waits as long as the node lives"
    node.kill()
    node.wait()
    assert watching.wait(timeout=30) == 0
    assert (tmp_path / "told").read_text() == "killed 137 r1\n"
    assert [note["error"] for note in notes(tmp_path)] == ["the command ended with code 3"]


def test_an_agent_that_waits_for_another_of_its_node_says_so(tmp_path):
    enter = (
        "from trainer.node.membership import alive\nfrom pathlib import Path\n"
        f"with alive.hold_lock(Path({str(tmp_path)!r}), 'a', 'r1-2'): print('begun')"
    )
    with alive.hold_lock(tmp_path, "a", "r1-1"):
        second = subprocess.Popen(
            [sys.executable, "-c", enter],
            env={**os.environ, "PYTHONPATH": str(HOME)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert second.stderr.readline().startswith("a: waits until another agent of this node has ended")
        assert second.poll() is None
    assert second.communicate(timeout=30)[0] == "begun\n"


def test_an_agent_whose_log_is_on_a_full_disk_still_waits_for_another(tmp_path, monkeypatch):
    asked = []

    def held(_, how):
        asked.append(how)
        if how & fcntl.LOCK_NB:
            raise BlockingIOError

    monkeypatch.setattr(alive.fcntl, "flock", held)
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(full, write_through=True))
        with alive.hold_lock(tmp_path, "a", "r1-2"):
            pass
    assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]


def test_an_earlier_start_of_the_run_is_not_this_one(tmp_path):
    with alive.hold_lock(tmp_path, "a", "r1-1") as leave:
        leave(0)
    assert alive.read_lock(tmp_path, "a", "r1-2") == (None, None)


def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(on_end, "COMMAND_S", 0.3)
    about = {**on_end.describe([said("done")], []), "run": "r1", "seconds": 1.0}
    on_end.act(plan(tmp_path, f"echo began; sleep 4711 & echo $! >{tmp_path}/pid; wait"), about, {"A": "1"})
    assert [note["error"] for note in notes(tmp_path)] == ["the command was killed: it was still running after 0 s"]
    waiting.until(lambda: not waiting.alive(int((tmp_path / "pid").read_text())), "its child to be gone")
    assert (tmp_path / "logs/on-end.log").read_text() == "began\n"


@pytest.mark.parametrize("odd", [{"message": "ValueError: \ud800"}, {"message": "a\0b"}, {"node": [1]}, {"step": {}}])
def test_the_command_runs_whatever_a_host_says_about_the_end(tmp_path, odd):
    about = {**on_end.describe([said("failed", **odd)], []), "run": "r1", "seconds": 1.0}
    on_end.act(plan(tmp_path, "echo told"), about, {})
    assert ((tmp_path / "logs/on-end.log").read_text(), notes(tmp_path)[0]["error"]) == ("told\n", "")


def test_on_a_full_disk_the_command_still_does_all_of_its_work(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/on-end.log").symlink_to("/dev/full")
    on_end.act(plan(tmp_path, "head -c 300000 /dev/zero; echo; echo told >told"), {"end": "done"}, {})
    assert ((tmp_path / "told").read_text(), notes(tmp_path)[0]["error"]) == ("told\n", "")


@pytest.mark.holds("secrets-masked")
def test_what_the_command_prints_shows_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("PRESENT", "sesame-4712-present")
    monkeypatch.setenv("MUSTER_SECRETS_PRESENT", "PRESENT")
    on_end.act(plan(tmp_path, 'echo "a $HOOK b $PRESENT"'), {"end": "done"}, {"HOOK": "sesame-4711-handed"})
    assert (tmp_path / "logs" / "on-end.log").read_text() == "a *** b ***\n"


def test_a_url_that_does_not_answer_is_noted_and_nothing_more(tmp_path):
    on_end.act(plan(tmp_path, "http://127.0.0.1:9/"), {"end": "done", "lost": []}, {})
    assert "refused" in notes(tmp_path)[0]["error"]


def test_the_command_runs_once_when_many_hosts_have_lost_power(tmp_path, monkeypatch):
    """The first witness reports for only a few seconds that it has acted; asking each dead host takes a while."""
    began, hosts = time.monotonic(), [str(place) for place in range(20)]

    def ask(host, *_):
        if host != "0":
            time.sleep(0.2)
            return None
        seconds = time.monotonic() - began
        return {"ended": True, "acted": seconds > 0.5, "end": {}} if seconds < 2.5 else {}

    monkeypatch.setattr(on_end.peers, "ask", ask)
    assert on_end._another_acts(plan(tmp_path, "true", hosts=hosts, place=19))


@pytest.mark.holds("on-end-stays")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_nothing_is_posted_to_where_a_server_redirects(tmp_path, code):
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.command, self.path))
            self.send_response(code)
            self.send_header("Location", f"http://127.0.0.1:{port}/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        on_end.act(plan(tmp_path, f"http://127.0.0.1:{port}/hook"), {"end": "done", "lost": []}, {})
        server.shutdown()
    assert asked == [("POST", "/hook")]
    assert f"answered {code}, a redirect" in notes(tmp_path)[0]["error"]
