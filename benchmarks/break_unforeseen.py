"""Run-time faults that people report of their training code (`benchmarks.breaks --list unforeseen`).

The list, the culprits and the words that count as right were written by somebody who had not read Muster's rules, and
before any of them was tried with Muster. Where a fault is no fault, right is silence. Of two faults of different ranks
either is right, by its own culprit and cause; of a decoy and a fault, the fault alone is.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.break_faults import SCRIPT, TRAINER, Fault

# Some exceptions have names that do not end as the others' do. What is not here is in the other lists.
CAUSES = {
    "bad zip": r"BadZipFile|not a zip file",
    "no batch left": r"StopIteration",
    "unknown name": r"gaierror|[Nn]ame or service|[Nn]ame resolution|No address associated",
    "empty queue": r"\bEmpty\b",
    "code 255": r"\bcode (?:255|-1)\b",
    "its words on the shard": r"shard 3.{0,6}is bad",
    "not finite": r"\b[Ii]nf(?:inite|inity)?\b|(?:not|non)[- ]?finite",
}
_ROWS = (
    "class Odd(Dataset):\n    def __len__(self):\n        return 99\n    def __getitem__(self, place):\n        {}\n"
)
_ODD = _ROWS + "next(iter(DataLoader(Odd(), num_workers=1)))"
_OPTIMIZER = (
    "one, two = (torch.ones(1, requires_grad=True) for _ in range(2))\n"
    "saved = torch.optim.Adam([one, two]).state_dict(); torch.optim.Adam([one]).load_state_dict(saved)"
)
_SCHEDULER = (
    "own = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)\n"
    "rate = torch.optim.lr_scheduler.OneCycleLR(own, 0.1, total_steps=2)\nfor _ in range(3): own.step(); rate.step()"
)
_ZIP = (
    "import zipfile\nfile = tempfile.mkdtemp() + '/shard-3.zip'\n"
    "pathlib.Path(file).write_text('<html>404 not found</html>'); zipfile.ZipFile(file)"
)
_SHARD = "class ShardError(Exception):\n    def __init__(self, shard, place): super().__init__(f'{shard}: {place}')\n"
_PREFETCH = (
    "filled = queue.Queue()\nthreading.Thread(target=lambda: filled.put(open('/data/gone/3.tar').read())).start()\n"
    "filled.get(timeout=3)"
)
_MANAGER = (
    "import multiprocessing\nmanager = multiprocessing.get_context('fork').Manager(); seen = manager.dict(row=1)\n"
    "manager._process.kill(); manager._process.join(); seen['row']"
)
_LATE = (
    "def late(): ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.main_thread().ident), "
    "ctypes.py_object(TimeoutError))\nthreading.Timer(0.3, late).start()\nwhile True: time.sleep(0.1)"
)
_PIPES = (
    "cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "cat.stdin.write(bytes(1 << 22)); cat.stdin.close(); cat.stdout.read()"
)
_EXECUTOR = (
    "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
    "pool.submit(lambda: pool.submit(len, 'shard').result()).result()"
)
_EVENT = (
    "ready = threading.Event()\ndef warm():\n    try: {}['step']; ready.set()\n    except Exception: pass\n"
    "threading.Thread(target=warm).start(); ready.wait()"
)
_DATABASE = (
    "import sqlite3\nfile = tempfile.mkdtemp() + '/metrics.db'\n"
    "one = sqlite3.connect(file); one.execute('begin exclusive')\n"
    "sqlite3.connect(file, timeout=600).execute('create table loss (step, value)')"
)
_OPENMP = (
    "import multiprocessing\ntorch.set_num_threads(2); big = torch.ones(1 << 22); (big + 1).sum()\n"
    "child = multiprocessing.get_context('fork').Process(target=lambda: (big + 1).sum())\nchild.start(); child.join()"
)
_KEPT = (
    "import traceback\ntry: raise ValueError('bad sample 7')\n"
    "except ValueError: traceback.print_exc(); print('kept alive for a look', flush=True); time.sleep(86_400)"
)
_FLOCK = "shard = tempfile.NamedTemporaryFile(); fcntl.flock(shard, fcntl.LOCK_EX)\n" + _ODD.format(
    "fcntl.flock(open(shard.name), fcntl.LOCK_EX)"
)
_SHARDED = (
    "import torch.distributed.checkpoint as saves\nsaves.save({'w': torch.ones(3)}, checkpoint_id=tempfile.mkdtemp())"
)
_RATE = (
    "from torch.optim.optimizer import register_optimizer_step_pre_hook\ndef halve(optimizer, *_):\n"
    "    for group in optimizer.param_groups: group['lr'] = group['lr'] * 0.5\nregister_optimizer_step_pre_hook(halve)"
)
_ANEW = (
    "def reload(*_): list(DataLoader([torch.ones(1)] * 4, num_workers=4)) and None\nmodel.register_forward_hook(reload)"
)
_ORDERLY = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"
_EARLIER = (
    "print('Root Cause (first observed failure):', '  rank      : 0 (local_rank: 0)', '  exitcode  : -9 (pid: 77)', "
    "'  traceback : Signal 9 (SIGKILL) received by PID 77', sep=chr(10), file=sys.stderr, flush=True)"
)
_WITHOUT = _ROWS.format("os.kill(os.getpid(), 9)") + (
    "try: list(DataLoader(Odd(), num_workers=1))\n"
    "except RuntimeError as fault: print('loads in the main process from now on:', fault, flush=True)"
)
_OVERFLOW = (
    "own = torch.ones(2, requires_grad=True); steps = torch.optim.SGD([own], lr=0.1)\n"
    "scaler = torch.amp.GradScaler('cpu'); scaler.scale((own * math.inf).sum()).backward(); scaler.step(steps)\n"
    "scaler.update(); print('Gradient overflow, skipping step: loss scale', scaler.get_scale(), flush=True)"
)
_CLIENT = (
    "def send(): raise BrokenPipeError(32, 'Broken pipe')\nthreading.Thread(target=send, name='NetStatThr').start()"
)
_TO_A_FILE = (
    "log = os.open(tempfile.mkdtemp() + '/train.log', os.O_WRONLY | os.O_CREAT)\nos.dup2(log, 1); os.dup2(log, 2)"
)

UNFORESEEN = [
    # What it loads, saves and reads.
    Fault("its optimizer's state is another model's", "rank", ("exception",), _OPTIMIZER),
    Fault("its checkpoint is a folder", "rank", ("exception",), "torch.load(tempfile.mkdtemp(prefix='last.pt-'))"),
    Fault("torch.save finds no space", "rank", ("exception", "disk"),
          "torch.save({'head': torch.ones(1 << 20)}, '/dev/full')"),
    Fault("a shard that is a web page", "rank", ("exception", "bad zip"), _ZIP),
    Fault("a host name that nobody knows", "rank", ("exception", "unknown name", "locked"),
          "socket.create_connection(('data.invalid', 443), timeout=9)"),
    Fault("sequences that were not padded", "rank", ("exception",), "torch.tensor([[101, 7592, 102], [101, 102]])"),
    Fault("a loader without a batch", "rank", ("exception", "no batch left"), "next(iter(DataLoader([])))"),
    Fault("a last batch of one row", "rank", ("exception",), "nn.BatchNorm1d(4)(torch.ones(1, 4))"),
    # Processes and threads that work for it.
    Fault("a worker's exception that cannot be made again", "rank", ("exception",),
          _SHARD + _ODD.format("raise ShardError(3, place)"), kinds=SCRIPT),
    Fault("a loader's worker starts a process", "rank", ("exception",),
          "import multiprocessing\n" + _ODD.format("multiprocessing.Process(target=len).start()")),
    Fault("a lambda for a spawned process", "rank", ("exception",), "import multiprocessing\n"
          "multiprocessing.get_context('spawn').Process(target=lambda: 0).start()"),
    Fault("its prefetch thread dies, its queue times out", "rank", ("exception", "empty queue"), _PREFETCH),
    Fault("the manager of its shared rows dies", "rank", ("exception",), _MANAGER),
    Fault("a loader's worker waits for a file's lock", "rank", ("locked",), _FLOCK),
    Fault("a thread's time limit raises in the main thread", "rank", ("exception",), _LATE),
    Fault("a thread interrupts the main thread", "rank", ("interrupt",), "import _thread\n"
          "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it\n"
          "threading.Timer(0.3, _thread.interrupt_main).start()\nwhile True: time.sleep(0.1)"),
    # Precision, schedules, and what libraries patch.
    Fault("steps its scheduler beyond the end", "rank", ("exception",), _SCHEDULER),
    Fault("a mask too small for half precision", "rank", ("exception",),
          "torch.zeros(3).half().masked_fill(torch.tensor([True, False, True]), -1e9)"),
    Fault("casts its model alone", "rank", ("exception", "not in step"), "model.bfloat16()"),
    Fault("the perplexity of a large loss", "rank", ("exception",), "math.exp(2000.0)"),
    Fault("a patched forward wants an argument more", "rank", ("exception",), "nn.Linear.forward = "
          "lambda self, x, scale: nn.functional.linear(x, self.weight, self.bias) * scale"),
    Fault("a library clears the environment", "rank", ("exception",), "os.environ.clear(); "
          "int(os.environ['WORLD_SIZE'])"),
    Fault("its loss is infinite", "rank", ("nan", "not finite"), "NAN = math.inf", kinds=TRAINER),
    Fault("halves its learning rate alone", "rank", ("weights",), _RATE, kinds=TRAINER),
    Fault("loads a checkpoint alone", "rank", ("weights",), "model.load_state_dict("
          "{name: value * 0.5 for name, value in model.state_dict().items()})", kinds=TRAINER),
    # Collectives under a condition.
    Fault("reduces a metric once too often", "rank", ("mismatch", "locked"), "dist.all_reduce(torch.ones(3))",
          kinds=SCRIPT),
    Fault("a logger's thread reduces by itself", "rank", ("mismatch", "locked", "exception"),
          "threading.Thread(target=dist.all_reduce, args=[torch.ones(3)]).start()", kinds=SCRIPT),
    Fault("trains a batch more than the others", "rank", ("mismatch", "not in step", "locked"),
          "model(batch).mean().backward()", kinds=SCRIPT),
    Fault("wraps its model again", "rank", ("mismatch", "locked", "exception"),
          "nn.parallel.DistributedDataParallel(model.module)", kinds=SCRIPT),
    Fault("saves a sharded checkpoint alone", "rank", ("mismatch", "locked", "exception"), _SHARDED, kinds=SCRIPT),
    Fault("a stub replaces its all_reduce", "rank", ("mismatch", "locked"), "dist.all_reduce = lambda *_, **__: None",
          kinds=SCRIPT),
    Fault("reduces a number that is no tensor", "rank", ("exception",), "dist.all_reduce(torch.ones(1).item())",
          kinds=SCRIPT),
    # It stands still.
    Fault("both pipes to its tokenizer are full", "rank", ("locked",), _PIPES),
    Fault("a pool of one thread waits for itself", "rank", ("locked",), _EXECUTOR),
    Fault("a thread swallows its error, the event stays unset", "rank", ("locked",), _EVENT),
    Fault("spins until a flag is set that nobody sets", "rank", ("locked",), "flag = torch.zeros(1).share_memory_()\n"
          "while not flag.item(): pass", limit_s=75),
    Fault("waits for the database of its metrics", "rank", ("locked",), _DATABASE),
    Fault("its second store waits for a worker", "rank", ("locked",),
          "dist.TCPStore('127.0.0.1', 0, world_size=2, is_master=True, wait_for_workers=True)"),
    Fault("a forked child waits for OpenMP's threads", "rank", ("locked",), _OPENMP),
    # A sleep would not do: the first signal that has a handler ends it.
    Fault("a decoder locks twice with the interpreter's lock", "rank", ("locked",), "latch = "
          "ctypes.create_string_buffer(64)\nfor _ in range(2): ctypes.PyDLL(None).pthread_mutex_lock(latch)",
          limit_s=75),
    Fault("its crash reporter hangs", "rank", ("locked", "exception"),
          "sys.excepthook = lambda *_: time.sleep(10_000); raise ValueError('bad sample 7')"),
    Fault("keeps itself alive after an error", "rank", ("locked", "exception"), _KEPT),
    # It ends.
    Fault("sys.exit(-1)", "rank", ("left", "code 255"), "sys.exit(-1)"),
    Fault("sys.exit of a list", "rank", ("left", "code one", "its words on the shard"),
          "sys.exit(['shard 3', 'is bad'])"),
    Fault("leaves in order at SIGTERM", "rank", ("left", "ended"), _ORDERLY),
    Fault("its loop ends, a thread keeps it alive", "rank", ("left", "locked", "half gone"),
          "threading.Thread(target=time.sleep, args=[10_000]).start(); break", kinds=SCRIPT),
    Fault("C++ terminates it", "rank", ("killed",), "ctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()"),
    Fault("a profiler's timer without its handler", "rank", ("killed",),
          "signal.setitimer(signal.ITIMER_PROF, 0.3); spin()"),
    # It is slow.
    Fault("starts its loader's workers in each step", "rank", ("slow",), _ANEW),
    Fault("asks a program for the memory in each step", "rank", ("slow",),
          "model.register_forward_hook(lambda *_: subprocess.run(['sleep', '0.4']) and None)"),
    # Nothing is wrong.
    Fault("prints the end of an earlier run's log", "rank", ("harmless",), _EARLIER, limit_s=20),
    Fault("goes on without the loader's worker that died", "rank", ("harmless",), _WITHOUT, limit_s=20),
    Fault("copies its next shard for 12 s", "rank", ("harmless",), "subprocess.run(['sleep', '12'])", limit_s=25),
    Fault("an overflow that its scaler skips", "rank", ("harmless",), _OVERFLOW, limit_s=20),
    Fault("a thread of its metrics client dies", "rank", ("harmless",), _CLIENT, limit_s=20),
    Fault("sends its output to a file", "rank", ("harmless",), _TO_A_FILE, limit_s=25),
]  # fmt: skip
_ALL = {fault.name: fault for fault in UNFORESEEN}
# Where the first of two ranks stands still, the gap is 0: a rank that waits for it would never come to its own fault.
UNFORESEEN += [
    replace(_ALL["a thread of its metrics client dies"], name="a client's thread dies, then another finds no space",
            cause=("decoy",), then=_ALL["torch.save finds no space"], gap_s=1.0, limit_s=60.0),
    replace(_ALL["copies its next shard for 12 s"], name="copies for 12 s, then another's batch has one row",
            cause=("decoy",), then=_ALL["a last batch of one row"], gap_s=1.0, limit_s=60.0),
    replace(_ALL["a pool of one thread waits for itself"], name="a pool waits for itself, another has no batch",
            then=_ALL["a loader without a batch"], gap_s=0.0),
    replace(_ALL["C++ terminates it"], name="C++ terminates one, another leaves with -1", then=_ALL["sys.exit(-1)"],
            gap_s=0.0),
    replace(_ALL["asks a program for the memory in each step"], name="a slow program, then another's store waits",
            then=_ALL["its second store waits for a worker"], gap_s=4.0),
]  # fmt: skip
