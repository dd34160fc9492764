"""Faults of benchmarks.breaks that no rule was made for (`--list others`): what a stranger would try.

The list, and the words that count as right, were written before any of them was tried.
"""

from __future__ import annotations

from benchmarks.break_faults import SCRIPT, Act, Fault, Hosts

_WORKER = (
    "class Odd(Dataset):\n    def __len__(self):\n        return 99\n    def __getitem__(self, place):\n        {}\n"
)
_SENT = "subprocess.run(['kill', '-{}', str(os.getpid())]); time.sleep(600)"

OTHERS = [
    Fault("SIGALRM from an own timer", "rank", ("killed",), "signal.alarm(1); time.sleep(600)"),
    Fault("SIGQUIT from outside", "rank", ("killed",), _SENT.format("QUIT")),
    Fault("SIGTERM from outside", "rank", ("killed",), _SENT.format("TERM")),
    Fault("SIGFPE", "rank", ("killed",), "signal.raise_signal(signal.SIGFPE)"),
    Fault("stack of C code runs over", "rank", ("killed",), "ctypes.CDLL(None).qsort(ctypes.create_string_buffer(8), "
          "1 << 40, 8, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: 1))"),
    Fault("a debugger holds it", "rank", ("stopped", "locked"), "ctypes.CDLL(None).prctl(0x59616d61, -1); "
          "subprocess.Popen([sys.executable, '-c', f'import ctypes, time; ctypes.CDLL(None).ptrace(16, {os.getpid()}, "
          "0, 0); time.sleep(600)'])"),
    Fault("stopped every other second", "rank", ("slow", "stopped"), "subprocess.Popen(['sh', '-c', f'while kill "
          "-STOP {os.getpid()}; do sleep 1; kill -CONT {os.getpid()}; sleep 1; done'])", limit_s=75),
    Fault("a pool's worker dies", "rank", ("locked",), "import multiprocessing\n"
          "multiprocessing.Pool(1).map(os._exit, [9])"),
    Fault("a barrier of threads", "rank", ("locked",), "threading.Barrier(2).wait()"),
    Fault("a future that nobody sets", "rank", ("locked",), "import asyncio\n"
          "async def never(): await asyncio.get_running_loop().create_future()\nasyncio.run(never())"),
    Fault("writes to a pipe nobody reads", "rank", ("locked",), "r, w = os.pipe(); os.write(w, bytes(1 << 20))"),
    Fault("a lock of processes", "rank", ("locked",), "import multiprocessing\n"
          "lock = multiprocessing.Lock(); lock.acquire(); lock.acquire()"),
    Fault("a file lock of a stopped process", "rank", ("locked",), "import fcntl\n"
          "subprocess.run([sys.executable, '-c', \"import fcntl, os; f = open('lock', 'w'); fcntl.flock(f, 2); "
          "os.set_inheritable(f.fileno(), True); os.fork() or os.kill(os.getpid(), 19)\"])\n"
          "fcntl.flock(open('lock'), 2)"),
    Fault("a key that nobody sets", "rank", ("locked",),
          "dist.distributed_c10d._get_default_store().get('never')", kinds=SCRIPT),
    Fault("a group made by one rank", "rank", ("mismatch", "locked"), "dist.new_group([0, 1, 2])", kinds=SCRIPT),
    Fault("sends what nobody receives", "rank", ("mismatch", "locked"),
          "dist.send(torch.ones(1 << 22), (RANK + 1) % 3)", kinds=SCRIPT),
    Fault("half of the model is not used", "rank", ("exception", "mismatch", "locked"),
          "model.module[0](batch).sum().backward()\ncontinue", kinds=SCRIPT),
    Fault("every exception swallowed", "rank", ("mismatch", "locked"), "try: model(batch[:, :3]).sum().backward()\n"
          "except Exception: continue", kinds=SCRIPT),
    Fault("another dtype in a collective", "rank", ("mismatch",),
          "dist.all_reduce(torch.ones(3, dtype=torch.float16))", kinds=SCRIPT),
    Fault("a handler of a signal raises", "rank", ("exception",), "def late(*_): raise TimeoutError('no batch')\n"
          "signal.signal(signal.SIGALRM, late); signal.alarm(1); time.sleep(600)"),
    Fault("its output is closed, then it raises", "rank", ("exception", "left"),
          "os.close(1); os.close(2); raise ValueError('bad sample 7')"),
    Fault("a group of exceptions", "rank", ("exception",),
          "raise ExceptionGroup('batch', [ValueError('bad sample 7'), KeyError('label')])"),
    Fault("bytes that are not text", "rank", ("exception",), "raise ValueError('caf\\udce9 ' + 'x' * 100_000)"),
    Fault("a database that is locked", "rank", ("exception",), "import sqlite3\n"
          "one = sqlite3.connect('a.db'); one.execute('begin exclusive'); "
          "sqlite3.connect('a.db', timeout=0.1).execute('create table t (x)')"),
    Fault("a batch whose rows differ", "rank", ("exception",), "next(iter(DataLoader([torch.ones(2), torch.ones(3)], "
          "batch_size=2)))"),
    Fault("a loader's process is out of memory", "rank", ("exception", "killed", "host memory"), _WORKER.format(
          "os.kill(os.getpid(), 9)") + "list(DataLoader(Odd(), num_workers=2))"),
    Fault("a loader's process never comes back", "rank", ("locked",), _WORKER.format("time.sleep(9999)")
          + "list(DataLoader(Odd(), num_workers=2))"),
    Fault("ends with code 7", "rank", ("left", "exception"), "os._exit(7)"),
    Fault("a thread ends the process with 3", "rank", ("left",), "threading.Timer(0.1, os._exit, [3]).start(); "
          "time.sleep(600)"),
    Fault("a thread dies, the queue stays empty", "rank", ("locked", "exception"), "import queue\n"
          "todo = queue.Queue()\nthreading.Thread(target=lambda: todo.put({}['label'])).start()\ntodo.get()"),
    Fault("an own check finds NaN", "rank", ("nan", "exception"), "assert not math.isnan(math.nan), 'loss is nan'"),
    Fault("no more files of the process", "rank", ("exception",), "resource.setrlimit(resource.RLIMIT_NOFILE, (64, "
          "64)); pipes = [os.pipe() for _ in range(99)]"),
    Fault("no more processes", "rank", ("exception",), "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)); "
          "kept = [threading.Thread(target=time.sleep, args=(99,), daemon=True) for _ in range(999)]; "
          "[each.start() for each in kept]"),
]  # fmt: skip


