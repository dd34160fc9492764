"""Faults of a host, its engine, or a link between two hosts: how each is caused from outside, and undone."""

from __future__ import annotations

from benchmarks.breaks import SCRIPT, TRAINER, Act, break_host, break_rank, break_two, ends, stalls
from lab.rack import Rack, docker

_KNOWN = (ends, stalls)
_RUNS = "$(ls -d /home/*/.muster/runs)"


def as_root(command: str) -> Act:
    """A command that runs as root on the culprit's host; $name is the run, $run its folder there."""
    return lambda rack, run, host: rack.shell(host, f"name={run}; run=$(ls -d {_RUNS}/{run}); {command}")


def node_act(verb: str) -> Act:
    """Run `docker VERB` on the run's container on the culprit's host."""
    # The engine may fail to freeze a busy container: then the command is repeated.
    return as_root(f"for n in 1 2 3 4 5; do docker {verb} muster-$name && exit 0; sleep 0.2; done; true")


def power(verb: str) -> Act:
    """Run `docker VERB` on the container that is the host."""
    return lambda rack, run, host: docker(verb, rack.container(host))


def filtered(flag: str, both_ways: bool = True, peers: int | None = 1, target: str = "DROP") -> Act:
    """Firewall rules on the culprit's host against the next `peers` hosts (None: all).

    SSH comes from another address.
    """

    def act(rack: Rack, run: str, host: str) -> None:
        at = rack.hosts.index(host)
        for other in [*rack.hosts[at + 1 :], *rack.hosts[:at]][:peers]:
            address = rack.shell(other, "hostname -i").split()[0]
            for chain, way in (("OUTPUT", "-d"), ("INPUT", "-s"))[: 2 if both_ways else 1]:
                tcp = "-p tcp" if target != "DROP" else ""
                rack.shell(host, f"iptables {flag} {chain} {way} {address} {tcp} -j {target}")

    return act


def small_disk(options: str) -> Act:
    """Mount a separate file system with these options as the folder of runs."""
    user = "u=$(ls /home | head -n 1); own=uid=$(id -u $u),gid=$(id -g $u); at=/home/$u/.muster"
    made = "install -d -o $u -g $u -m 700 $at $at/runs"
    return as_root(f"{user}; {made}; mount -t tmpfs -o {options},mode=700,$own tmpfs $at/runs")


def _limit_memory(limit: str) -> Act:
    """Limit the cgroup above the host's containers, in place of a limit on the host's own memory."""
    return as_root(f"echo {limit} > /sys/fs/cgroup/memory/memory.limit_in_bytes")


_HOG = "nohup sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $! >> /tmp/hogs"
_CORE = "/sys/fs/cgroup/cpu/cpu.cfs"
_RESET = "REJECT --reject-with tcp-reset"
_LOSES = "-i eth0 -p tcp ! --dport 22 -m statistic --mode random --probability 0.3 -j DROP"
_OTHER_ADDRESS = (
    "a=$(ip -o -4 addr show eth0 | awk '{print $4}'); ip addr del $a dev eth0; ip addr add 10.254.7.7/24 dev eth0"
)
_SHIM = "kill -9 $(ps -eo pid,args | grep [c]ontainerd-shim | awk '{print $1}')"
START, AGAIN, WHOLE = {"mend": power("start")}, {"mend": power("restart")}, as_root(f"umount -l {_RUNS}; true")
MEMORY = "hog = [bytearray(1 << 24) for _ in range(400)]"

# Faults of the node: its container, and what starts it.
break_host("docker pause", "stopped", node_act("pause"), mend=node_act("unpause"))
break_host("docker kill", "killed, node lost", node_act("kill"))
break_host("docker rm -f", "node lost", node_act("rm -f"))
break_host("docker stop", "killed, node lost, ended, left", node_act("stop -t 3"))
break_host("docker restart", "killed, node lost, ended, left", node_act("restart -t 3"))
break_host("SIGINT to its container", "killed, node lost, left, exception", node_act("kill -s INT"))
break_host("the shim dies", "killed, node lost, left", as_root(_SHIM))
break_host("everything on the host is killed", "killed, node lost, left", as_root("pkill -9 -f [t]rainer.node.launch"))
break_host("the engine dies", "node lost", as_root("kill -9 $(pidof dockerd)"), **AGAIN)
break_host("its engine hangs", "engine hangs", as_root("kill -STOP $(pidof dockerd)"),
           mend=as_root("kill -CONT $(pidof dockerd)"))  # fmt: skip
