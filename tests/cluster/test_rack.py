"""The rack has real hosts: they have SSH and an engine, know each other, can reboot, and leave nothing behind."""

from __future__ import annotations

import socket
import subprocess

import pytest

from lab.rack import Rack, make
from lab.waiting import until


def by_label(rack):
    """A rack's containers, volumes and networks on this machine's engine."""
    kinds = {"container": ["ps", "-aq"], "volume": ["volume", "ls", "-q"], "network": ["network", "ls", "-q"]}
    objects = {}
    for kind, words in kinds.items():
        line = ["docker", *words, "--filter", f"label=muster.rack={rack.name}"]
        objects[kind] = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    return objects


def test_every_host_has_its_own_engine_for_a_user_without_root(rack):
    assert rack.size >= 3
    assert all(rack.on(host, "id", "-u") != "0" for host in rack.hosts)
    engines = [rack.on(host, "docker", "info", "--format", "{{.ID}}") for host in rack.hosts]
    assert len(set(engines)) == rack.size
    assert [rack.on(host, "hostname") for host in rack.hosts] == rack.hosts


def test_host_keys_are_known_beforehand_and_no_two_are_alike(rack):
    # StrictHostKeyChecking is on in the configuration, so each host above answered with a key that was known already.
    known = (rack.ssh_config.parent / "known_hosts").read_text().split("\n")
    keys = [line.split()[2] for line in known if " ssh-ed25519 " in line]
    assert len(set(keys)) == len(keys) >= rack.size
    stranger = rack.ssh("-o", "UserKnownHostsFile=/dev/null", "rack-1", "true")
    assert stranger.returncode == 255
    assert "Host key verification failed" in stranger.stderr


def test_hosts_reach_each_other_by_name(rack):
    for host, other in zip(rack.hosts, [*rack.hosts[1:], rack.hosts[0]], strict=True):
        rack.on(host, "nc", "-z", "-w", "3", other, "22")


def test_the_last_host_has_the_containerd_store_and_the_others_the_classic_one(rack):
    assert [rack.store(host) for host in rack.hosts] == ["classic"] * (rack.size - 1) + ["containerd"]


@pytest.mark.parametrize("host", ["rack-1", "rack-3"], ids=["classic", "containerd"])
def test_a_host_runs_containers_on_its_own_network(rack, host):
    """The image is made of a few files on the host, so the test needs neither a registry nor a base image."""
    files = "usr/bin/cat lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6"
    rack.on(host, f"tar -C / -hc {files} | docker import - rack-test:1")
    try:
        for network, seen in (("host", "eth0"), ("bridge", "eth0"), ("none", "lo")):
            line = ("docker", "run", "--rm", "--network", network, "rack-test:1", "/usr/bin/cat", "/proc/net/dev")
            assert f"{seen}:" in rack.on(host, *line)
    finally:
        rack.on(host, "docker", "rmi", "rack-test:1")


def test_a_host_behind_another_answers_only_through_it(jump_rack):
    with pytest.raises(TimeoutError):
        socket.create_connection((jump_rack.address("rack-2"), 22), timeout=1.5)
    socket.create_connection((jump_rack.address("rack-1"), 22), timeout=1.5).close()
    assert jump_rack.on("rack-2", "hostname") == "rack-2"
    # As rack-2 sees it, the connection comes from rack-1.
    assert jump_rack.on("rack-2", "echo $SSH_CONNECTION").split()[0] == jump_rack.address("rack-1")


@pytest.mark.parametrize("reboot", [["restart"], ["kill", "start"]], ids=["in good order", "power cut"])
def test_a_host_comes_back_from_a_reboot_as_it_was(jump_rack, reboot):
    host = "rack-2"
    address = jump_rack.address(host)
    volume = jump_rack.on(host, "docker", "volume", "create")
    for word in reboot:
        subprocess.run(["docker", word, jump_rack.container(host)], check=True, capture_output=True, timeout=40)
    until(lambda: jump_rack.is_up(host), f"{host} to be up again", 30)
    assert jump_rack.on(host, "docker", "volume", "ls", "-q") == volume
    assert address in jump_rack.root(host, "hostname", "-I").split()
    with pytest.raises(TimeoutError):
        socket.create_connection((address, 22), timeout=1)
    jump_rack.on(host, "docker", "volume", "rm", volume)


def test_a_second_rack_is_refused_and_says_where_the_first_is(jump_rack):
    before = by_label(jump_rack)
    second = make("rack", RACK=jump_rack.name, NODES=1)
    assert second.returncode != 0
    assert "a rack of 2 nodes is up" in second.stderr
    assert str(jump_rack.ssh_config) in second.stderr
    assert f"make rack-down RACK={jump_rack.name}" in second.stderr
    assert by_label(jump_rack) == before
    assert jump_rack.is_up("rack-1")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"NODES": "0"}, "NODES=0"), ({"STORE": "zfs"}, "STORE=zfs"), ({"NODES": 1, "JUMP": 1}, "nothing to jump from")],
)
def test_impossible_options_are_refused(docker, options, complaint):
    rack = Rack("test-refused", 0)
    refused = make("rack", RACK=rack.name, **options)
    assert refused.returncode != 0
    assert complaint in refused.stderr
    assert "hint: make rack" in refused.stderr
    assert not any(by_label(rack).values())


def test_rack_down_leaves_nothing_and_touches_no_other_rack(jump_rack):
    rack = Rack("test-down", 1)
    others = by_label(jump_rack)
    try:
        assert make("rack", RACK=rack.name, NODES=1).returncode == 0
        assert all(by_label(rack).values())
        assert rack.ssh_config.exists()
    finally:
        down = make("rack-down", RACK=rack.name)
    assert down.returncode == 0
    assert not any(by_label(rack).values())
    assert not rack.ssh_config.parent.exists()
    assert by_label(jump_rack) == others
