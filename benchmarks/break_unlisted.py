"""Run-time faults of real training code that none of the other lists has (`benchmarks.breaks --list unlisted`).

The list, the culprits and the words that count as right were written by somebody who had not read Muster's rules, and
before any of them was tried with Muster; each was seen to do what it says under plain torchrun. Where a fault is no
fault, right is silence. Of two faults of different ranks either is right, by its own culprit and cause; of a decoy and
a fault, the fault alone is.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.break_faults import SCRIPT, TRAINER, Fault

CAUSES = {
    "fatal": r"Fatal Python error|called with(?:out)? the GIL",
    "arguments": r"\bcode 2\b|SystemExit|unrecognized arguments",
    "code one": r"\bcode 1\b",
    "expired": r"TimeoutExpired|timed out",
    "half gone": r"[Zz]ombie|defunct|main thread (?:is gone|has ended|ended|left)",
    "not in step": r"do not agree|different places|mismatch|doesn.t match|other gradients",
    "float64": r"float64|[Dd]ouble|doesn.t match",
}
_QUEUE = (
    "import multiprocessing\nfilled = multiprocessing.Queue()\n"
    "child = multiprocessing.Process(target=filled.put, args=(bytes(1 << 20),))\nchild.start(); child.join()"
)
_BATON = (
    "from torch.utils.file_baton import FileBaton\nlock = tempfile.mkdtemp() + '/lock'; open(lock, 'x').close()\n"
    "baton = FileBaton(lock)\nif not baton.try_acquire(): baton.wait()"
)
_HANDLER = (
    "saving = threading.Lock()\ndef save(*_):\n    with saving: torch.save(model.state_dict(), os.devnull)\n"
    "signal.signal(signal.SIGUSR1, save)\nwith saving: os.kill(os.getpid(), signal.SIGUSR1); time.sleep(1)"
)
_SOLVER = "x = torch.tensor(math.nan)\nwhile not abs(x - 2) < 1e-6: x = x - 0.1 * (x * x - 4)"
_METRICS = (
    "server = socket.create_server(('127.0.0.1', 0))\ndef report(*_):\n"
    "    try: socket.create_connection(server.getsockname(), timeout=0.4).recv(1)\n    except OSError: pass\n"
    "model.register_forward_hook(report)"
)
_HISTORY = (
    "losses = []\ndef smooth(*_):\n    losses.append(0.1)\n    for _ in losses: sum(range(150_000))\n"
    "model.register_forward_hook(smooth)"
)
_SKIPS = (
    "from torch.optim.optimizer import register_optimizer_step_pre_hook\ndef skip(optimizer, *_):\n"
    "    for group in optimizer.param_groups:\n        for each in group['params']: each.grad = None\n"
    "register_optimizer_step_pre_hook(skip)"
)
_FUNCTION = (
    "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, by): return x * by\n"
    "    @staticmethod\n    def backward(ctx, grad): return grad\n"
    "Scale.apply(torch.ones(3, requires_grad=True), 2.0).sum().backward()"
)
_RECOMPUTED = (
    "from torch.utils.checkpoint import checkpoint\ncalls = []\ndef block(x):\n    calls.append(1)\n"
    "    return x.exp() if len(calls) > 1 else x.exp().sin()\n"
    "checkpoint(block, torch.ones(3, requires_grad=True), use_reentrant=False).sum().backward()"
)
_REFUSED = (
    "import argparse\nsaved = tempfile.mkdtemp() + '/last.pt'\n"
    "torch.save({'args': argparse.Namespace(lr=0.1)}, saved); torch.load(saved)"
)
_SPEECHLESS = (
    "class ShardError(Exception):\n    def __str__(self): return f'shard {self.shard} is broken'\nraise ShardError(7)"
)
_NOTICE = (
    "signal.signal(signal.SIGTERM, lambda *_: print('preemption notice', flush=True)); "
    "os.kill(os.getpid(), signal.SIGTERM)"
)

UNLISTED = [
    Fault("joins a child whose queue nobody reads", "rank", ("locked",), _QUEUE),
    Fault("a child has ended, its child keeps the pipe", "rank", ("locked",),
          "subprocess.run(['sh', '-c', 'sleep 300 & echo started'], capture_output=True)"),
    Fault("its signal handler takes the lock that it holds", "rank", ("locked",), _HANDLER),
    Fault("a lock file that a build left behind", "rank", ("locked",), _BATON),
    Fault("a solver that NaN keeps from its end", "rank", ("locked",), _SOLVER, limit_s=75),
    Fault("reports to a slow server in each step", "rank", ("slow",), _METRICS),
    Fault("each step takes longer than the last", "rank", ("slow",), _HISTORY, limit_s=75),
    Fault("its main thread ends, its process stays", "rank", ("left", "locked", "half gone"),
          "ctypes.CDLL(None).syscall(60, 0)"),
    Fault("skips the steps of its optimizer", "rank", ("weights",), _SKIPS, kinds=TRAINER),
    Fault("no_sync is left on", "rank", ("not in step", "locked"), "model.require_backward_grad_sync = False",
          kinds=SCRIPT),
    Fault("a spawned loader runs the script again", "rank", ("locked", "exception"),
          "next(iter(DataLoader(Rows(), num_workers=1, multiprocessing_context='spawn')))", kinds=SCRIPT),
    Fault("a backward that returns too few gradients", "rank", ("exception",), _FUNCTION),
    Fault("its checkpointed layer computes something else", "rank", ("exception",), _RECOMPUTED),
    Fault("weights_only refuses its checkpoint", "rank", ("exception",), _REFUSED),
    Fault("a library calls Python without the GIL", "rank", ("killed", "fatal"),
          "ctypes.CDLL(None).PyThreadState_Get()"),
    Fault("arguments that a parser does not know", "rank", ("left", "arguments"), "import argparse\n"
          "argparse.ArgumentParser('evaluate').parse_args(['--lr-decay', '0.1'])"),
    Fault("a crash reporter hides the exception", "rank", ("exception", "left", "code one"),
          "sys.excepthook = lambda *_: None; raise ValueError('bad sample 7')"),
    Fault("a child takes longer than its timeout", "rank", ("expired",), "subprocess.run(['sleep', '99'], timeout=2)"),
    Fault("an error that cannot say what it is", "rank", ("exception",), _SPEECHLESS),
    Fault("an import makes float64 the default", "rank", ("mismatch", "float64"),
          "torch.set_default_dtype(torch.float64)", kinds=SCRIPT),
    Fault("a forked child raises", "rank", ("harmless",),
          "if os.fork() == 0: raise ConnectionError('the upload is refused')", limit_s=20, kinds=SCRIPT),
    Fault("a log line that cannot be formatted", "rank", ("harmless",), "import logging\n"
          "logging.warning('loss %d at step %d', 'none', 40)", limit_s=20),
    Fault("its watchdog only prints where it is", "rank", ("harmless",), "import faulthandler\n"
          "faulthandler.dump_traceback_later(1)", limit_s=20),
    Fault("a notice of preemption that it handles", "rank", ("harmless",), _NOTICE, limit_s=20),
    Fault("goes to another folder", "rank", ("harmless",), "os.chdir(tempfile.mkdtemp()); os.umask(0o077)",
          limit_s=25),
]  # fmt: skip
_ALL = {fault.name: fault for fault in UNLISTED}
_VOCABULARY = Fault("a vocabulary in another encoding", "rank", ("exception",),
                    "f = tempfile.mkdtemp() + '/vocab.txt'; pathlib.Path(f).write_bytes(b'caf' + bytes([233, 10]))\n"
                    "words = open(f, encoding='utf-8').read().split()")  # fmt: skip
_EXPIRED, _BATON_WAITS = _ALL["a child takes longer than its timeout"], _ALL["a lock file that a build left behind"]
# Where the first of two ranks stands still, the gap is 0: a rank that waits for it would never come to its own fault.
UNLISTED += [
    replace(_ALL["a log line that cannot be formatted"], name="a bad log line, then another rank waits for a lock file",
            cause=("decoy",), then=_BATON_WAITS, gap_s=1.0, limit_s=60.0),
    replace(_ALL["its signal handler takes the lock that it holds"], name="a locked handler and another's timeout",
            then=_EXPIRED, gap_s=0.0),
    replace(_ALL["reports to a slow server in each step"], name="a slow server, then another's vocabulary",
            then=_VOCABULARY, gap_s=4.0),
    replace(_ALL["a notice of preemption that it handles"], name="a handled notice, then another's library aborts",
            cause=("decoy",), then=_ALL["a library calls Python without the GIL"], gap_s=2.0, limit_s=60.0),
]  # fmt: skip
