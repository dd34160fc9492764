"""One deploy per host at a time, on real servers: who wins, who is named, what is left behind."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from deploy.host import audit
from deploy.host import lock as host_lock
from deploy.host.audit import Action
from lab.waiting import until

HOME = Path(__file__).resolve().parents[2]


@contextmanager
def opened(*servers):
    """Sessions to the servers."""
    with session.open_all([server.host for server in servers]) as results:
        yield list(results.all().values())


def locks(*servers):
    """Names of the servers whose lock is held, according to the files on their disks."""
    return [server.name for server in servers if list(server.home.glob(".muster/lock-*/"))]


def holder_file(server):
    """The only holder file of a server whose lock is held."""
    (path,) = server.home.glob(".muster/lock-*/holder")
    return path


def age(server, seconds):
    """Make the server's lock look as if its holder's last beat was `seconds` ago."""
    beat = holder_file(server).with_name("beat")
    beat.write_text(f"{int(beat.read_text()) - seconds}\n")


def belongs_to(server, **changes):
    """Make the server's lock belong to somebody else."""
    file = holder_file(server)
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def standing(sessions):
    """The locks that are held, by host."""
    return {host: lock for host, lock in host_lock.read_states(sessions).all().items() if lock}


@pytest.fixture
def ended():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_taken_lock_is_held_on_every_host_and_released_after(server):
    servers = [server(name=name) for name in "ab"]
    with opened(*servers) as sessions:
        with host_lock.lock_hosts(sessions, "run-1"):
            assert locks(*servers) == ["a", "b"]
        assert locks(*servers) == []
        host_lock.lock_hosts(sessions, "run-2").release()


def test_a_second_deploy_is_refused_with_the_holder_its_time_and_the_unlock_command(server):
    machine = server()
    with opened(machine) as sessions, host_lock.lock_hosts(sessions, "run-1"):
        with pytest.raises(DeployError) as caught:
            host_lock.lock_hosts(sessions, "run-2")
        words = rf"a: locked by \S+@\S+ \(run run-1, process {os.getpid()}\) since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d$"
        assert re.match(words, caught.value.message)
        assert f"muster unlock --hosts {machine.host.destination}" in caught.value.hint


