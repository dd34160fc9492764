"""`muster exec` and `muster shell` on the rack run next to the ranks, return the command's code, and leave nothing."""

import os
import pty
import select
import signal
import subprocess
import time
import urllib.request

import pytest

from lab import waiting
from lab.ports import free_port
from tests.cluster.control import FAB, HOME, Control

SCRIPT = """
import http.server, os, threading, time
open("here", "w").close()
serve = http.server.HTTPServer(("127.0.0.1", 16006), http.server.SimpleHTTPRequestHandler).serve_forever
threading.Thread(target=serve, daemon=True).start()
print("loss: 0.5", flush=True)
print("loss: nan $(touch here-too)", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def going(rack, tmp_path_factory):
    """A run whose script keeps running during the tests."""
    control, tmp_path = Control(rack), tmp_path_factory.mktemp("going")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py", "--detach")
    assert done.returncode == 0, done.stderr
    waiting.until(lambda: "here" in control.fab("exec", "--run", control.run, "--", "ls").stdout, "the script's file")
    yield control
    control.clean()


def processes(going, words):
    """How many processes of the run's containers have a command line with `words`, on all hosts."""
    count = f"docker top muster-{going.run} -eo pid,args | grep -c '{words}'; true"
    return sum(int(going.rack.on(host, count)) for host in going.hosts)


def test_a_command_runs_on_every_host_as_the_runs_user_in_the_scripts_folder(going):
    done = going.fab("exec", "--run", going.run, "--", "sh", "-c", "id -u; pwd; ls; echo $MUSTER_NODE; exit 3")
    assert done.returncode == 3
    for host in going.hosts:
        assert {f"{host}  /muster/run/work", f"{host}  here", f"{host}  {host}"} <= set(done.stdout.splitlines())
        assert f"{host}  0" not in done.stdout.splitlines()
    one = going.fab("exec", "--run", going.run, "--rank", "1", "--", "printenv", "MUSTER_NODE")
    assert one.stdout == f"{going.hosts[1]}\n"
    # Without --hosts, the hosts come from this machine's record of the run.
    line = [FAB, "exec", "--run", going.run, "--rank", "1", "--", "printenv", "MUSTER_NODE"]
    own = subprocess.run(line, cwd=HOME, env=going.environment, capture_output=True, text=True, timeout=60)
    assert own.stdout == one.stdout, own.stderr


def test_output_of_a_command_cannot_control_the_terminal(going):
    done = going.fab("exec", "--run", going.run, "--rank", "0", "--", "printf", r"a\033]0;title\007b\n")
    assert "\x1b" not in done.stdout
    assert done.returncode == 0
    missing = going.fab("exec", "--run", going.run, "--rank", "1", "--", "no-such-program")
    assert missing.returncode in (126, 127)
    assert going.hosts[1] in missing.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_on_hosts_ends_when_muster_exec_ends(going, number):
    line = going.line("exec", "--run", going.run, "--", "sh", "-c", "echo began; sleep 4711")
    asked = going.background(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    waiting.until(lambda: processes(going, "[0-9]  *sleep 4711") == 2, "the command on both hosts")
    asked.send_signal(number)
    asked.communicate(timeout=30)
    waiting.until(lambda: processes(going, "4711") == 0, "the command to be gone")
    assert len(going.containers()) == 2


class Terminal:
    """`muster shell` on a pseudo-terminal of the test."""

    def __init__(self, going):
        line = going.line("shell", "--run", going.run, "--rank", "1")
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(HOME)
            os.execve(line[0], [str(word) for word in line], going.environment)
        self.shown = b""

    def type(self, words):
        os.write(self.terminal, words.encode())

    def until(self, words, seconds=90):
        """Read until `words` are shown."""
        end = time.monotonic() + seconds
        while words.encode() not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 1 << 16)
        self.shown = self.shown.partition(words.encode())[2]


def test_a_shell_has_its_own_terminal_and_ends_with_its_own_code(going):
    shell = Terminal(going)
    shell.until("$ ")
    shell.type("stty size; echo $((6 * 7)) on $MUSTER_NODE\r")
    shell.until(f"42 on {going.hosts[1]}")
    shell.type("sleep 600\r")
    waiting.until(lambda: processes(going, "[0-9]  *sleep 600") == 1, "the command")
    shell.type("\x03exit 5\r")
    assert os.waitstatus_to_exitcode(os.waitpid(shell.pid, 0)[1]) == 5
    assert len(going.containers()) == 2


def test_a_shell_whose_terminal_is_gone_leaves_nothing(going):
    shell = Terminal(going)
    shell.until("$ ")
    shell.type("sleep 4712\r")
    waiting.until(lambda: processes(going, "[0-9]  *sleep 4712") == 1, "the command")
    os.kill(shell.pid, signal.SIGKILL)
    os.waitpid(shell.pid, 0)
    waiting.until(lambda: processes(going, "4712\\|within") == 0, "the shell to be gone")


@pytest.mark.holds("loopback-alone")
def test_muster_port_forwards_a_port_to_this_machines_loopback_while_it_runs(going):
    port = free_port()
    line = going.line("port", f"{port}:16006", "--run", going.run, "--rank", "1")
    line.insert(2, line.pop(4))  # the ports come first, as a user types them
    command = going.background(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = command.stdout.readline()
    assert said == f"http://127.0.0.1:{port}\n", said or command.communicate(timeout=30)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/here", timeout=20) as answer:
        assert answer.status == 200
    listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    assert [row.split()[3] for row in listening.splitlines()] == [f"127.0.0.1:{port}"]
    command.kill()
    command.communicate()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/here", timeout=20)


def test_grep_runs_on_the_hosts_and_its_pattern_is_never_run_as_a_command(going):
    done = going.fab("logs", "--run", going.run, "--grep", "^loss: +na")
    assert sorted(done.stdout.splitlines()) == [
        f"{host} [{place}]  loss: nan $(touch here-too)" for place, host in enumerate(going.hosts)
    ]
    assert going.fab("logs", "--run", going.run, "--rank", "1", "--grep", "0[.]5|x").stdout.endswith("]  loss: 0.5\n")
    assert going.fab("logs", "--run", going.run, "--grep", "'; touch here-too; '").stdout == ""
    refused = going.fab("logs", "--run", going.run, "--grep", "(")
    assert refused.returncode == 1
    assert "Unmatched" in refused.stderr
    assert "here-too" not in going.fab("exec", "--run", going.run, "--", "ls").stdout
