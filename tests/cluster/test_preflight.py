"""`fab preflight` on the rack: real SSH, real engines, real firewalls."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
REFUSED = 3


@contextmanager
def firewall(rack, host, *rule):
    """A rule on a host, for a while."""
    rack.root(host, "iptables", "-I", *rule)
    try:
        yield
    finally:
        rack.root(host, "iptables", "-D", *rule)


@pytest.fixture
def preflight(rack):
    """`fab preflight --json` on the first two nodes; gives the exit code and the verdict."""
    hosts = rack.hosts[:2]

    def run(*options):
        line = [FAB, "preflight", "--hosts", ",".join(hosts), "--json", "--quick", *options]
        env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
        done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=120)
        return done.returncode, json.loads(done.stdout)

    return run


def left_there(rack, host):
    """Probes still running on a host, as processes or as containers."""
    found = rack.root(host, "sh", "-c", "pgrep -f '[m]uster-probe' || true")
    return found + rack.on(host, "docker", "ps", "--all", "--quiet", "--filter", "label=muster.preflight")


def test_healthy_hosts_are_green_and_nothing_stays(rack, preflight):
    code, verdict = preflight()
    assert (code, verdict["ok"], verdict["cause"]) == (0, True, "")
    assert all(left_there(rack, host) == "" for host in rack.hosts[:2])


def test_a_dropped_rendezvous_port_is_named_with_its_host_and_fix(rack, preflight):
    first, second = rack.hosts[:2]
    with firewall(rack, first, "INPUT", "-p", "tcp", "--dport", "29500", "-j", "DROP"):
        code, verdict = preflight("--port", "29500")
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "rendezvous-dropped", [first])
    finding = verdict["findings"][0]
    assert f"{first} drops TCP 29500 from {second}" in finding["text"]
    assert finding["fix"].startswith(f"on {first}: sudo ufw allow proto tcp")


def test_data_ports_that_are_closed_on_one_node_are_told_from_the_rendezvous_port(rack, preflight):
    first = rack.hosts[0]
    with firewall(rack, first, "INPUT", "-p", "tcp", "--dport", "30000:65535", "--syn", "-j", "DROP"):
        code, verdict = preflight()
    assert (code, verdict["cause"], verdict["hosts"]) == (REFUSED, "data-ports-dropped", [first])


def test_a_host_that_cannot_be_reached_by_ssh_is_part_of_the_verdict(rack):
    line = [FAB, "preflight", "--hosts", f"{rack.hosts[0]},no-such-host.invalid", "--json", "--quick"]
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=120)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["cause"], verdict["hosts"]) == (REFUSED, "ssh", ["no-such-host.invalid"])


def test_a_kill_of_the_control_side_leaves_no_probe(rack):
    host = rack.hosts[0]
    env = os.environ | {"MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    line = [FAB, "preflight", "--hosts", ",".join(rack.hosts[:2]), "--quick"]
    with firewall(rack, host, "INPUT", "-p", "tcp", "--dport", "29500", "-j", "DROP"):
        process = subprocess.Popen(line, cwd=HOME, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: left_there(rack, host), "a probe on the host")
        process.kill()
        process.wait()
        until(lambda: left_there(rack, host) == "", "the probe to be gone")
