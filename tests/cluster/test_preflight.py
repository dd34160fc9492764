"""`muster preflight` on the rack: real SSH, real engines, real firewalls."""

import html
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.preflight import Answers, judge
from lab import fixes, rack_faults
from lab.waiting import until
from tests.cluster.control import BASE

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
REFUSED, STOPPED = 3, 75


@contextmanager
def firewall(rack, host, *rule):
    """Set an iptables rule on a host inside the `with` block."""
    rack.root(host, "iptables", "-I", *rule)
    try:
        yield
    finally:
        rack.root(host, "iptables", "-D", *rule)


@pytest.fixture
def preflight(rack):
    """Run `muster preflight --json` on the first two nodes; returns the exit code and the verdict."""
    hosts = rack.hosts[:2]

    def run(*options):
        line = [FAB, "preflight", "--hosts", ",".join(hosts), "--json", "--quick", *options]
        env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
        done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=120)
        return done.returncode, json.loads(done.stdout)

    return run


def left_there(rack, host):
    """Probes still running on a host, as processes or as containers."""
    pids = rack.root(host, "sh", "-c", "pgrep -f '[m]uster-probe' || true")
    return pids + rack.on(host, "docker", "ps", "--all", "--quiet", "--filter", "label=muster.preflight")


def test_healthy_hosts_pass_and_no_probe_stays(rack, preflight):
    code, verdict = preflight()
    assert (code, verdict["ok"], verdict["cause"]) == (0, True, "")
    assert all(left_there(rack, host) == "" for host in rack.hosts[:2])


def test_the_rehearsal_finds_a_fault_that_no_probe_sees_and_leaves_nothing(rack, tmp_path):
    hosts, file = rack.hosts[:2], tmp_path / "cluster.toml"
    tables = "".join(f'[[hosts]]\nname = "{host}"\n' for host in hosts)
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}

    def preflight(job):
        file.write_text(f"{tables}[job]\n{job}\n")
        line = [FAB, "preflight", "--cluster", file, "--allow-folder", "--image", BASE, "--json"]
        done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=120)
        return done.returncode, json.loads(done.stdout)

    code, verdict = preflight("")
    assert (code, verdict["cause"], verdict["groups"]["proof"]) == (0, "", "ok")
    assert verdict["rehearsed"].startswith("2 ranks met")
    # torch refuses this value when it is imported; no probe imports torch.
    code, verdict = preflight('environment = { TORCH_LOGS = "nonsense" }')
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "proof-failed", hosts)
    assert "failed at `import torch`: ValueError: Invalid log settings" in verdict["findings"][0]["text"]
    # A failed probe ends with its connection. On a busy machine, its container ends a moment after the command.
    for host in hosts:
        until(lambda host=host: left_there(rack, host) == "", f"{host} to be empty", 30)
    assert all(".rehearsal-" not in rack.on(host, "ls", "-A", ".muster/runs") for host in hosts)


def test_a_kill_in_the_middle_of_a_rehearsal_leaves_neither_container_nor_folder(rack):
    host = rack.hosts[0]
    line = [FAB, "preflight", "--hosts", ",".join(rack.hosts[:2]), "--image", BASE]
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    process = subprocess.Popen(line, cwd=HOME, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def folders():
        names = rack.on(host, "ls -A .muster/runs 2>/dev/null; true").split()  # a new host has no such folder
        return [name for name in names if name.startswith(".rehearsal-")]

    until(folders, "a rehearsal")
    process.kill()
    process.wait()
    until(lambda: not folders() and left_there(rack, host) == "", "the rehearsal to be gone")


def test_a_dropped_rendezvous_port_is_named_with_its_host_and_fix(rack, preflight):
    first, second = rack.hosts[:2]
    with firewall(rack, first, "INPUT", "-p", "tcp", "--dport", "29500", "-j", "DROP"):
        code, verdict = preflight("--port", "29500")
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "rendezvous-dropped", [first])
    finding = verdict["findings"][0]
    assert f"{first} drops TCP 29500 from {second}" in finding["text"]

    (step,) = fixes.steps(finding["fix"])
    (command,) = step.commands
    assert step.host == first
    with firewall(rack, first, "INPUT", "-p", "tcp", "--dport", "29500", "-j", "DROP"):
        rack.on(step.host, command)
        try:
            assert preflight("--port", "29500")[0] == 0
        finally:
            rack.on(step.host, command.replace(" -I ", " -D "))


