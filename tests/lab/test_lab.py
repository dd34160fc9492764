"""A few of the laboratory's faults, end to end: real probes, real torchrun. `make bench-preflight` runs all faults."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import fault, healthy, job, network, trial
from lab.waiting import until

HOME = Path(__file__).resolve().parents[2]
QUICK = ("rendezvous_port_dropped", "only_the_rendezvous_port_open_rejecting", "tunnel_swallows_large_packets",
         "debian_name_is_127_0_1_1_on_another_in_192_168", "interface_named_that_is_not_there", "rendezvous_port_taken",
         "clock_a_minute_behind_plain", "names_of_different_families", "two_cards_of_one_hardware_address",
         "loopback_is_down")  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_preflight_names_the_cause_and_the_host(laboratory, name):
    case = fault.case(fault.catalogue()[name], 3)
    with fault.laboratory(case) as lab:
        expected = fault.inject(case, lab)
        verdict, _ = trial.preflight(lab, case.fault)
    assert trial.says_the_cause(verdict, expected), verdict.json()
    assert trial.says_where(verdict, expected), verdict.json()


@pytest.mark.parametrize("peculiar", [healthy.nothing, healthy.docker_and_bridges, healthy.ping_blocked])
def test_a_healthy_cluster_raises_no_alarm(laboratory, peculiar):
    cluster = healthy.Healthy(4, "46", peculiar, fault.MUSTER)
    with network.Lab(cluster.count, cluster.families) as lab:
        peculiar(lab)
        verdict, _ = trial.preflight(lab, cluster)
    assert verdict.ok, verdict.json()
    assert verdict.hosts_examined == tuple(host.name for host in lab.hosts)


def test_real_torchrun_trains_in_the_laboratory_and_fails_where_a_port_is_refused(laboratory, tmp_path):
    broken = fault.catalogue()["interface_named_that_is_not_there"]
    with network.Lab(2) as lab:
        assert job.run(lab, broken, tmp_path / "well", deadline_s=100).outcome == job.FINE
        fault.inject(fault.case(broken, 2), lab)
        failed = job.run(lab, broken, tmp_path / "broken")
    assert failed.outcome == job.FAILS
    assert any("eth9" in text for text in failed.texts.values())


@pytest.mark.parametrize(
    ("name", "cause"),
    [("clock_of_the_first_an_hour_ahead", "clock-skew"), ("localhost_is_unknown", "loopback-silent")],
)
def test_a_fault_that_stops_torchs_own_rendezvous_does_not_stop_muster(laboratory, tmp_path, name, cause):
    odd = dataclasses.replace(fault.catalogue()[name], style=fault.MUSTER)
    case = fault.case(odd, 2)
    with fault.laboratory(case) as lab:
        fault.inject(case, lab)
        assert job.run(lab, odd, tmp_path, deadline_s=100).outcome == job.FINE
        verdict, _ = trial.preflight(lab, odd)
    assert verdict.ok
    assert [finding.cause for finding in verdict.warnings] == [cause]


def test_a_laboratory_leaves_nothing_and_does_not_change_the_machine(laboratory):
    before = state_of_the_machine()
    with network.Lab(2, "46") as lab:
        mark = lab.mark
        lab.hosts[0].firewall("INPUT -p tcp --dport 1 -j DROP")
        sleeper = lab.hosts[1].start("sleep", "1000")
        assert len([space for space in network.spaces() if space.startswith(mark)]) == 3
        assert state_of_the_machine() == before
    assert sleeper.poll() is not None
    assert not [space for space in network.spaces() if space.startswith(mark)]
    assert not list(network.HOSTS_FILES.glob(f"{mark}*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_leftovers_of_a_stopped_laboratory_are_removed_by_the_next_one(laboratory, number):
    script = "import time\nfrom lab.network import Lab\nwith Lab(2) as lab:\n"
    script += "    print(lab.mark, flush=True)\n    time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=HOME, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": "."}, stderr=subprocess.DEVNULL)  # fmt: skip
    mark = process.stdout.readline().strip()
    assert [space for space in network.spaces() if space.startswith(mark)]
    process.send_signal(number)
    process.wait(20)
    if number == signal.SIGKILL:
        network.sweep()
    until(lambda: not [space for space in network.spaces() if space.startswith(mark)], "an empty machine", 10)
    assert not list(network.HOSTS_FILES.glob(f"{mark}*"))


def state_of_the_machine():
    """Interfaces and filter rules of the machine's own network."""
    links = [line.split()[1] for line in network.must("ip", "-o", "link").splitlines()]
    return links, network.must("iptables", "-w", "-S"), network.must("ip6tables", "-w", "-S")
