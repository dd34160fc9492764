"""The faults of benchmarks.breaks: what breaks a run, who is the culprit, and which words name the cause.

A fault is code that one rank runs (`inside`), or an act on hosts and their engines (`outside`). The words are those of
a reader who knows the fault, and were written before any of them was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# What a first line must say of each cause.
CAUSES = {
    "killed": r"killed by SIG\w+|terminated by signal",
    "container memory": r"out of memory in its container",
    "host memory": r"out of memory on its host",
    "exception": r"(?:Error|Exception)\b",
    "left": r"\bleft\b|without an exception|code 3",
    "stopped": r"is stopped|is paused",
    "locked": r"stands still|waits for a lock|waits for its DataLoader|computes without|holds the Python interpreter",
    "mismatch": r"do not agree|different places|mismatch",
    "node lost": r"is lost|is gone|out of sight|engine there does not answer|was killed by SIGKILL",
    "cut off": r"cut off",
    "disk": r"[Nn]o space|disk|quota",
    "slow": r"is slow",
    "weights": r"other weights",
    "nan": r"\bnan\b",
    "interrupt": r"KeyboardInterrupt|SIGINT|interrupted",
    "other program": r"another program|runs \w+ instead",
    "out of reach": r"out of sight|SSH|not reach|cannot be reached|no route|out of reach",
    "ended": r"was ended|shut down|stopped|SIGTERM",
    "reset": r"[Cc]onnection (?:was )?reset|lost (?:its|the) connection",
    "gone": r"No such file|is gone|deleted|removed",
    "harmless": r"(?!)",  # nothing is right but silence
}


class Hosts(Protocol):
    """The hosts of a rack, as an act takes them."""

    def root(self, host: str, command: str) -> str:
        """A command on the host as root, past SSH."""

    def engine(self, *words: str) -> None:
        """A command of the engine that the hosts run on."""

    def container(self, host: str) -> str:
        """The container that is the host."""

    @property
    def names(self) -> tuple[str, ...]:
        """All hosts."""


Act = Callable[[Hosts, str, str], object]


@dataclass(frozen=True)
class Fault:
    """One fault. `culprit`: `rank`, `host`, or `pair` (the culprit's host and the next one); `cause`: of CAUSES.

    `kinds`: `script` (plain DDP), `trainer` (Muster's own). `ends`: the kinds whose run cannot go on, even after a wait
    for the host or the link. `big`: the model has 8 MB. `mend` undoes what `outside` did. An act gets the hosts, the
    run and the culprit's host. `then` is another rank's fault, `gap_s` later.
    """

    name: str
    culprit: str
    cause: tuple[str, ...]
    inside: str = ""
    outside: Act | None = None
    mend: Act | None = None
    before: Act | None = None
    kinds: tuple[str, ...] = ("script", "trainer")
    ends: tuple[str, ...] = ()
    job: str = ""
    big: bool = False
    first: bool = False
    limit_s: float = 60.0
    then: Fault | None = None
    gap_s: float = 2.0


def node_act(verb: str) -> Act:
    """`docker VERB` of the run's container on the culprit's host."""
    # The engine may fail to freeze a container that is busy: then it is asked again.
    again = "for n in 1 2 3 4 5; do docker {} muster-{} && exit 0; sleep 0.2; done; true"
    return lambda hosts, run, host: hosts.root(host, again.format(verb, run))


def power(verb: str) -> Act:
    """`docker VERB` of the container that is the host."""
    return lambda hosts, run, host: hosts.engine(verb, hosts.container(host))


def _others(hosts: Hosts, host: str) -> list[str]:
    at = hosts.names.index(host)
    return [*hosts.names[at + 1 :], *hosts.names[:at]]


def filtered(flag: str, both_ways: bool = True, peers: int | None = 1, target: str = "DROP") -> Act:
    """Rules on the culprit's host against the next `peers` hosts (None: all); SSH comes from elsewhere."""

    def act(hosts: Hosts, run: str, host: str) -> None:
        for other in _others(hosts, host)[:peers]:
            address = hosts.root(other, "hostname -i").split()[0]
            for chain, way in (("OUTPUT", "-d"), ("INPUT", "-s"))[: 2 if both_ways else 1]:
                tcp = "-p tcp" if target != "DROP" else ""
                hosts.root(host, f"iptables {flag} {chain} {way} {address} {tcp} -j {target}")

    return act


def _one_core(hosts: Hosts, run: str, host: str) -> None:
    """The hosts of a rack share this machine's cores: with them all, a hog on one host is one on all."""
    hosts.root(host, "cd /sys/fs/cgroup/cpu; echo 100000 > cpu.cfs_period_us; echo 100000 > cpu.cfs_quota_us")


def _hog(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(
        host,
        "for i in 1 2 3 4 5 6 7 8; do nohup sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $! >> /tmp/hogs; done",
    )


def _no_hog(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "kill $(cat /tmp/hogs); rm -f /tmp/hogs; echo -1 > /sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def _slow(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "tc qdisc add dev eth0 root tbf rate 40mbit burst 64kb latency 400ms")


def _fast(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "tc qdisc del dev eth0 root")


def _small(hosts: Hosts, run: str, host: str) -> None:
    user = hosts.root(host, "ls /home").split()[0]
    folder = f"/home/{user}/.muster/runs"
    own = f"uid=$(id -u {user}),gid=$(id -g {user})"
    hosts.root(host, f"install -d -o {user} -g {user} -m 700 {folder.removesuffix('/runs')} {folder}")
    hosts.root(host, f"mount -t tmpfs -o size=20m,mode=700,{own} tmpfs {folder}")


def _filled(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, f"cat /dev/zero > $(ls -d /home/*/.muster/runs)/{run}/filler 2>/dev/null; true")


def _roomy(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "umount -l $(ls -d /home/*/.muster/runs); true")


def _host_memory(limit: str) -> Act:
    """A limit on the cgroup above the host's containers, as a host's own memory is one."""
    file = "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # the host's own: containers are below it
    return lambda hosts, run, host: hosts.root(host, f"echo {limit} > {file}")


def _engine_dies(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "kill -9 $(pidof dockerd)")


SCRIPT = ("script",)
TRAINER = ("trainer",)
BOTH = (*SCRIPT, *TRAINER)
HERE = [
    Fault("kill -9", "rank", ("killed",), "os.kill(os.getpid(), 9)", ends=SCRIPT),
    Fault("segmentation fault", "rank", ("killed",), "ctypes.string_at(0)"),
    Fault("abort", "rank", ("killed",), "os.abort()"),
    Fault("SIGSTOP", "rank", ("stopped",), "os.kill(os.getpid(), signal.SIGSTOP)"),
    Fault("exception", "rank", ("exception",), "raise ValueError('bad sample 7')", ends=SCRIPT),
    Fault("file deleted", "rank", ("exception",), "open('/data/gone/shard-3.bin')"),
    Fault("no permission", "rank", ("exception",), "raise PermissionError(13, 'Permission denied', '/data/x')"),
    Fault("port taken", "rank", ("exception",), "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
          "t = socket.socket(); t.bind(s.getsockname())"),
    Fault("too many open files", "rank", ("exception",), "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); "
          "files = [open('/dev/null') for _ in range(99)]"),
    Fault("endless recursion", "rank", ("exception",), "f = lambda n: f(n + 1); f(0)"),
    Fault("no memory for an array", "rank", ("exception", "host memory"), "torch.empty(1 << 50)"),
    Fault("no space left", "rank", ("disk",), "f = open('/dev/full', 'w'); f.write('x' * 9999); f.flush()"),
    Fault("over quota", "rank", ("disk",), "raise OSError(122, 'Disk quota exceeded', '/home/u/x')"),
    Fault("sys.exit(0) early", "rank", ("left",), "sys.exit(0)", ends=SCRIPT),
    Fault("os._exit(0) early", "rank", ("left",), "os._exit(0)"),
    Fault("os._exit(3)", "rank", ("left",), "os._exit(3)"),
    Fault("deadlock", "rank", ("locked",), "l = threading.Lock(); l.acquire(); l.acquire()"),
    Fault("endless loop", "rank", ("locked",), "spin()", limit_s=75),
    Fault("sleeps for ever", "rank", ("locked",), "time.sleep(10_000)"),
    Fault("reads from a dead pipe", "rank", ("locked",), "r, w = os.pipe(); os.read(r, 1)"),
    Fault("native code holds the interpreter", "rank", ("locked",), "re.match(r'(a+)+$', 'a' * 60 + 'b')", limit_s=75),
    Fault("waits for a child", "rank", ("locked",), "subprocess.run(['sleep', '10000'])"),
    Fault("another collective", "rank", ("mismatch", "locked"), "dist.broadcast(torch.ones(3), 0)", kinds=SCRIPT),
    Fault("a collective too many", "rank", ("mismatch", "locked"), "dist.barrier()", kinds=SCRIPT),
    Fault("another shape", "rank", ("mismatch",), "dist.all_reduce(torch.ones(9))", kinds=SCRIPT),
    Fault("slow in its own code", "rank", ("slow",), "SLOW = 0.4"),
    Fault("slow data", "rank", ("slow",), "DATA = 0.4", kinds=SCRIPT),
    Fault("a debugger holds it", "rank", ("stopped",), "ctypes.CDLL(None).prctl(0x59616d61, -1); subprocess.Popen(["
          "sys.executable, '-c', f'import ctypes, time; ctypes.CDLL(None).ptrace(16, {os.getpid()}, 0, 0); "
          "time.sleep(600)'])"),
    Fault("weights changed", "rank", ("weights",), "next(model.parameters()).data.view(-1)[0] += 1e-3", kinds=TRAINER),
    Fault("NaN", "rank", ("nan",), "NAN = math.nan", kinds=TRAINER),
]  # fmt: skip
ON_HOSTS = [
    Fault("docker pause", "host", ("stopped",), outside=node_act("pause"), mend=node_act("unpause")),
    Fault("docker kill", "host", ("killed", "node lost"), outside=node_act("kill"), ends=BOTH),
    Fault("docker rm -f", "host", ("node lost",), outside=node_act("rm -f"), ends=BOTH),
    Fault("power cut", "host", ("node lost",), outside=power("kill"), mend=power("start"), ends=BOTH),
    Fault("power cut of the first host", "host", ("node lost",), outside=power("kill"), mend=power("start"),
          first=True, ends=BOTH),
    Fault("the engine dies", "host", ("node lost",), outside=_engine_dies, mend=power("restart")),
    Fault("two hosts cut off", "pair", ("cut off",), outside=filtered("-I"), mend=filtered("-D"), ends=BOTH),
    Fault("one direction cut", "pair", ("cut off",), outside=filtered("-I", False),
          mend=filtered("-D", False), ends=BOTH),
    Fault("a host cut off from both", "host", ("cut off", "node lost"), outside=filtered("-I", peers=None),
          mend=filtered("-D", peers=None), ends=BOTH),
    Fault("the first host cut off", "host", ("cut off", "node lost"), outside=filtered("-I", peers=None),
          mend=filtered("-D", peers=None), first=True, ends=BOTH),
    Fault("memory of the container", "rank", ("container memory",), "hog = [bytearray(1 << 24) for _ in range(400)]",
          job='memory = "1200m"'),
    Fault("memory of the host", "rank", ("host memory",), "hog = [bytearray(1 << 24) for _ in range(400)]",
          before=_host_memory("1500M"), mend=_host_memory("-1")),
    Fault("disk full on the first host", "host", ("disk",), outside=_filled, mend=_roomy, before=_small, first=True,
          kinds=TRAINER),
    Fault("a CPU hog on a host", "host", ("slow",), outside=_hog, mend=_no_hog, before=_one_core, kinds=SCRIPT,
          big=True),
    Fault("a limit of a tenth of a CPU", "host", ("slow",), outside=node_act("update --cpus 0.1")),
    Fault("a slow link", "host", ("slow",), outside=_slow, mend=_fast, big=True),
]  # fmt: skip