def _at_host(command: str) -> Act:
    """A command on the culprit's host, as root, where $run is the run's folder there."""

    def act(hosts: Hosts, run: str, host: str) -> None:
        hosts.root(host, f"run=$(ls -d /home/*/.muster/runs/{run}); {command}")

    return act


OTHERS_ON_HOSTS = [
    Fault("a third of the packets is lost", "host", ("slow", "cut off", "node lost"), big=True,
          outside=_at_host("iptables -I INPUT -i eth0 -p tcp ! --dport 22 -m statistic --mode random --probability 0.3"
                           " -j DROP"),
          mend=_at_host("iptables -F INPUT")),
    Fault("its folder is read-only", "host", ("exception", "disk", "killed", "left"), kinds=("trainer",), first=True,
          outside=_at_host("mount --bind $run $run; mount -o remount,ro,bind $run"), mend=_at_host("umount -l $run")),
    Fault("a limit of processes", "rank", ("exception", "killed"), kinds=SCRIPT,
          inside="kept = [threading.Thread(target=time.sleep, args=(99,), daemon=True) for _ in range(9999)]; "
          "[each.start() for each in kept]", job="pids = 200"),
    Fault("everything on the host is killed", "host", ("killed", "node lost", "left"),
          outside=_at_host("kill -9 $(pgrep -f [t]rainer.elastic.torchrun)")),
    Fault("SIGINT to its container", "host", ("killed", "node lost", "left", "exception"),
          outside=lambda hosts, run, host: hosts.root(host, f"docker kill -s INT muster-{run}")),
    Fault("logged out: SSH ends for a while", "host", ("node lost",), limit_s=20,
          outside=_at_host("iptables -I INPUT -p tcp --dport 22 -j DROP"), mend=_at_host("iptables -F INPUT")),
]  # fmt: skip