def test_closed_data_ports_are_distinguished_from_a_closed_rendezvous_port(rack, preflight):
    first = rack.hosts[0]
    with firewall(rack, first, "INPUT", "-p", "tcp", "--dport", "30000:65535", "--syn", "-j", "DROP"):
        code, verdict = preflight()
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "data-ports-dropped", [first])


def test_a_host_that_cannot_be_reached_by_ssh_is_part_of_the_verdict(rack):
    line = [FAB, "preflight", "--hosts", f"{rack.hosts[0]},no-such-host.invalid", "--json", "--quick"]
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=120)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["cause"], verdict["hosts"]) == (REFUSED, "ssh-name", ["no-such-host.invalid"])


def started(rack, *options, **streams):
    """Start `muster preflight` on the first two nodes in the background."""
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config), "TERM": "xterm"}
    line = [FAB, "preflight", "--hosts", ",".join(rack.hosts[:2]), "--quick", "--port=29500", *options]
    return subprocess.Popen(line, cwd=HOME, env=env, **streams)


@pytest.fixture
def dropping(rack):
    """Let the first host drop packets to the rendezvous port, so that preflight takes more than two seconds."""
    with firewall(rack, rack.hosts[0], "INPUT", "-p", "tcp", "--dport", "29500", "-j", "DROP"):
        yield rack


def test_the_page_and_the_answers_are_written_and_named(dropping, tmp_path):
    page, recording = tmp_path / "page.html", tmp_path / "answers.json"
    process = started(dropping, f"--html={page}", f"--keep={recording}", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (REFUSED, b"")
    assert f"html    {page}" in out.decode()
    again = judge(Answers.of(json.loads(recording.read_text())))
    assert again.cause == "rendezvous-dropped"
    assert html.escape(again.first.text) in page.read_text()


@pytest.mark.parametrize(("name", "code"), [("/no/such/folder/page.html", 2), ("/dev/full", 1)])
def test_a_page_that_cannot_be_written_is_an_error_of_two_lines(rack, name, code):
    process = started(rack, f"--html={name}", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"]


def test_a_terminal_shows_progress_which_is_erased_at_the_end(dropping):
    pid, ours = pty.fork()  # the terminal is the command's own: it draws nothing over other programs
    if not pid:
        process = started(dropping, stdout=subprocess.DEVNULL)
        os._exit(process.wait(60))
    screen = ""
    with suppress(OSError):  # the terminal's end
        while piece := os.read(ours, 1 << 16):
            screen += piece.decode()
    os.waitpid(pid, 0)
    os.close(ours)
    assert "connect 0 of 2" in screen
    assert "\x1b[2K" in screen.rpartition("\n")[2]


def test_ctrl_c_says_that_nothing_is_left_and_nothing_is(dropping):
    process = started(dropping, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: left_there(dropping, dropping.hosts[0]), "a probe on the host")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, b"nothing is left" in err) == (STOPPED, True)
    until(lambda: not any(left_there(dropping, host) for host in dropping.hosts[:2]), "the probes to be gone")


def test_a_kill_of_the_control_side_leaves_no_probe(dropping):
    host = dropping.hosts[0]
    process = started(dropping, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: left_there(dropping, host), "a probe on the host")
    process.kill()
    process.wait()
    until(lambda: left_there(dropping, host) == "", "the probe to be gone")


def test_independent_faults_of_two_hosts_are_each_named(rack, tmp_path):
    cluster = rack_faults.FaultyHosts(rack, rack.hosts[:3], tmp_path)
    second, third = cluster.hosts[1:]
    with (
        rack_faults.TROUBLES["host_key_is_not_known"].on_host(cluster, second),
        rack_faults.TROUBLES["user_is_not_in_the_docker_group"].on_host(cluster, third),
    ):
        code, verdict = cluster.preflight()
    named = {finding["cause"]: finding["hosts"] for finding in verdict["findings"] if finding["level"] != "warning"}
    assert (code, named) == (REFUSED, {"ssh-host-key-unknown": [second], "docker-permission": [third]})
    assert all(finding["fix"] for finding in verdict["findings"])


def test_a_missing_engine_is_not_also_reported_as_different_software(rack, tmp_path):
    cluster = rack_faults.FaultyHosts(rack, rack.hosts[:2], tmp_path)
    with rack_faults.TROUBLES["docker_is_not_installed"].on_host(cluster, cluster.hosts[1]):
        code, verdict = cluster.preflight()
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "docker-missing", cluster.hosts[1:])
    assert [finding["cause"] for finding in verdict["findings"] if finding["level"] != "warning"] == ["docker-missing"]
