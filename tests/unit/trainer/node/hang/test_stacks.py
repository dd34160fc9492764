"""What a rank's threads do is read from the looks that the watcher and faulthandler take of real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.waiting import until
from tests.started import started
from trainer.node.ending.rank_lives import Life
from trainer.node.hang import stacks, stuck_ranks

# These tests start programs.
pytestmark = pytest.mark.long

SITE = os.path.join(os.getcwd(), "trainer", "node", "rank", "site")
# The pause between looks is shortened first: with faulthandler armed for 0.5 s and pauses of 2 s, a rank that only
# sleeps would seem locked. The watcher's own thread may already be in a pause of 2 s, so a second thread is started.
HURRY = """
import _thread, gc, sys, threading, time
sys.modules["_muster_watch.steps.watcher"].LOOK_SECONDS = 0.1
looks = sys.modules["_muster_watch.looks"]
looks.SECONDS, looks._LOCKED_SECONDS, looks._ARM_EVERY = 0.1, 0.5, 1
[_thread.start_new_thread(thing._run, ()) for thing in gc.get_objects() if type(thing).__name__ == "Watcher"]
"""


@pytest.fixture
def rank(tmp_path):
    """Return a function that starts a rank's Python with `body` from line 7 on, and returns the file of its stacks."""
    started = []

    def start(body, **variables):
        (tmp_path / "train.py").write_text(HURRY + body)
        environment = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path), "RANK": "1", "LOCAL_RANK": "1"}
        environment |= {"PYTHONPATH": SITE, "PYTHONSAFEPATH": "", **variables}
        started.append(subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, env=environment))
        return tmp_path / "1.stacks"

    yield start
    for process in started:
        process.kill()
        process.wait()


def looks_of(path, enough=stacks.are_same):
    return until(lambda: enough(found := stacks.read(path)) and found, "looks")


def at_time(monkeypatch, now):
    """Replace the agent's clocks by `now`."""
    for name in ("time", "monotonic"):
        monkeypatch.setattr(stuck_ranks.time, name, now)


def test_a_rank_that_sleeps_is_named_with_its_line(rank, tmp_path):
    # On a busy machine the watcher may be late, and the look is then faulthandler's, which has no time.
    path = rank("def read():\n    time.sleep(60)\nread()\n")
    looks = looks_of(path, lambda found: stacks.are_same(found) if found and not found[-1].locked else None)
    doing = stacks.doing(looks[-1])
    assert (doing.what, doing.own) == ("script", stacks.Frame(str(tmp_path / "train.py"), 8, "read"))
    assert len(looks) == 3
    assert looks[-1].t > 0


def test_a_rank_that_waits_for_another_thread_is_in_a_lock_at_its_own_line(rank, tmp_path):
    body = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nthreading.Event().wait()\n"
    looks = looks_of(rank(body))
    doing = stacks.doing(looks[-1], tmp_path)
    assert (doing.what, doing.own.line, len(looks[-1].threads)) == ("lock", 8, 2)


def test_a_rank_that_keeps_working_is_not_stuck(rank):
    path = rank("while True:\n" + 6 * "    sum(range(2000))\n")
    calls = set()

    def several(looks):
        calls.update(stacks._from_own(look) for look in looks)
        return len(calls) > 3

    looks_of(path, several)


def test_an_interpreter_that_is_locked_is_looked_at_from_outside(rank, tmp_path):
    path = rank("import ctypes\ntime.sleep(1)\nctypes.PyDLL(None).sleep(60)\n")
    # On a busy machine the watcher may be late, and faulthandler looks once before the lock, at line 8.
    here = stacks.Frame(str(tmp_path / "train.py"), 9, "<module>")
    looks = looks_of(path, lambda found: found and found[-1].locked and stacks.doing(found[-1]).own == here)
    assert looks[-1].pid == looks[0].pid


def test_a_script_that_uses_faulthandlers_thread_itself_keeps_it(rank, tmp_path):
    body = "import faulthandler, ctypes\nfile = open('own', 'w')\nfaulthandler.dump_traceback_later(1, file=file)\n"
    path = rank(body + "ctypes.PyDLL(None).sleep(60)\n")
    until(lambda: "Timeout" in (tmp_path / "own").read_text() if (tmp_path / "own").exists() else False, "its own look")
    assert not any(look.locked for look in stacks.read(path))


def test_a_script_that_is_not_to_be_watched_is_not_looked_at(tmp_path):
    environment = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path), "RANK": "1", "PYTHONPATH": SITE}
    words = "import sys, faulthandler; assert '_muster_watch' not in sys.modules"
    subprocess.run([sys.executable, "-c", words], env={**environment, "MUSTER_OBSERVE": "0"}, check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "torn", ["", "x" * 999, "Look {", 'Look {"step": "many"}\n  File', "Timeout (0:00:10)!\nThread 0x"]
)
def test_a_torn_file_is_read_as_far_as_it_goes(torn):
    assert all(stacks.doing(look).what == "script" for look in stacks.parse(torn))


