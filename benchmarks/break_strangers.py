"""Faults of benchmarks.breaks that the rules were not made with: what strangers would try, and two faults at once.

The list, the culprits and the words that count as right were written before any of them was tried. `HARMLESS` is no
fault: right is silence. `TOGETHER`: two faults of different ranks, the seconds between them; right is either of them,
by its own culprit and cause.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.break_faults import BOTH, HERE, SCRIPT, TRAINER, Act, Fault, Hosts, filtered, node_act, power

_WORKERS = "rows = iter(DataLoader(Rows(), num_workers=1, batch_size=1)); next(rows); "
_PIPE = "p = tempfile.mkdtemp() + '/pipe'; os.mkfifo(p); "
STRANGE_HERE = [
    Fault("SIGTERM to one rank", "rank", ("killed",), "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)"),
    Fault("SIGUSR1", "rank", ("killed",), "os.kill(os.getpid(), signal.SIGUSR1)"),
    Fault("SIGHUP", "rank", ("killed",), "os.kill(os.getpid(), signal.SIGHUP)"),
    Fault("limit of CPU seconds", "rank", ("killed",), "resource.setrlimit(resource.RLIMIT_CPU, (1, 999)); spin()"),
    Fault("SIGBUS in a mapped file", "rank", ("killed",), "f = tempfile.TemporaryFile(); f.truncate(9999); "
          "m = mmap.mmap(f.fileno(), 9999); f.truncate(0); m[5000]"),
    Fault("free() of a wrong address", "rank", ("killed",), "ctypes.CDLL(None).free(ctypes.c_void_p(12345))"),
    Fault("kills its own process group", "rank", ("killed",), "os.killpg(0, 9)"),
    Fault("kills its parent", "host", ("killed", "node lost", "left"), "os.kill(os.getppid(), 9); time.sleep(600)"),
    Fault("SIGINT to one rank", "rank", ("interrupt",), "os.kill(os.getpid(), signal.SIGINT); time.sleep(600)"),
    Fault("data worker killed", "rank", ("exception", "killed"), _WORKERS + "os.kill(rows._workers[0].pid, 9); "
          "[next(rows) for _ in range(999)]"),
    Fault("data worker raises", "rank", ("exception",), _WORKERS + "BAD.touch(); [next(rows) for _ in range(999)]"),
    Fault("data worker stopped", "rank", ("locked", "stopped"), _WORKERS + "os.kill(rows._workers[0].pid, 19); "
          "[next(rows) for _ in range(999)]"),
    Fault("file lock held elsewhere", "rank", ("locked",), "a = tempfile.NamedTemporaryFile(); fcntl.flock(a, 2); "
          "fcntl.flock(open(a.name), 2)"),
    Fault("opens a pipe nobody writes", "rank", ("locked",), _PIPE + "open(p)"),
    Fault("a server that never answers", "rank", ("locked",), "s = socket.socket(); s.bind(('127.0.0.1', 0)); "
          "s.listen(); socket.create_connection(s.getsockname()).recv(1)"),
    Fault("thread dies, main waits for it", "rank", ("locked", "exception"), "q = queue.Queue(); "
          "threading.Thread(target=lambda: 1 / 0).start(); q.get()"),
    Fault("joins a thread that sleeps", "rank", ("locked",), "t = threading.Thread(target=time.sleep, args=(9999,)); "
          "t.start(); t.join()"),
    Fault("busy native loop without the lock", "rank", ("locked",), "b = b'x' * (1 << 28)\n"
          "while True: hashlib.pbkdf2_hmac('sha256', b, b, 1 << 28)", limit_s=75),
    Fault("reads the keyboard", "rank", ("exception", "locked"), "input('Continue? [y/N] ')"),
    Fault("replaced by sleep", "rank", ("locked", "left", "other program"),
          "os.execv('/bin/sleep', ['sleep', '999'])"),
    Fault("replaced by true", "rank", ("left",), "os.execv('/bin/true', ['true'])"),
    Fault("makes itself a daemon", "rank", ("left",), "os.fork() and os._exit(0)"),
    Fault("a thread leaves with 0", "rank", ("left",), "threading.Thread(target=lambda: os._exit(0)).start(); "
          "time.sleep(600)"),
    Fault("data ends early", "rank", ("left",), "break", kinds=SCRIPT),
    Fault("returns from an exception with 0", "rank", ("left", "exception"), "try: open('/data/gone')\n"
          "except OSError as fault: print('could not read', fault); sys.exit()"),
    Fault("backward skipped", "rank", ("mismatch",), "dist.all_reduce(torch.ones(3)); continue", kinds=SCRIPT),
    Fault("another dtype", "rank", ("mismatch",), "dist.all_reduce(torch.ones(3, dtype=torch.float64))", kinds=SCRIPT),
    Fault("receives what nobody sends", "rank", ("mismatch", "locked"), "dist.recv(torch.ones(3), (RANK + 1) % 3)",
          kinds=SCRIPT),
    Fault("exception swallowed", "rank", ("mismatch", "locked"), "try: dist.all_reduce(model(batch).sum().log() "
          "+ [])\nexcept Exception: dist.all_gather([torch.ones(1)] * 3, torch.ones(1))", kinds=SCRIPT),
    Fault("a group with a rank too many", "rank", ("exception",), "dist.new_group([RANK, 7])", kinds=SCRIPT),
    Fault("a message of 300 kB", "rank", ("exception",), "raise ValueError('\\u00fc\\n\\u4f8b' * 60_000)"),
    Fault("a message that lies", "rank", ("exception",), "raise ValueError('rack-9 (rank 7) was killed by SIGKILL')"),
    Fault("a class of its own", "rank", ("exception",), "raise type('Bad', (Exception,), {})()"),
    Fault("assert in a hook of backward", "rank", ("exception",), "def hook(grad): assert False, 'spike'\n"
          "next(model.parameters()).register_hook(hook)"),
    Fault("no address", "rank", ("exception", "killed"), "resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2); "
          "b = bytearray(1 << 30)"),
    Fault("no more threads", "rank", ("exception", "killed"), "resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2); "
          "[threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(9999)]"),
    Fault("broken library", "rank", ("exception",), "f = tempfile.NamedTemporaryFile(); f.write(b'x' * 99); f.flush(); "
          "ctypes.CDLL(f.name)"),
    Fault("a wrong checkpoint", "rank", ("exception",), "model.load_state_dict({'head.weight': torch.ones(3)})"),
    Fault("a checkpoint cut short", "rank", ("exception",), "f = tempfile.NamedTemporaryFile(); "
          "torch.save({'a': torch.ones(99)}, f); f.truncate(300); f.flush(); torch.load(f.name)"),
    Fault("a loss that is not scalar", "rank", ("exception",),
          "return torch.ones(3, requires_grad=True)", kinds=TRAINER),
    Fault("a child holds the CPU", "rank", ("locked",), "subprocess.run([sys.executable, '-c', 'while 1: pass'], "
          "timeout=300)", limit_s=75),
    Fault("a slow step now and then", "rank", ("slow",), "nap = time.sleep\n"
          "time.sleep = lambda s: nap(s + 1.5 * (random.random() < 0.25))", kinds=SCRIPT),
    Fault("a thread takes the interpreter", "rank", ("slow",), "[threading.Thread(target=spin, daemon=True).start() "
          "for _ in range(8)]", kinds=SCRIPT),
    Fault("fewer cores, then slow", "rank", ("slow",), "SLOW = 0.15", kinds=SCRIPT),
]  # fmt: skip
HARMLESS = [
    Fault("prints 50 MB", "rank", ("harmless",), "for _ in range(50): print('x' * (1 << 20), flush=True)", limit_s=25),
    Fault("stopped for two seconds", "rank", ("harmless",), "subprocess.Popen(['sh', '-c', "
          "f'kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}'])", limit_s=25),
    Fault("prints the words of a failure", "rank", ("harmless",), "print('RuntimeError: CUDA out of memory', "
          "file=sys.stderr, flush=True)", limit_s=25),
    Fault("a child fails", "rank", ("harmless",), "subprocess.run(['sh', '-c', 'kill -9 $$'])", limit_s=25),
]  # fmt: skip


def _daemon_dies(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "kill -9 $(pidof sshd sshd-session)")


def _update(options: str) -> Act:
    return node_act(f"update {options}")


def _shim_dies(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "kill -9 $(ps -eo pid,args | grep [c]ontainerd-shim | awk '{print $1}')")


def _link(way: str) -> Act:
    return lambda hosts, run, host: hosts.root(host, f"ip link set eth0 {way}")


def _new_address(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, "a=$(ip -o -4 addr show eth0 | awk '{print $4}'); ip addr del $a dev eth0; "
               "ip addr add 10.254.7.7/24 dev eth0")  # fmt: skip


def _removed(hosts: Hosts, run: str, host: str) -> None:
    hosts.root(host, f"rm -rf /home/*/.muster/runs/{run}")


_RESET = "REJECT --reject-with tcp-reset"
STRANGE_ON_HOSTS = [
    Fault("sshd dies", "host", ("out of reach",), outside=_daemon_dies, mend=power("restart")),
    Fault("the interface goes down", "host", ("node lost", "cut off", "out of reach"), outside=_link("down"),
          mend=power("restart")),
    Fault("shutdown in order", "host", ("node lost", "killed", "ended"), outside=power("stop"), mend=power("start")),
    Fault("another address", "host", ("node lost", "cut off", "out of reach"), outside=_new_address,
          mend=power("restart")),
    Fault("connections reset", "pair", ("cut off", "reset"), outside=filtered("-I", target=_RESET),
          mend=filtered("-D", target=_RESET)),
    Fault("a tenth of a CPU", "host", ("slow",), outside=_update("--cpus 0.1")),
    Fault("memory limit lowered", "host", ("container memory",), outside=_update("--memory 60m --memory-swap 60m")),
    Fault("docker stop", "host", ("killed", "node lost", "ended", "left"), outside=node_act("stop -t 3"), ends=BOTH),
    Fault("docker restart", "host", ("killed", "node lost", "ended", "left"), outside=node_act("restart -t 3")),
    Fault("the shim dies", "host", ("killed", "node lost", "left"), outside=_shim_dies),
    Fault("packets of 300 bytes", "host", ("slow", "cut off", "node lost"), outside=_link("mtu 300"),
          mend=_link("mtu 1500"), big=True),
    Fault("run folder deleted", "host", ("gone",), outside=_removed, kinds=TRAINER, first=True),
    Fault("shared memory full", "rank", ("killed", "exception", "disk"), "open('/dev/shm/fill', 'wb').write("
          "bytes(os.statvfs('/dev/shm').f_bavail * 4096)); rows = iter(DataLoader([torch.ones(1 << 22)] * 9, "
          "num_workers=1)); [next(rows) for _ in range(9)]"),
]  # fmt: skip
_ALL = {fault.name: fault for fault in (*HERE, *STRANGE_HERE)}


def _both(first: str, then: str, gap_s: float) -> Fault:
    one = _ALL[first]
    return replace(one, name=f"{first}, then {then}", then=_ALL[then], gap_s=gap_s, limit_s=75)


TOGETHER = [
    _both("kill -9", "exception", 0.0),
    _both("sys.exit(0) early", "segmentation fault", 0.0),
    _both("SIGSTOP", "kill -9", 1.0),
    _both("deadlock", "exception", 3.0),
    _both("sleeps for ever", "SIGSTOP", 0.0),
    _both("a slow step now and then", "kill -9", 3.0),
    _both("data worker killed", "SIGHUP", 0.0),
    _both("makes itself a daemon", "broken library", 1.0),
    _both("slow in its own code", "exception", 5.0),
]
