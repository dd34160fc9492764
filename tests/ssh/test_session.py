"""A session on a real server: what a command receives and returns, noise kept out, links that die, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from lab.waiting import alive, until

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture
def opened(server):
    """An open session on a separate server."""
    with session.open_all([server().host]) as results:
        yield results.all()["a"]


def test_arguments_arrive_as_they_are(opened):
    odd = ["a b", "$HOME", "'", '"', "*", "a\nb", "", "\\", "é", "-n", "`id`", "!x"]
    done = opened.run(["printf", "%s|", *odd])
    assert done == session.Done(0, "|".join(odd) + "|", "")


def test_a_name_that_is_not_valid_text_arrives_as_typed(opened):
    assert opened.run(["sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", os.fsdecode(b"caf\xe9")]).out.split() == [
        *("63", "61", "66", "e9")
    ]


def test_exit_code_output_and_errors_are_returned_separately(opened):
    done = opened.run(["sh", "-c", "echo out; echo err >&2; exit 7"], check=False)
    assert done == session.Done(7, "out\n", "err\n")
    with pytest.raises(session.CommandFailed) as caught:
        opened.run(["sh", "-c", "echo why >&2; exit 7"])
    assert "ended with code 7: why" in caught.value.message
    assert caught.value.message.startswith("a: ")
    assert caught.value.done.code == 7


def test_a_command_that_is_killed_says_by_which_signal(opened):
    assert opened.run(["sh", "-c", "kill -TERM $$"], check=False).code == 128 + signal.SIGTERM


def test_a_command_that_is_missing_is_a_plain_failure(opened):
    assert opened.run(["no-such-program"], check=False).code == 127


def test_output_of_start_up_files_is_not_part_of_a_commands_output(server, client):
    noisy = server()
    (noisy.home / ".bashrc").write_text("echo NOISE out; echo NOISE err >&2; printf unended\n")
    assert "NOISE out" in client.ssh(noisy, "true").stdout, "no noise to begin with: this test would show nothing"
    with session.open_all([noisy.host]) as results:
        quiet, lines = results.all()["a"], []
        assert quiet.home == f"{noisy.home}/.muster"
        assert quiet.run(["sh", "-c", "echo a; echo b >&2"], on_line=lines.append) == session.Done(0, "a\n", "b\n")
        assert sorted(lines) == ["a", "b"]
        quiet.put(b"\0data", f"{quiet.home}/file")
        assert quiet.read(f"{quiet.home}/file") == b"\0data"


def test_output_of_an_exiting_shell_is_not_part_of_a_commands_output(server, client):
    noisy = server()
    (noisy.home / ".bashrc").write_text("trap 'echo GOODBYE; echo GOODBYE >&2' EXIT\n")
    assert "GOODBYE" in client.ssh(noisy, "true").stdout, "no noise to begin with: this test would show nothing"
    with session.open_all([noisy.host]) as results:
        quiet, lines = results.all()["a"], []
        assert quiet.home == f"{noisy.home}/.muster"
        assert quiet.run(["sh", "-c", "printf a; echo b >&2; exit 3"], check=False) == session.Done(3, "a", "b\n")
        quiet.run(["sh", "-c", "echo a; printf b"], on_line=lines.append)
        assert lines == ["a", "b"]
        assert quiet.read(f"{noisy.home}/.bashrc").endswith(b"EXIT\n")
        stream = quiet.stream(["sh", "-c", "read line; echo $line; echo why >&2"])
        stream.write(b"line\n")
        assert stream.read_line(20) == b"line"
        with pytest.raises(DeployError, match="code 0: why"):
            stream.read_line(20)


def test_a_start_up_file_that_reads_a_commands_input_is_reported(server):
    greedy = server()
    (greedy.home / ".bashrc").write_text("read -r -p 'Do you accept? ' answer\n")
    with session.open_all([greedy.host]) as results:
        assert "does a start-up file read it" in str(results.faults["a"])


def test_a_login_whose_limits_end_the_first_command_is_reported(server):
    strict = server()
    (strict.home / ".bashrc").write_text("ulimit -n 8\n")
    with session.open_all([strict.host]) as results:
        fault = results.faults["a"]
    assert fault.kind == "no-shell"
    assert "ulimit -a" in fault.message


def test_lines_are_reported_while_the_command_runs(opened):
    lines = []
    done = threading.Event()

    def tell(line):
        lines.append(line)
        if line == "first":
            done.set()

    worker = threading.Thread(
        target=lambda: opened.run(["sh", "-c", f"echo first; cat {opened.home}.fifo; printf last"], on_line=tell)
    )
    opened.run(["mkfifo", f"{opened.home}.fifo"])
    worker.start()
    assert done.wait(20)
    assert lines == ["first"]
    opened.run(["sh", "-c", f"echo second > {opened.home}.fifo"])
    worker.join(20)
    assert lines == ["first", "second", "last"]


def test_huge_output_is_reported_line_by_line_and_only_its_end_is_kept(opened):
    count = 0

    def tell(line):
        nonlocal count
        count += 1

    done = opened.run(["sh", "-c", "seq 2000000"], on_line=tell)
    assert count == 2000000
    assert done.out.endswith("1999999\n2000000\n")
    assert len(done.out) < 200_000


def test_input_is_streamed_whole_and_no_faster_than_it_is_read(opened):
    sent = 0

    def pieces():
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield os.urandom(16) * 65536

    # The reader waits for `go`: until then, only what fits into the windows and pipes on the way may be sent.
    opened.run(["mkfifo", f"{opened.home}.fifo"])
    reader = ["sh", "-c", f"cat {opened.home}.fifo; wc -c"]
    out = []
    worker = threading.Thread(target=lambda: out.append(opened.run(reader, input=pieces()).out))
    worker.start()
    before = until(lambda: sent, "the first piece to be sent", 20)
    opened.run(["sh", "-c", "sleep 1"])
    assert before <= sent < 16, "the whole input was taken though nobody read it"
    opened.run(["sh", "-c", f"echo go > {opened.home}.fifo"])
    worker.join(60)
    assert out == [f"go\n{64 << 20}\n"]


def test_an_error_in_the_callers_input_is_raised_unchanged(opened):
    def pieces():
        yield b"some"
        raise ValueError("the disk is gone")

    with pytest.raises(ValueError, match="the disk is gone"):
        opened.run(["cat"], input=pieces())
    assert opened.run(["echo", "on"]).out == "on\n"


def test_a_command_may_end_without_reading_its_input(opened):
    assert opened.run(["sh", "-c", "exit 4"], input=(b"x" * 65536 for _ in range(1000)), check=False).code == 4


def test_put_writes_a_whole_file_with_its_mode_and_folder(opened):
    path = f"{opened.home}/deep/in it/file"
    opened.put(b"one", path)
    opened.put(b"two\0" * 100_000, path, 0o640)
    assert opened.read(path) == b"two\0" * 100_000
    assert opened.run(["stat", "-c", "%a", path, f"{opened.home}/deep"]).out == "640\n700\n"
    assert opened.run(["ls", f"{opened.home}/deep/in it"]).out == "file\n"


def test_a_secret_given_as_input_shows_in_no_process_list(opened):
    secret = f"hf_{os.urandom(8).hex()}"
    # While the remote shell holds the secret, it looks at every process, including itself and sshd.
    look = 'read -r held; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null > "$0"; echo "${#held}"'
    done = opened.run(["sh", "-c", look, f"{opened.home}.seen"], input=f"{secret}\n".encode())
    assert done.out == f"{len(secret)}\n"
    seen = opened.read(f"{opened.home}.seen").decode(errors="replace")
    assert "read -r held" in seen, "not even the looking shell was seen"
    assert secret not in seen


def test_a_command_that_takes_too_long_is_given_up(opened):
    with pytest.raises(session.SshFault, match=r"a: `sleep 60` did not end within 0.3 s") as caught:
        opened.run(["sleep", "60"], timeout_s=0.3)
    assert caught.value.kind == "slow"
    assert opened.run(["echo", "on"]).out == "on\n"


def test_a_connection_that_is_cut_in_the_middle_is_lost(server):
    cut = server()
    with session.open_all([cut.host]) as results:
        opened, faults = results.all()["a"], []

        def work():
            try:
                opened.run(["sh", "-c", f"touch {cut.home}/began; sleep 60"])
            except DeployError as fault:
                faults.append(fault)

        worker = threading.Thread(target=work)
        worker.start()
        until(lambda: (cut.home / "began").exists(), "the command to begin", 20)
        for pid in cut.children():
            name = Path(f"/proc/{pid}/comm").read_text().strip() if alive(pid) else ""
            if name.startswith("sshd"):
                os.kill(pid, signal.SIGKILL)
        worker.join(10)
        assert faults[0].kind == "lost"
        assert "the connection to 127.0.0.1" in faults[0].message
        assert "while `sh -c" in faults[0].message
        assert "(the other side closed the connection)" in faults[0].message
        with pytest.raises(session.SshFault, match="was lost"):
            opened.run(["true"])


def test_a_link_that_goes_silent_is_lost(server, monkeypatch):
    monkeypatch.setattr("deploy.door.framing.PULSE_S", 1.0)
    silent = server()
    with session.open_all([silent.host]) as results:
        opened = results.all()["a"]
        # A quiet command on a living link may run longer than PULSE_S.
        assert opened.run(["sleep", "4"]).code == 0
        frozen = [pid for pid in silent.children() if Path(f"/proc/{pid}/comm").read_text().startswith("sshd")]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(session.SshFault) as caught:
                opened.run(["true"], timeout_s=None)
            assert caught.value.kind == "lost"
            assert time.monotonic() - began < 10
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


def test_a_second_connection_that_goes_silent_leaves_the_first_alone(server, monkeypatch):
    monkeypatch.setattr("deploy.door.framing.PULSE_S", 1.0)
    narrow = server("MaxSessions 1")
    # No question for the home before: the server might still be ending that session, and would refuse the next one.
    with session.open_all([narrow.host], ask_home=False) as results:
        opened, ends = results.all()["a"], []
        quiet = threading.Thread(
            target=lambda: ends.append(opened.run(["sh", "-c", f"touch {narrow.home}/b; sleep 5"]))
        )
        quiet.start()
        until(lambda: (narrow.home / "b").exists(), "the first connection to be in use", 20)
        first = set(narrow.children())
        assert opened.run(["true"]).code == 0
        second = [pid for pid in narrow.children() if pid not in first]
        for pid in second:
            os.kill(pid, signal.SIGSTOP)
        try:
            quiet.join(20)
        finally:
            for pid in second:
                os.kill(pid, signal.SIGCONT)
        assert second, "no second connection"
        assert [end.code for end in ends] == [0]


def test_work_runs_on_hosts_in_parallel_up_to_the_cap(server):
    hosts = [server(name=f"n{number}").host for number in range(4)]
    running, most, lock = 0, 0, threading.Lock()

    def work(opened):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        opened.run(["sleep", "0.5"])
        with lock:
            running -= 1
        if opened.host.name == "n2":
            raise DeployError("n2: no")
        return opened.host.name

    with session.open_all(hosts) as results:
        done = session.on_all(results.all().values(), work, cap=2)
    assert most == 2
    assert list(done) == ["n0", "n1", "n2", "n3"]
    assert list(done.faults) == ["n2"]


def test_a_bug_in_the_work_is_raised_not_taken_for_a_hosts_fault(opened):
    with pytest.raises(ZeroDivisionError):
        session.on_all([opened], lambda _: 1 / 0)


def test_ctrl_c_ends_work_on_eight_hosts_quickly(server, client, tmp_path):
    servers = [server(name=f"n{number}") for number in range(8)]
    script = """
        import sys
        from deploy.door import session
        from deploy.job.inventory import Host
        hosts = [Host(f"n{n}", "127.0.0.1", int(port)) for n, port in enumerate(sys.argv[1:])]
        try:
            with session.open_all(hosts) as results:
                session.on_all(results.all().values(), lambda s: s.run(["sh", "-c", "touch $HOME/began; sleep 100"]))
        except KeyboardInterrupt:
            print("stopped")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), *(str(server.port) for server in servers)]
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: all((server.home / "began").exists() for server in servers), "all eight to be at work", 60)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 2
    assert (out, err) == ("stopped\n", "")
    until(lambda: not any(_connections(server) for server in servers), "every connection to be closed", 10)


def _connections(server):
    return [pid for pid in server.children() if Path(f"/proc/{pid}/comm").read_text().startswith("sshd")]