COLLECTIVE = """Look {"t": 9.5, "pid": 7, "step": 12, "doing": "backward", "since_s": 31.0, "main": "0x01"}
Thread 0x02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
Thread 0x01 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 4000 in barrier
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train.py", line 88 in evaluate
  File "/home/me/train.py", line 120 in <module>
"""


def test_a_rank_in_a_collective_is_reported_at_the_scripts_line():
    (look,) = stacks.parse(COLLECTIVE)
    doing = stacks.doing(look)
    assert (doing.what, doing.own, doing.inner.function) == (
        "collective",
        stacks.Frame("/home/me/train.py", 88, "evaluate"),
        "barrier",
    )
    assert (look.step, look.since_s) == (12, 31.0)


@pytest.mark.parametrize(
    ("below", "what"),
    [("torch/utils/data/dataloader.py", "data"), ("torch/autograd/graph.py", "backward")],
)
def test_calls_below_the_watcher_tell_what_a_watched_function_waits_for(below, what):
    (look,) = stacks.parse(
        f"""Look {{"t": 9.5, "pid": 7, "step": 12, "main": "0x01"}}
Thread 0x01 (most recent call first):
  File "/x/site-packages/{below}", line 1275 in wait
  File "/x/trainer/node/rank/steps/torch_hooks.py", line 97 in following
  File "/home/me/train.py", line 28 in <module>
"""
    )
    doing = stacks.doing(look, Path("/home/me"))
    assert (doing.what, doing.own.line) == (what, 28)


def test_a_step_between_two_looks_is_progress():
    later = COLLECTIVE.replace('"step": 12', '"step": 13')
    assert stacks.are_same(stacks.parse(COLLECTIVE * 3))
    assert not stacks.are_same(stacks.parse(COLLECTIVE * 2 + later))


def test_the_steps_of_earlier_starts_are_counted_separately(tmp_path):
    (look,) = stacks.parse(COLLECTIVE.replace('"step": 12', '"step": 12, "before": 40'))
    assert (look.step, look.before) == (12, 40)


def test_only_looks_of_a_living_process_of_this_start_count(tmp_path):
    path, now = tmp_path / "0.stacks", time.time()
    own = COLLECTIVE.replace('"t": 9.5, "pid": 7', f'"t": {now}, "pid": {os.getpid()}')
    path.write_text(COLLECTIVE + own)
    assert [look.pid for look in stacks.of_life(path, now - 60)] == [os.getpid()]
    assert stacks.of_life(path, now + 60) == []
    dead = subprocess.Popen(["true"])
    dead.wait()
    path.write_text(own.replace(str(os.getpid()), str(dead.pid)))
    assert stacks.of_life(path, now - 60) == []
    assert stacks.of_life(tmp_path / "1.stacks", 0.0) == []


def test_a_rank_counts_as_moving_until_a_step_takes_far_longer_than_those_before():
    looks = [stacks.Look((), t=100.0 + 2 * count, step=14 * count, since_s=0.1) for count in range(1, 5)]
    assert stuck_ranks.is_moving(looks, began=90.0, now=112.0)
    assert not stuck_ranks.is_moving(looks, began=90.0, now=114.0)
    assert stuck_ranks.is_moving([], began=90.0, now=112.0), "before its first step nobody knows how long one takes"
    assert not stuck_ranks.is_moving([], began=80.0, now=112.0)


@pytest.mark.parametrize("held", [2, 3])
def test_native_code_that_holds_the_interpreter_for_three_looks_is_reported(tmp_path, monkeypatch, held):
    stack = 'Thread 0x0001 (most recent call first):\n  File "train.py", line 38 in <module>\n'
    about = '{"t": 100.0, "pid": 14, "step": 3, "doing": "", "since_s": 0.1, "main": "0x0001"}'
    (tmp_path / "0.stacks").write_text(f"Look {about}\n{stack}" + f"Timeout (0:00:10)!\n{stack}" * held)
    life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=14, began=90.0)
    still, told = stuck_ranks.StuckRanks(tmp_path, None), []
    for second in (2, 4, 6):
        monkeypatch.setattr(stuck_ranks, "_busy", lambda pids, cpu=second: {14: stuck_ranks.Busy(float(cpu), 0, False)})
        at_time(monkeypatch, lambda at=130.0 + second: at)
        told += still.look([life])
    assert [(rank, row["doing"], row["line"]) for rank, row in told] == [(0, "locked", 38)] * (held == 3)