def test_exactly_one_of_many_racing_deploys_wins(server):
    with ExitStack() as stack:
        machine = server()
        rivals = [stack.enter_context(opened(machine))[0] for _ in range(12)]
        start, won, lost = threading.Barrier(len(rivals)), [], []

        def race(rival, number):
            start.wait()
            try:
                won.append((number, host_lock.lock_hosts([rival], f"run-{number}")))
            except DeployError as fault:
                lost.append(fault.message)

        threads = [threading.Thread(target=race, args=pair) for pair in zip(rivals, range(12), strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(won) == 1
        assert len(lost) == 11
        assert all(f"(run run-{won[0][0]}," in message for message in lost)
        won[0][1].release()
        assert locks(machine) == []


def test_two_deploys_in_opposite_orders_both_get_their_turn(server):
    servers = [server(name=name) for name in "abc"]
    turns = []
    with opened(*servers) as first, opened(*servers) as second:

        def deploy(sessions, run):
            for _ in range(3):
                with host_lock.lock_hosts(sessions, run, wait_s=60):
                    turns.append(run)
                    assert locks(*servers) == ["a", "b", "c"]

        threads = [
            threading.Thread(target=deploy, args=(first, "run-1")),
            threading.Thread(target=deploy, args=(second[::-1], "run-2")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    assert sorted(turns) == ["run-1"] * 3 + ["run-2"] * 3
    assert locks(*servers) == []


def test_a_lock_is_taken_on_all_hosts_or_on_none(server):
    servers = [server(name=name) for name in "abc"]
    with opened(*servers) as sessions, host_lock.lock_hosts(sessions[1:2], "run-1"):
        with pytest.raises(DeployError, match="b: locked by"):
            host_lock.lock_hosts(sessions, "run-2")
        assert locks(*servers) == ["b"]


def test_waiting_ends_when_the_holder_releases_the_lock(server):
    with opened(server()) as sessions:
        held = host_lock.lock_hosts(sessions, "run-1")
        threading.Timer(1, held.release).start()
        with host_lock.lock_hosts(sessions, "run-2", wait_s=30):
            pass


def test_a_silent_holder_is_reported_as_stale_and_keeps_its_lock(server):
    machine = server()
    with opened(machine) as sessions, host_lock.lock_hosts(sessions, "run-1"):
        belongs_to(machine, control="laptop", user="alice")
        age(machine, 100)
        with pytest.raises(DeployError, match=r"locked by alice@laptop .* 10\d s") as caught:
            host_lock.lock_hosts(sessions, "run-2")
        assert f"muster unlock --hosts {machine.host.destination}" in caught.value.hint
        assert locks(machine) == ["a"]


def test_a_lock_whose_keeper_process_died_can_be_taken(server, ended):
    machine = server()
    with opened(machine) as sessions, host_lock.lock_hosts(sessions, "run-1"):
        holder_file(machine).with_name("pid").write_text(f"{ended}\n")  # as after a reboot of the host
        with host_lock.lock_hosts(sessions, "run-2"):
            assert json.loads(holder_file(machine).read_text())["run"] == "run-2"


def test_closing_the_connection_releases_the_lock(server):
    machine = server()
    with opened(machine) as sessions:
        host_lock.lock_hosts(sessions, "run-1")
        assert locks(machine) == ["a"]
    until(lambda: not locks(machine), "the lock to be let go", 20)


def test_a_frozen_holder_loses_its_lock_and_notices(server, monkeypatch):
    """The holder freezes while its connection stays, as with a cut cable or a sleeping laptop."""
    monkeypatch.setattr(host_lock, "STALE_AFTER_S", 2.0)
    machine = server()
    with opened(machine) as sessions:
        held = host_lock.lock_hosts(sessions, "run-1")
        monkeypatch.setattr(held._holds[0].over, "wait", lambda _: threading.Event().wait())
        until(lambda: not locks(machine), "the lock to be let go", 20)
        assert until(lambda: held.lost, "the holder to notice", 20) == ["a"]


def test_a_living_holder_keeps_sending_beats(server, monkeypatch):
    monkeypatch.setattr(host_lock, "BEAT_S", 0.1)
    machine = server()
    with opened(machine) as sessions, host_lock.lock_hosts(sessions, "run-1") as held:
        age(machine, 1000)
        beat = holder_file(machine).with_name("beat")
        before = int(beat.read_text())
        until(lambda: beat.read_text().strip() and int(beat.read_text()) > before + 900, "the next beat", 20)
        assert not held.lost


def test_a_holder_notices_its_broken_lock_and_does_not_release_the_next_ones(server, monkeypatch):
    monkeypatch.setattr(host_lock, "BEAT_S", 0.1)
    machine = server()
    with opened(machine) as sessions:
        first = host_lock.lock_hosts(sessions, "run-1")
        first.refuse_lost()
        broken = host_lock.break_lock(sessions, standing(sessions)).all()
        assert "(run run-1," in broken["a"]
        assert until(lambda: first.lost, "the holder to notice", 20) == ["a"]
        with pytest.raises(DeployError, match=r"a: .*the lock of this deploy"):
            first.refuse_lost()
        with host_lock.lock_hosts(sessions, "run-2"):
            first.release()
            assert locks(machine) == ["a"]


@pytest.mark.holds("audit")
def test_the_host_records_who_broke_whose_lock(server):
    machine = server()
    log = machine.home / ".muster" / "audit.log"
    with opened(machine) as sessions:
        assert host_lock.read_states(sessions).all() == {"a": None}
        assert not log.exists()
        with host_lock.lock_hosts(sessions, "run-1"):
            belongs_to(machine, control="laptop", user="alice")
            host_lock.break_lock(sessions, standing(sessions)).all()
    (line,) = log.read_text().splitlines()
    assert " removed the lock of alice@laptop (run run-1, process" in line


@pytest.mark.holds("audit")
def test_the_audit_line_says_who_logged_in_and_not_what_a_variable_claims(server, monkeypatch):
    machine = server()
    with opened(machine) as sessions:
        monkeypatch.setenv("LOGNAME", "mallory")
        monkeypatch.setenv("USER", "mallory")
        audit.note(sessions[0], Action.STARTED, "\n2026-01-01 root from 10.0.0.9: nothing", "run-1")
    (line,) = (machine.home / ".muster" / "audit.log").read_text().splitlines()
    login = pwd.getpwuid(os.getuid()).pw_name
    assert f" {login} from 127.0.0.1: run-1 started" in line
    assert "mallory" not in line


def test_a_lock_without_a_holders_name_is_reported_and_can_be_broken(server):
    machine = server()
    with opened(machine) as sessions:
        host_lock.lock_hosts(sessions, "run-1")
        folder = holder_file(machine).parent
        for file in folder.iterdir():
            file.unlink()
        assert not list(folder.iterdir())
        with pytest.raises(DeployError, match="locked by somebody who did not leave a name"):
            host_lock.lock_hosts(sessions, "run-2")
        assert host_lock.break_lock(sessions, standing(sessions)).all() == {"a": "somebody who did not leave a name"}
        assert locks(machine) == []


@pytest.mark.parametrize("left", ["", "rubbish\n"])
def test_a_lock_with_a_damaged_beat_file_is_still_reported(server, left):
    machine = server()
    with opened(machine) as sessions, host_lock.lock_hosts(sessions, "run-1"):
        holder_file(machine).with_name("beat").write_text(left)
        with pytest.raises(DeployError, match=r"a: locked by .*\(run run-1,"):
            host_lock.lock_hosts(sessions, "run-2")


def test_a_beat_is_never_read_half_written(server, monkeypatch):
    monkeypatch.setattr(host_lock, "BEAT_S", 0.001)
    with opened(server()) as sessions, host_lock.lock_hosts(sessions, "run-1"):
        for _ in range(40):
            assert standing(sessions)["a"].shown


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_lock_is_left_whenever_taking_it_is_interrupted(server, how):
    """The deploy takes and releases the lock in a loop: ending it at any moment leaves no lock on any host."""
    servers = [server(name=name) for name in "ab"]
    script = """
        import sys
        from deploy.host import audit; from deploy.host import lock as host_lock; from deploy.door import session
        from deploy.job.inventory import Host
        try:
            with session.open_all([Host(n, "127.0.0.1", int(p)) for n, p in zip("ab", sys.argv[1:])]) as results:
                while True:
                    host_lock.lock_hosts(results.all().values(), "run-1").release()
                    print("round", flush=True)
        except KeyboardInterrupt:
            pass
    """
    command = [sys.executable, "-c", textwrap.dedent(script), *(str(server.port) for server in servers)]
    for moment in range(6):
        process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "round\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.013 * moment)
        process.send_signal(how)
        process.communicate(timeout=20)
        until(lambda: not locks(*servers), f"no lock to be held after round {moment}", 20)


def test_the_audit_log_has_time_user_and_action_and_keeps_earlier_lines(server):
    machine = server()
    with opened(machine) as sessions:
        audit.note(sessions[0], Action.STARTED, "{run} 2 containers", "run-1")
        audit.note(sessions[0], Action.SIGNALLED, "removed\nforged line", "run-1")
    first, second = (machine.home / ".muster/audit.log").read_text().splitlines()
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \S+ from 127.0.0.1: run-1 started \{run\} 2 containers \(\S+@\S+\)$",
        first,
    )
    assert " run-1 removed\\nforged line (" in second
    assert (machine.home / ".muster/audit.log").stat().st_mode & 0o777 == 0o600
