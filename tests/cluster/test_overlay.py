"""--overlay on the rack: hosts that no network connects train together, and nothing of the overlay network stays."""

import re
import signal
from contextlib import contextmanager

import pytest

from deploy.send.image.model import tag_of
from lab import waiting
from tests.cluster.control import BASE, Control, forever

PORT = 51820
SCRIPT = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1 << 20)
dist.all_reduce(ones)
print("sum", int(ones[0]), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def control(rack):
    """The control side, for a run on three hosts."""
    made = Control(rack)
    made.hosts = rack.hosts[:3]
    yield made
    made.clean()


@contextmanager
def cut(rack):
    """Let only UDP 51820 pass between the hosts, and nothing at all between the second and the third."""
    hosts = rack.hosts[:3]
    rules = []
    for host in hosts:
        for peer in hosts:
            if peer != host:
                address = rack.address(peer)
                dead = {host, peer} == set(hosts[1:])
                rules += [(host, f"-s {address} -j DROP"), (host, f"-d {address} -j DROP")] if dead else []
                for way, side in (("-s", "--dport"), ("-s", "--sport"), ("-d", "--dport"), ("-d", "--sport")):
                    rules += [] if dead else [(host, f"{way} {address} -p udp {side} {PORT} -j ACCEPT")]
                rules += [] if dead else [(host, f"-s {address} -j DROP"), (host, f"-d {address} -j DROP")]

    def change(word):
        for host in hosts:
            lines = [rule for at, rule in rules if at == host]
            chains = {"-s": "INPUT", "-d": "OUTPUT"}
            text = "; ".join(f"iptables -{word} {chains[rule[:2]]} {rule}" for rule in lines)
            rack.root(host, "sh", "-c", text)

    change("A")
    try:
        yield
    finally:
        change("D")


def left(control):
    """Interfaces, containers, routes and processes of any overlay on the hosts."""
    look = (
        "ip -o link | grep -o 'muster[0-9a-f]*'; docker ps --all --quiet --filter label=muster.overlay; "
        "ip route | grep muster; pgrep -f '[w]ireguard-go|[t]rainer.node overlay'; true"
    )
    return [f"{host}: {line}" for host in control.hosts for line in control.rack.root(host, "sh", "-c", look).split()]


def rules(control):
    return [control.rack.root(host, "sh", "-c", "iptables-save | grep -v '^[#:]'") for host in control.hosts]


def deployed(control, *options):
    """Deploy over the overlay. Tries again if the tunnel on a busy machine is too slow for the rehearsal."""
    for _ in range(3):
        done = control.deploy(*options, "--overlay")
        if "all_reduce of 20 MB took" not in done.stderr or done.returncode == 0:
            break
    return done


def test_hosts_train_over_one_udp_port_even_if_two_cannot_reach_each_other(control, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    with cut(control.rack):
        before = rules(control)
        options = ("--folder", str(tmp_path), "--script", "train.py")
        refused = control.deploy(*options)
        assert refused.returncode == 3, "without an overlay no run is possible here"
        done = deployed(control, *options)
        assert done.returncode == 0, done.stderr
        assert "rack-2 and rack-3 through rack-1" in done.stderr
        assert "rehearsed" in done.stderr
        logs = control.fab("logs", "--run", control.run)
        assert "sum 3" in logs.stdout + done.stdout
        waiting.until(lambda: not left(control), "the end of the network", 30)
        assert rules(control) == before


LOOP = """import pathlib
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
over = torch.zeros(1)
while not over:
    time.sleep(0.1)
    over += float(pathlib.Path("over").exists())
    dist.all_reduce(over)
dist.destroy_process_group()
"""
STRANGER = """
wireguard-go stranger0 >/dev/null 2>&1 && wg genkey >/tmp/key &&
wg set stranger0 private-key /tmp/key &&
wg set stranger0 peer {key} endpoint {address}:{port} allowed-ips 10.0.0.0/8 persistent-keepalive 1 &&
ip address add 10.99.99.2/32 dev stranger0 && ip link set stranger0 up &&
python -c 'import os, socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range({junk}):
    end.sendto(os.urandom(number % 1400), ("{address}", {port}))' &&
sleep 6 && wg show stranger0 latest-handshakes | cut -f2 && wg show stranger0 transfer | cut -f2
"""


@pytest.mark.holds("overlay-strangers")
def test_a_stranger_with_their_own_key_neither_joins_nor_ends_the_run(control, tmp_path):
    """The stranger knows everything public: address, port and public key of the overlay endpoint on the first host."""
    (tmp_path / "train.py").write_text(LOOP)
    control.hosts, outside = control.hosts[:2], control.hosts[2]
    first = control.hosts[0]
    running = control.start("--folder", str(tmp_path), "--script", "train.py", "--overlay")
    waiting.until(lambda: control.containers(), "the nodes", 120)
    key = control.rack.on(first, f"docker exec {end_there(control, first)} wg show all public-key").split()[-1]
    # Count packets for which a busy endpoint had no room as arrived too: InDatagrams and InErrors.
    arrived = "awk '$1 == \"Udp:\" && $2 ~ /[0-9]/ {print $2 + $4}' /proc/net/snmp"
    before = int(control.rack.root(first, "sh", "-c", arrived))
    words = {"key": key, "address": control.rack.address(first), "port": PORT, "junk": 5000}
    rights = ("--cap-add", "NET_ADMIN", "--device", "/dev/net/tun", "--user", "0", "--entrypoint", "sh")
    command = ("docker", "run", "--rm", *rights, tag_of(BASE, None), "-c", STRANGER.format(**words))
    assert control.rack.root(outside, *command, timeout=60).split() == ["0", "0"], "a handshake, bytes"
    assert int(control.rack.root(first, "sh", "-c", arrived)) - before > 1000, "the packets arrived"
    control.rack.on(first, f"cd ~/.muster/runs/{control.run}/work && touch over")
    assert running.wait(60) == 0


def end_there(control, host):
    """The overlay's container on that host."""
    return control.rack.on(host, "docker ps -q --filter label=muster.overlay")


@pytest.mark.holds("overlay-leaves")
def test_neither_ctrl_c_nor_a_killed_overlay_container_leaves_anything(control):
    with cut(control.rack):
        starting = control.start(*forever(), "--overlay")
        waiting.until(lambda: left(control), "an end of the network", 120)
        starting.send_signal(signal.SIGINT)
        starting.wait(60)
        assert not left(control), "Ctrl-C before the start removes it at once"
        assert deployed(control, *forever(), "--detach").returncode == 0
        control.rack.on(control.hosts[1], f"docker kill --signal KILL {end_there(control, control.hosts[1])}")
        ended = control.fab("attach", "--run", control.run)
        assert ended.returncode == 1
        assert "rack-2: the overlay network of this run has ended on this host" in ended.stdout + ended.stderr
        waiting.until(lambda: not left(control), "the end of the network", 60)


@pytest.mark.holds("overlay-right")
@pytest.mark.holds("overlay-keys")
def test_an_overlay_container_has_one_right_its_key_only_in_memory_and_down_removes_it(control):
    assert deployed(control, *forever(), "--detach").returncode == 0
    host = control.hosts[1]
    made = end_there(control, host)
    form = "{{.HostConfig.CapAdd}} {{.HostConfig.CapDrop}} {{.HostConfig.Privileged}} {{json .Mounts}}"
    assert control.rack.on(host, f"docker inspect --format '{form}' {made}").startswith("[NET_ADMIN] [ALL] false []")
    assert control.rack.on(host, f"docker inspect --format '{{{{.HostConfig.CapAdd}}}}' muster-{control.run}") == "[]"
    key = control.rack.root(host, "docker", "exec", made, "sh", "-c", "wg show all private-key | cut -f2")
    assert re.fullmatch(r"[A-Za-z0-9+/]{43}=", key)
    look = (
        f"(docker inspect {made}; docker logs {made} 2>&1; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; "
        "find /home/muster/.muster /var/lib/docker/containers -type f -size -8M -exec cat {} +) | tr -cd '[:graph:]'"
    )
    seen = control.rack.root(host, "sh", "-c", look)
    assert made in seen
    assert key not in seen
    assert control.fab("down", "--run", control.run).returncode == 0
    waiting.until(lambda: not left(control), "the end of the network", 30)