def test_a_rank_that_a_debugger_holds_is_reported_with_the_debugger(tmp_path, monkeypatch):
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    hold = "import ctypes, sys; ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0); print(flush=True); input()"
    debugger = [sys.executable, "-c", hold, str(rank.pid)]
    with started(debugger, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holds:
        holds.stdout.readline()
        until(lambda: stuck_ranks._busy([rank.pid])[rank.pid].tracer, "the debugger")
        life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=rank.pid, began=time.time())
        still = stuck_ranks.StuckRanks(tmp_path, None)
        monkeypatch.setattr(stuck_ranks, "LOOK_SECONDS", 0.0)
        told = [*still.look([life]), *still.look([life])]
        assert [about["doing"] for _, about in told] == ["traced"]
        assert told[0][1]["tracer"].endswith(f", pid {holds.pid}")
        assert not still.stuck_ranks([life])[0].asleep  # so nobody ends it
        holds.communicate("\n")
    until(lambda: not stuck_ranks._busy([rank.pid])[rank.pid].tracer, "its end")
    # A debugger that ends without detaching leaves the process stopped by SIGSTOP, but not always on a busy machine.
    os.kill(rank.pid, signal.SIGSTOP)
    told = []

    def is_told_stopped():
        told.extend(about and about["doing"] for _, about in still.look([life]))
        assert Path(f"/proc/{rank.pid}").exists(), f"the rank is gone; told {told}"
        return "stopped" in told

    until(is_told_stopped, f"the stop to be reported; told {told}", 60)
    rank.kill()
    rank.wait()


def test_looks_of_a_launcher_are_ignored_while_its_rank_trains_below_it(tmp_path):
    """The launcher's own looks only show an hours-long wait for a child. Looks of ended children are ignored."""
    for name in ("0", f"0.{os.getpid()}", "0.4194305"):
        (tmp_path / f"{name}.stacks").write_text("")
    os.utime(tmp_path / f"0.{os.getpid()}.stacks", (1.0, 1.0))
    assert stacks.newest(tmp_path, 0).name == f"0.{os.getpid()}.stacks"
    assert stacks.newest(tmp_path, 1).name == "1.stacks"
    (tmp_path / f"0.{os.getpid()}.stacks").unlink()
    assert stacks.newest(tmp_path, 0).name == "0.stacks"


def test_the_next_program_of_a_rank_has_its_own_steps_and_waits(tmp_path, monkeypatch):
    """It is not stuck when it begins, however long the program before it trained, and its first steps are seen."""
    stack = 'Thread 0x0001 (most recent call first):\n  File "train.py", line 38 in <module>\n'
    life = Life(rank=0, local_rank=0, attempt=0, world=2, pid=os.getpid(), began=90.0)
    still = stuck_ranks.StuckRanks(tmp_path, None)
    monkeypatch.setattr(stuck_ranks, "_busy", lambda pids: {os.getpid(): stuck_ranks.Busy(0.0, 0, False)})
    told = []
    for at, pid, step in ((100.0, 7, 900), (900.0, os.getpid(), 0), (902.0, os.getpid(), 3), (904.0, os.getpid(), 3)):
        about = json.dumps({"t": at, "pid": pid, "step": step, "doing": "", "since_s": 0.1, "main": "0x0001"})
        (tmp_path / "0.stacks").write_text(f"Look {about}\n{stack}")
        at_time(monkeypatch, lambda at=at: at)
        told += still.look([life])
    assert told == []
    at_time(monkeypatch, lambda: 950.0)
    (tmp_path / "0.stacks").write_text(f"Look {about.replace('904.0', '949.0').replace('0.1', '47.0')}\n{stack}" * 3)
    assert [(rank, row["step"]) for rank, row in still.look([life])] == [(0, 3)]


def test_a_stuck_rank_whose_file_begins_again_is_not_reported_as_moving(tmp_path, monkeypatch):
    """The looks of a long wait fill their file again and again; an hour of such looks is still one wait."""
    stack = 'Thread 0x0001 (most recent call first):\n  File "train.py", line %d in <module>\n'
    life = Life(rank=0, local_rank=0, attempt=0, world=2, pid=os.getpid(), began=90.0)
    still, told, file = stuck_ranks.StuckRanks(tmp_path, None), [], tmp_path / "0.stacks"
    monkeypatch.setattr(stuck_ranks, "_busy", lambda pids: {os.getpid(): stuck_ranks.Busy(0.0, 0, False)})
    for at in range(130, 170, 2):
        about = {"t": at, "pid": os.getpid(), "step": 3, "doing": "", "since_s": at - 95, "main": "0x0001"}
        at_time(monkeypatch, lambda at=at: float(at))
        with file.open("w" if at == 150 else "a") as looks:
            looks.write(f"Look {json.dumps(about)}\n{stack % (38 if at < 160 else at)}")
        told += [(at, about and about["line"]) for _, about in still.look([life])]
    assert told == [(134, 38), (160, None)], "it moves once it is met elsewhere, and not before"