# Faults of the host.
break_host("power cut", "node lost", power("kill"), **START)
break_host("power cut of the first host", "node lost", power("kill"), **START, first=True)
break_host("shutdown in order", "node lost, killed, ended", power("stop"), **START)
break_host("the host freezes", "node lost, out of reach, stopped", power("pause"), mend=power("unpause"))
break_host("sshd dies", "out of reach", as_root("kill -9 $(pidof sshd sshd-session)"), **AGAIN)
# Faults of links.
break_host("two hosts cut off", "cut off", filtered("-I"), "pair", mend=filtered("-D"))
break_host("one direction cut", "cut off", filtered("-I", False), "pair", mend=filtered("-D", False))
break_host("connections reset", "cut off, reset", filtered("-I", target=_RESET), "pair",
           mend=filtered("-D", target=_RESET))  # fmt: skip
ALONE, BACK = filtered("-I", peers=None), filtered("-D", peers=None)
break_host("a host cut off from both", "cut off, node lost", ALONE, mend=BACK)
break_host("the first host cut off", "cut off, node lost", ALONE, mend=BACK, first=True)
break_host("the interface goes down", "node lost, cut off, out of reach", as_root("ip link set eth0 down"), **AGAIN)
break_host("another address", "node lost, cut off, out of reach", as_root(_OTHER_ADDRESS), **AGAIN)
break_host("logged out: SSH ends for a while", "node lost", as_root("iptables -I INPUT -p tcp --dport 22 -j DROP"),
           mend=as_root("iptables -F INPUT"), limit_s=20)  # fmt: skip
break_host("a third of the packets is lost", "slow, cut off, node lost", as_root(f"iptables -I INPUT {_LOSES}"),
           mend=as_root("iptables -F INPUT"), big=True)  # fmt: skip
break_host("packets of 300 bytes", "slow, cut off, node lost", as_root("ip link set eth0 mtu 300"),
           mend=as_root("ip link set eth0 mtu 1500"), big=True)  # fmt: skip
break_host("a slow link", "slow", as_root("tc qdisc add dev eth0 root tbf rate 40mbit burst 64kb latency 400ms"),
           mend=as_root("tc qdisc del dev eth0 root"), big=True)  # fmt: skip
# Faults of memory, cores and disks.
break_rank("memory of the container", "container memory", MEMORY, job='memory = "1200m"')
break_rank("memory of the host", "host memory", MEMORY, before=_limit_memory("1500M"), mend=_limit_memory("-1"))
break_host("memory limit lowered", "container memory", node_act("update --memory 60m --memory-swap 60m"))
break_host("a tenth of a CPU", "slow", node_act("update --cpus 0.1"))
# The hosts of a rack share this machine's cores: without a limit, a CPU hog on one host would slow down all of them.
break_host("a CPU hog on a host", "slow", as_root(f"for i in 1 2 3 4 5 6 7 8; do {_HOG}; done"), kinds=SCRIPT, big=True,
           before=as_root(f"echo 100000 > {_CORE}_period_us; echo 100000 > {_CORE}_quota_us"),
           mend=as_root(f"kill $(cat /tmp/hogs); rm -f /tmp/hogs; echo -1 > {_CORE}_quota_us"))  # fmt: skip
break_host("disk full on the first host", "disk", as_root("cat /dev/zero > $run/filler 2>/dev/null; true"), mend=WHOLE,
           before=small_disk("size=20m"), first=True, kinds=TRAINER)  # fmt: skip
break_host("no inodes are left on the first host", "disk", as_root("cd $run && for n in $(seq 2000); do touch "
           "filler-$n || break; done; true"), mend=WHOLE, before=small_disk("size=200m,nr_inodes=2000"), first=True,
           kinds=TRAINER)  # fmt: skip
break_host("run folder deleted", "gone", as_root("rm -rf $run"), kinds=TRAINER, first=True)
break_host("its folder is read-only", "exception, disk, killed, left", as_root("mount --bind $run $run; mount -o "
           "remount,ro,bind $run"), mend=as_root("umount -l $run"), kinds=TRAINER, first=True)  # fmt: skip
break_rank("a limit of processes", "exception, killed", """
kept = [threading.Thread(target=time.sleep, args=(99,), daemon=True) for _ in range(9999)]
[each.start() for each in kept]
""", kinds=SCRIPT, job="pids = 200")  # fmt: skip
break_rank("shared memory full", "killed, exception, disk", """
open('/dev/shm/fill', 'wb').write(bytes(os.statvfs('/dev/shm').f_bavail * 4096))
rows = iter(DataLoader([torch.ones(1 << 22)] * 9, num_workers=1))
[next(rows) for _ in range(9)]
""")  # fmt: skip
# Together with a fault of another rank.
break_two("docker pause", "kill -9", 0.0)
break_two("power cut", "SIGSTOP", 1.0)
