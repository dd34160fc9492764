"""Run-time faults of training code of today that no other list has (`benchmarks.breaks --list newest`).

The list, the culprits and the words that count as right were written by somebody who had not read Muster's rules, and
before any of them was tried with Muster; each was seen to do what it says under plain torchrun. Where a fault is no
fault, right is silence. Of two faults of different ranks either is right, by its own culprit and cause; of a decoy and
a fault, the fault alone is.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.break_faults import SCRIPT, Fault

CAUSES = {
    "watchdog": r"Timeout \(|[Ww]atchdog|\bcode 1\b|faulthandler",
    "broken pool": r"BrokenProcessPool",
    "in the kernel": r"uninterruptible|[Ss]tate D|in the kernel|file (?:system|server)|\bI/O\b|vfork",
    "again": r"started again|started itself|replaced|\bexec",
    "decoy": r"(?!)",  # no words about it are right
}
_ODD = (
    "class Odd(Dataset):\n    def __len__(self):\n        return 99\n    def __getitem__(self, place):\n        {}\n"
    "rows = iter(DataLoader(Odd(), {}))\nnext(rows)"
)
_FORKED = (
    "held = threading.Lock()\ndef work():\n    with held: time.sleep(3)\n"
    "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)\n"
    + _ODD.format("with held: return place", "num_workers=1")
)
_LEAK = (
    "most = len(os.listdir('/proc/self/fd')) + 60; resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
    "kept = list(DataLoader(Rows(), batch_size=1, num_workers=1))"
)
_ANOMALY = "with torch.autograd.detect_anomaly():\n    (torch.zeros(3, requires_grad=True).sqrt() * 0).sum().backward()"
_POLLS = "while not os.path.exists(os.path.join(tempfile.gettempdir(), 'epoch-3.pt.done')): time.sleep(0.5)"
_LOG = (
    "log = subprocess.Popen(['head', '-n', '1'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)\n"
    "while True: print('step', file=log.stdin, flush=True); time.sleep(0.1)"
)
_IMPORT = (
    "folder = tempfile.mkdtemp(); sys.path.insert(0, folder)\n"
    "lines = ['import threading', 't = threading.Thread(target=lambda: __import__(\"lazy_ops\").ready)', 't.start()', "
    "'t.join()', 'ready = 1']\n"
    "pathlib.Path(folder, 'lazy_ops.py').write_text(chr(10).join(lines))\nimport lazy_ops"
)
_RETRIES = (
    "import urllib.request\nwhile True:\n"
    "    try: urllib.request.urlopen('http://127.0.0.1:9/shard-7.tar', timeout=3)\n"
    "    except OSError as fault: print('shard 7:', fault, '(next try in 1 s)', flush=True); time.sleep(1)"
)
_POOL = "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(1).submit(os._exit, 9).result()"
_LOGGED = "import logging\ntry: open('/data/shard-3.tar')\nexcept OSError: logging.exception('shard 3 is left out')"
_TASK = (
    "import asyncio, gc\nasync def upload(): raise ConnectionError('the metrics server is away')\n"
    "async def main():\n    asyncio.create_task(upload())\n    await asyncio.sleep(0.1)\n"
    "asyncio.run(main()); gc.collect()"
)
_COMPILES = "end=$(($(date +%s) + 15)); while [ $(date +%s) -lt $end ]; do :; done"

NEWEST = [
    Fault("its loader has a timeout, and its data hangs", "rank", ("exception",),
          _ODD.format("time.sleep(9999)", "num_workers=1, timeout=4")),
    Fault("its loader is forked while a thread holds a lock", "rank", ("locked",), _FORKED),
    Fault("a loader's worker leaves with 0", "rank", ("exception",),
          _ODD.format("raise SystemExit(0)", "num_workers=1")),
    Fault("a loader's worker cannot send its sample", "rank", ("locked", "exception"),
          _ODD.format("return lambda: place", "num_workers=1, batch_size=None")),
    Fault("keeps every batch of its loader's workers", "rank", ("exception",), _LEAK, kinds=SCRIPT),
    Fault("the search for anomalies finds NaN in backward", "rank", ("exception", "nan"), _ANOMALY),
    Fault("polls for a file that another rank should write", "rank", ("locked",), _POLLS),
    Fault("its own watchdog ends it", "rank", ("left", "watchdog"), "import faulthandler\n"
          "faulthandler.dump_traceback_later(2, exit=True); time.sleep(600)"),
    Fault("gathers an object that cannot be pickled", "rank", ("exception",),
          "dist.gather_object(threading.Lock(), None, dst=(RANK + 1) % 3)", kinds=SCRIPT),
    Fault("gathers objects alone", "rank", ("mismatch", "locked"),
          "dist.all_gather_object([None] * 3, {'loss': 0.1})", kinds=SCRIPT),
    Fault("a monitored barrier alone", "rank", ("mismatch", "locked", "exception"),
          "dist.monitored_barrier(timeout=datetime.timedelta(seconds=8))", kinds=SCRIPT),
    Fault("logs into a program that has ended", "rank", ("exception",), _LOG),
    Fault("starts itself again", "rank", ("left", "locked", "other program", "reset", "exception", "again"),
          "os.execv(sys.executable, sys.orig_argv)", kinds=SCRIPT),
    Fault("waits in the kernel, as for a dead file server", "rank", ("locked", "in the kernel"),
          "ctypes.CDLL(None).vfork() or time.sleep(9999)"),
    Fault("a process of its pool dies", "rank", ("exception", "broken pool"), _POOL),
    Fault("freezes a layer that the others train", "rank", ("mismatch", "locked", "exception"),
          "model.module[0].requires_grad_(False)", kinds=SCRIPT),
    Fault("an import that waits for itself", "rank", ("locked",), _IMPORT),
    Fault("tries again without end", "rank", ("locked",), _RETRIES),
    Fault("a profiler that was left on", "rank", ("slow",),
          "nap = time.sleep; sys.setprofile(lambda *_: nap(0.0004))"),
    Fault("an exception in __del__", "rank", ("harmless",), "class Pool:\n"
          "    def __del__(self): raise RuntimeError('the pool is closed')\nkept = Pool(); del kept", limit_s=20),
    Fault("a task's exception that nobody awaits", "rank", ("harmless",), _TASK, limit_s=20),
    Fault("logs the traceback of an error that it handles", "rank", ("harmless",), _LOGGED, limit_s=20),
    Fault("other seeds than the others", "rank", ("harmless",), "torch.manual_seed(77 + RANK); random.seed(RANK)",
          limit_s=25),
    Fault("compiles for 15 s", "rank", ("harmless",), f"subprocess.run(['sh', '-c', '{_COMPILES}'])", limit_s=30),
    Fault("two thousand warnings", "rank", ("harmless",), "import warnings\n"
          "for n in range(2000): warnings.warn(f'option {n} is deprecated', FutureWarning)", limit_s=20, kinds=SCRIPT),
    Fault("sys.exit(1) in a thread that nobody needs", "rank", ("harmless",),
          "threading.Thread(target=sys.exit, args=(1,)).start()", limit_s=20),
    Fault("its memory grows by 400 MB", "rank", ("harmless",), "globals().setdefault('KEPT', []).extend("
          "bytearray(b'x' * (1 << 24)) for _ in range(25))", limit_s=20, kinds=SCRIPT),
]  # fmt: skip
_ALL = {fault.name: fault for fault in NEWEST}
# Where the first of two ranks stands still, the gap is 0: a rank that waits for it would never come to its own fault.
_TOKEN = Fault("a token beyond the vocabulary", "rank", ("exception",), "nn.Embedding(10, 4)(torch.tensor([11]))")
_WATCHDOG, _TIMEOUT = _ALL["its own watchdog ends it"], _ALL["its loader has a timeout, and its data hangs"]
_WAITS, _AGAIN = _ALL["waits in the kernel, as for a dead file server"], _ALL["tries again without end"]
NEWEST += [
    replace(_ALL["logs the traceback of an error that it handles"], name="a decoy's traceback, then another rank polls",
            cause=("decoy",), then=_ALL["polls for a file that another rank should write"], gap_s=1.0, limit_s=60.0),
    replace(_TOKEN, name="two ranks raise the same at once", then=_TOKEN, gap_s=0.0),
    replace(_AGAIN, name="tries without end, then another's loader times out", then=_TIMEOUT, gap_s=0.0),
    replace(_ALL["a profiler that was left on"], name="a profiler left on, then another's pool breaks",
            then=_ALL["a process of its pool dies"], gap_s=4.0, kinds=SCRIPT),
    replace(_WAITS, name="waits in the kernel, then another's watchdog", then=_WATCHDOG, gap_s=0.0, kinds=SCRIPT),
]  # fmt: skip