# The stack frame of a rank that waits for a lock that a killed build has left.
_BATON = '  File "/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", line 50 in wait\n'


@pytest.mark.parametrize(
    ("library", "share", "sleeps", "told"),
    [
        ("", 0.9, False, ["computes"]),
        ("", 0.1, True, ["polls"]),
        ("", 0.1, False, []),
        (_BATON, 0.9, False, []),
        (_BATON, 0.1, True, ["polls"]),
        (_BATON, 0.1, False, []),
    ],
    ids=["computes", "polls", "waits for bytes", "library computes", "library polls", "library waits for bytes"],
)
def test_a_rank_in_one_loop_computes_or_polls_or_may_make_progress(tmp_path, monkeypatch, library, share, sleeps, told):
    look = '{"t": %d, "pid": 14, "step": 3, "doing": "", "since_s": 0, "main": "0x0001"}'
    stack = f'Current thread 0x0001 (most recent call first):\n{library}  File "/x/train.py", line 38 in main\n'
    life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=14, began=90.0)
    still, words = stuck_ranks.StuckRanks(tmp_path, None), []
    for at in range(100, 140, 2):
        (tmp_path / "0.stacks").write_text(f"Look {look % at}\n{stack}")
        # The rank's main thread wakes up all the time: it waits for a byte now and then, or for its core.
        busy = stuck_ranks.Busy(at * share / 9, 0, False, wakes=at * 9, runs_s=at * share, sleeps=sleeps)
        monkeypatch.setattr(stuck_ranks, "_busy", lambda pids, busy=busy: {14: busy})
        at_time(monkeypatch, lambda at=at: float(at))
        words += [about["doing"] for _, about in still.look([life]) if about]
    assert words == told


@pytest.mark.parametrize(
    ("words", "sleeps"),
    [
        ("import time; time.sleep(60)", True),
        ("import socket; a, b = socket.socketpair(); a.recv(1)", False),
        ("import threading; threading.Lock().acquire() and threading.Event().wait()", False),
    ],
    ids=["sleep", "socket", "lock"],
)
def test_a_sleep_is_told_from_a_wait_for_something(words, sleeps):
    with started([sys.executable, "-c", f"print(flush=True); {words}"], stdout=-1, start_new_session=True) as rank:
        rank.stdout.readline()
        until(lambda: _state(rank.pid) == "S", "it to wait")
        assert stuck_ranks._busy([rank.pid])[rank.pid].sleeps == sleeps
        rank.kill()


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_idle_rank_that_nothing_looks_into_any_more_is_reported(tmp_path, monkeypatch):
    frame = '  File "/x/train.py", line 38 in main'
    look = '{"t": 129.0, "pid": 14, "step": %d, "doing": "", "since_s": 0.1, "main": "0x0001"}'
    stack = f"Current thread 0x0001 (most recent call first):\n{frame}\n"
    life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=14, began=90.0)

    def told(step):
        (tmp_path / "0.stacks").write_text(f"Look {look % step}\n{stack}")
        still, words = stuck_ranks.StuckRanks(tmp_path, None), {}
        for at in range(130, 160, 2):
            monkeypatch.setattr(stuck_ranks, "_busy", lambda pids: {14: stuck_ranks.Busy(1.0, 0, False)})
            at_time(monkeypatch, lambda at=at: float(at))
            words.update((at, about["doing"]) for _, about in still.look([life]) if about)
        return words

    assert told(step=0) == {}  # nobody may ever have looked into it
    ((at, doing),) = told(step=3).items()
    assert doing == "unseen"
    assert at - 129 > 12


def test_a_childs_cpu_time_counts_after_its_end():
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    words = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print(flush=True); input()"
    line = [sys.executable, "-c", words]
    with started(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as rank:
        rank.stdout.readline()
        assert stuck_ranks._busy([rank.pid])[rank.pid].cpu_s >= 0.25  # the kernel counts in hundredths
        rank.communicate(b"\n")


def test_the_cpu_time_of_a_worker_in_its_own_session_counts_for_the_rank():
    """torchrun below a launcher gives each worker its own session: the launcher's evaluation is work, not a wait."""
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True)"
    burn += "; input()"
    words = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], start_new_session=True)"
    line = [sys.executable, "-c", words]
    with started(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as rank:
        rank.stdout.readline()
        used = stuck_ranks._busy([rank.pid, os.getpid()])
        assert used[rank.pid].cpu_s >= 0.25  # the kernel counts in hundredths
        rank.communicate(b"\n")
