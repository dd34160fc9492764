"""More faults for benchmarks.breaks (`--list strange`), of which no rule was thought when they were written down.

All of them are code that one rank of a plain DDP script runs. Two thirds are to look at, one third is for the score.
"""

from __future__ import annotations

from benchmarks.break_faults import SCRIPT, Fault

CAUSES = {"interrupted": "KeyboardInterrupt|SIGINT", "quit": "BdbQuit", "its-words": "no licence for this host"}


def _of(name: str, cause: str, inside: str, limit_s: float = 60.0) -> Fault:
    return Fault(name, "rank", tuple(cause.split()), inside, kinds=SCRIPT, limit_s=limit_s)


_WORKER = (
    "class Odd(Dataset):\n    def __len__(self):\n        return 99\n    def __getitem__(self, place):\n        {}\n"
)
_LOADED = "for batch in DataLoader(Odd(), num_workers=1):\n    pass"

STRANGE = [
    _of("SIGTERM", "killed", "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)"),
    _of("SIGINT", "interrupted", "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"),
    _of("SIGUSR1", "killed", "os.kill(os.getpid(), signal.SIGUSR1)\ntime.sleep(9)"),
    _of("a limit of processor time", "killed", "resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nspin()"),
    _of("a limit of memory", "exception",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))\nbytearray(1 << 34)"),
    _of("a limit of file size", "exception disk",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\nopen('big', 'wb').write(bytes(9999))"),
    _of("a DataLoader's worker is killed", "exception killed",
        _WORKER.format("return os.kill(os.getpid(), 9)") + _LOADED),
    _of("a DataLoader's worker raises", "exception", _WORKER.format("raise KeyError('label')") + _LOADED),
    _of("a DataLoader's worker sleeps", "locked", _WORKER.format("time.sleep(10_000)") + _LOADED),
    _of("a DataLoader's worker is stopped", "locked stopped",
        _WORKER.format("return os.kill(os.getpid(), signal.SIGSTOP)") + _LOADED),
    _of("a file that another process has locked", "locked",
        "import fcntl\nheld = open('lock', 'w')\nfcntl.flock(held, fcntl.LOCK_EX)\n"
        "fcntl.flock(open('lock'), fcntl.LOCK_EX)"),
    _of("a named pipe that nobody writes", "locked", "os.mkfifo('pipe')\nopen('pipe').read()"),
    _of("a server that does not answer", "locked",
        "server = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(server.getsockname()).recv(1)"),
    _of("a queue that a dead thread should fill", "locked exception",
        "import queue\nfilled = queue.Queue()\nthreading.Thread(target=lambda: filled.put(1 / 0)).start()\n"
        "filled.get()"),
    _of("os._exit(3) in a thread", "left", "threading.Thread(target=lambda: os._exit(3)).start()\ntime.sleep(9)"),
    _of("one collective too few", "mismatch locked", "model(batch).mean().backward()\ncontinue"),
    _of("its data ends before the others'", "left", "break"),
    _of("another dtype", "mismatch locked", "dist.all_reduce(torch.ones(3, dtype=torch.float64))"),
    _of("an assertion in a hook of the backward pass", "exception",
        "def check(grad):\n    raise AssertionError('the gradient is too large')\n"
        "next(model.parameters()).register_hook(check)"),
    _of("a message of 100 kB", "exception", "raise ValueError('x' * 100_000)"),
    _of("a message that is no UTF-8", "exception",
        "sys.stderr.buffer.write(bytes([255, 254, 10]))\nraise ValueError('caf\\udce9')"),
    _of("an error from an error", "exception",
        "try:\n    {}['lr']\nexcept KeyError as gone:\n    raise RuntimeError('the config is incomplete') from gone"),
    _of("sys.exit with a message", "its-words", "sys.exit('ERROR: no licence for this host')"),
    _of("a module that is missing", "exception", "import not_there_at_all"),
    _of("a program that fails", "exception", "subprocess.check_call(['false'])"),
    _of("becomes another program", "left locked", "os.execv('/bin/sleep', ['sleep', '10000'])"),
    _of("closes all its sockets", "exception left killed locked", "os.closerange(3, 4096)"),
    _of("asks a person", "exception locked", "input('continue? ')"),
    _of("a breakpoint that was left in", "quit locked", "breakpoint()\npass"),
    _of("hangs while an error is cleaned up", "locked exception",
        "try:\n    raise ValueError('bad sample')\nfinally:\n    time.sleep(10_000)"),
    _of("hangs at its exit", "locked left exception",
        "import atexit\natexit.register(time.sleep, 10_000)\nsys.exit(1)"),
    _of("an error, while a thread goes on", "exception locked",
        "threading.Thread(target=time.sleep, args=[10_000]).start()\nraise ValueError('bad sample')"),
    _of("leaves the process group", "exception", "dist.destroy_process_group()"),
    _of("eight busy threads", "slow locked",
        "for _ in range(8):\n    threading.Thread(target=spin, daemon=True).start()"),
    _of("collects garbage all the time", "slow",
        "import gc\nkept = [[n] for n in range(3_000_000)]\ngc.set_threshold(1)\nSLOW = 0.3"),
]  # fmt: skip
