"""Faults in which a rank raises an exception."""

from benchmarks.breaks import TRAINER, break_rank, break_script

break_rank("exception", "exception", "raise ValueError('bad sample 7')")
break_rank("no permission", "exception", "raise PermissionError(13, 'Permission denied', '/data/x')")
break_rank(
    "too many open files",
    "exception",
    """
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
files = [open('/dev/null') for _ in range(99)]
""",
)
break_rank("endless recursion", "exception", "f = lambda n: f(n + 1); f(0)")
break_rank("no memory for an array", "exception, host memory", "torch.empty(1 << 50)")
break_rank("no space left", "disk", "f = open('/dev/full', 'w'); f.write('x' * 9999); f.flush()")
break_rank(
    "data worker killed",
    "exception, killed",
    """
rows = iter(DataLoader(Rows(), num_workers=1, batch_size=1))
next(rows)
os.kill(rows._workers[0].pid, 9)
[next(rows) for _ in range(999)]
""",
)
break_rank(
    "data worker raises",
    "exception",
    """
rows = iter(DataLoader(Rows(), num_workers=1, batch_size=1))
next(rows)
BAD.touch()
[next(rows) for _ in range(999)]
""",
)
break_rank("reads the keyboard", "exception, locked", "input('Continue? [y/N] ')")
break_script("a group with a rank too many", "exception", "dist.new_group([RANK, 7])")
break_rank("a message of 300 kB", "exception", "raise ValueError('\\u00fc\\n\\u4f8b' * 60_000)")
break_rank("a message that lies", "exception", "raise ValueError('rack-9 (rank 7) was killed by SIGKILL')")
break_rank("a class of its own", "exception", "raise type('Bad', (Exception,), {})()")
break_rank(
    "assert in a hook of backward",
    "exception",
    """
def hook(grad): assert False, 'spike'
next(model.parameters()).register_hook(hook)
""",
)
break_rank(
    "no address", "exception, killed", "resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2); b = bytearray(1 << 30)"
)
break_rank(
    "no more threads",
    "exception, killed",
    """
resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2)
[threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(9999)]
""",
)
break_rank(
    "broken library",
    "exception",
    "f = tempfile.NamedTemporaryFile(); f.write(b'x' * 99); f.flush(); ctypes.CDLL(f.name)",
)
break_rank(
    "a checkpoint cut short",
    "exception",
    """
f = tempfile.NamedTemporaryFile()
torch.save({'a': torch.ones(99)}, f)
f.truncate(300)
f.flush()
torch.load(f.name)
""",
)
break_rank("a loss that is not scalar", "exception", "return torch.ones(3, requires_grad=True)", kinds=TRAINER)
break_script(
    "half of the model is not used",
    "exception, mismatch, locked",
    """
model.module[0](batch).sum().backward()
continue
""",
)
break_rank(
    "a handler of a signal raises",
    "exception",
    """
def late(*_): raise TimeoutError('no batch')
signal.signal(signal.SIGALRM, late); signal.alarm(1); time.sleep(600)
""",
)
break_rank(
    "its output is closed, then it raises",
    "exception, left",
    "os.close(1); os.close(2); raise ValueError('bad sample 7')",
)
break_rank(
    "a group of exceptions",
    "exception",
    "raise ExceptionGroup('batch', [ValueError('bad sample 7'), KeyError('label')])",
)
break_rank("bytes that are not text", "exception", "raise ValueError('caf\\udce9 ' + 'x' * 100_000)")
break_rank(
    "a database that is locked",
    "exception",
    (
        "import sqlite3\n"
        "one = sqlite3.connect('a.db'); one.execute('begin exclusive'); sqlite3.connect('a.db', "
        "timeout=0.1).execute('create table t (x)')"
    ),
)
break_rank(
    "a batch whose rows differ", "exception", "next(iter(DataLoader([torch.ones(2), torch.ones(3)], batch_size=2)))"
)
break_rank(
    "a loader's process is out of memory",
    "exception, killed, host memory",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        os.kill(os.getpid(), 9)
list(DataLoader(Odd(), num_workers=2))
""",
)
break_script(
    "a limit of memory",
    "exception",
    """
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
bytearray(1 << 34)
""",
)
break_script(
    "a limit of file size",
    "exception, disk",
    """
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
open('big', 'wb').write(bytes(9999))
""",
)
break_script(
    "a message that is no UTF-8",
    "exception",
    "sys.stderr.buffer.write(bytes([255, 254, 10]))\nraise ValueError('caf\\udce9')",
)
break_script(
    "an error from an error",
    "exception",
    """
try:
    {}['lr']
except KeyError as gone:
    raise RuntimeError('the config is incomplete') from gone
""",
)
break_script("a module that is missing", "exception", "import not_there_at_all")
break_script("a program that fails", "exception", "subprocess.check_call(['false'])")
break_script("closes all its sockets", "exception, left, killed, locked", "os.closerange(3, 4096)")
break_script(
    "an error, while a thread goes on",
    "exception, locked",
    """
threading.Thread(target=time.sleep, args=[10_000]).start()
raise ValueError('bad sample')
""",
)
break_script("leaves the process group", "exception", "dist.destroy_process_group()")
break_rank(
    "a warning that is an error",
    "warning",
    """
import warnings
warnings.simplefilter('error')
warnings.warn('`lr_scheduler.step()` before `optimizer.step()`')
""",
)
break_script(
    "its working folder is deleted",
    "exception, gone",
    """
import shutil
assert '/runs/' in os.getcwd() or os.getcwd().startswith('/muster')
shutil.rmtree(os.getcwd(), ignore_errors=True); open('notes.txt', 'w')
""",
)
break_rank(
    "its loader has a timeout, and its data hangs",
    "exception",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        time.sleep(9999)
rows = iter(DataLoader(Odd(), num_workers=1, timeout=4))
next(rows)
""",
)
break_rank(
    "a loader's worker leaves with 0",
    "exception",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        raise SystemExit(0)
rows = iter(DataLoader(Odd(), num_workers=1))
next(rows)
""",
)
break_script(
    "keeps every batch of its loader's workers",
    "exception",
    """
most = len(os.listdir('/proc/self/fd')) + 60; resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
kept = list(DataLoader(Rows(), batch_size=1, num_workers=1))
""",
)
break_rank(
    "the search for anomalies finds NaN in backward",
    "exception, nan",
    """
with torch.autograd.detect_anomaly():
    (torch.zeros(3, requires_grad=True).sqrt() * 0).sum().backward()
""",
)
break_script(
    "gathers an object that cannot be pickled",
    "exception",
    "dist.gather_object(threading.Lock(), None, dst=(RANK + 1) % 3)",
)
break_rank(
    "logs into a program that has ended",
    "exception",
    """
log = subprocess.Popen(['head', '-n', '1'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
while True: print('step', file=log.stdin, flush=True); time.sleep(0.1)
""",
)
break_rank(
    "a process of its pool dies",
    "exception, broken pool",
    """
from concurrent.futures import ProcessPoolExecutor
ProcessPoolExecutor(1).submit(os._exit, 9).result()
""",
)
break_rank(
    "a backward that returns too few gradients",
    "exception",
    """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by): return x * by
    @staticmethod
    def backward(ctx, grad): return grad
Scale.apply(torch.ones(3, requires_grad=True), 2.0).sum().backward()
""",
)
break_rank(
    "its checkpointed layer computes something else",
    "exception",
    """
from torch.utils.checkpoint import checkpoint
calls = []
def block(x):
    calls.append(1)
    return x.exp() if len(calls) > 1 else x.exp().sin()
checkpoint(block, torch.ones(3, requires_grad=True), use_reentrant=False).sum().backward()
""",
)
break_rank(
    "weights_only refuses its checkpoint",
    "exception",
    """
import argparse
saved = tempfile.mkdtemp() + '/last.pt'
torch.save({'args': argparse.Namespace(lr=0.1)}, saved); torch.load(saved)
""",
)
break_rank(
    "a crash reporter hides the exception",
    "exception, left, code one",
    "sys.excepthook = lambda *_: None; raise ValueError('bad sample 7')",
)
break_rank("a child takes longer than its timeout", "expired", "subprocess.run(['sleep', '99'], timeout=2)")
break_rank(
    "an error that cannot say what it is",
    "exception",
    """
class ShardError(Exception):
    def __str__(self): return f'shard {self.shard} is broken'
raise ShardError(7)
""",
)
break_rank("torch.save finds no space", "exception, disk", "torch.save({'head': torch.ones(1 << 20)}, '/dev/full')")
break_rank(
    "a shard that is a web page",
    "exception, bad zip",
    """
import zipfile
file = tempfile.mkdtemp() + '/shard-3.zip'
pathlib.Path(file).write_text('<html>404 not found</html>'); zipfile.ZipFile(file)
""",
)
break_rank(
    "a host name that nobody knows",
    "exception, unknown name, locked",
    "socket.create_connection(('data.invalid', 443), timeout=9)",
)
break_rank("a loader without a batch", "exception, no batch left", "next(iter(DataLoader([])))")
break_rank("a last batch of one row", "exception", "nn.BatchNorm1d(4)(torch.ones(1, 4))")
break_script(
    "a worker's exception that cannot be made again",
    "exception",
    """
class ShardError(Exception):
    def __init__(self, shard, place): super().__init__(f'{shard}: {place}')
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        raise ShardError(3, place)
next(iter(DataLoader(Odd(), num_workers=1)))
""",
)
break_rank(
    "a loader's worker starts a process",
    "exception",
    """
import multiprocessing
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        multiprocessing.Process(target=len).start()
next(iter(DataLoader(Odd(), num_workers=1)))
""",
)
break_rank(
    "a lambda for a spawned process",
    "exception",
    """
import multiprocessing
multiprocessing.get_context('spawn').Process(target=lambda: 0).start()
""",
)
break_rank(
    "its prefetch thread dies, its queue times out",
    "exception, empty queue",
    """
filled = queue.Queue()
threading.Thread(target=lambda: filled.put(open('/data/gone/3.tar').read())).start()
filled.get(timeout=3)
""",
)
break_rank(
    "the manager of its shared rows dies",
    "exception",
    """
import multiprocessing
manager = multiprocessing.get_context('fork').Manager(); seen = manager.dict(row=1)
manager._process.kill(); manager._process.join(); seen['row']
""",
)
break_rank(
    "a thread's time limit raises in the main thread",
    "exception",
    (
        "def late(): "
        "ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.main_thread().ident), "
        "ctypes.py_object(TimeoutError))\n"
        "threading.Timer(0.3, late).start()\n"
        "while True: time.sleep(0.1)"
    ),
)
break_rank("casts its model alone", "exception, not in step", "model.bfloat16()")
break_rank(
    "a patched forward wants an argument more",
    "exception",
    ("nn.Linear.forward = lambda self, x, scale: nn.functional.linear(x, self.weight, self.bias) * scale"),
)
break_rank("a library clears the environment", "exception", "os.environ.clear(); int(os.environ['WORLD_SIZE'])")
