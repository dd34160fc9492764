"""Faults in which a rank hangs."""

from benchmarks.breaks import break_rank, break_script

break_rank("SIGSTOP", "stopped", "os.kill(os.getpid(), signal.SIGSTOP)")
break_rank("deadlock", "locked", "l = threading.Lock(); l.acquire(); l.acquire()")
break_rank("endless loop", "locked", "spin()", limit_s=75)
break_rank("sleeps for ever", "locked", "time.sleep(10_000)")
break_rank("reads from a dead pipe", "locked", "r, w = os.pipe(); os.read(r, 1)")
break_rank("native code holds the interpreter", "locked", "re.match(r'(a+)+$', 'a' * 60 + 'b')", limit_s=75)
break_rank("waits for a child", "locked", "subprocess.run(['sleep', '10000'])")
break_rank(
    "a debugger holds it",
    "stopped",
    (
        "ctypes.CDLL(None).prctl(0x59616d61, -1)\n"
        "subprocess.Popen([sys.executable, '-c', f'import ctypes, time; ctypes.CDLL(None).ptrace(16, "
        "{os.getpid()}, 0, 0); time.sleep(600)'])"
    ),
)
break_rank(
    "data worker stopped",
    "locked, stopped",
    """
rows = iter(DataLoader(Rows(), num_workers=1, batch_size=1))
next(rows)
os.kill(rows._workers[0].pid, 19)
[next(rows) for _ in range(999)]
""",
)
break_rank(
    "file lock held elsewhere",
    "locked",
    "a = tempfile.NamedTemporaryFile(); fcntl.flock(a, 2); fcntl.flock(open(a.name), 2)",
)
break_rank("opens a pipe nobody writes", "locked", "p = tempfile.mkdtemp() + '/pipe'; os.mkfifo(p); open(p)")
break_rank(
    "a server that never answers",
    "locked",
    """
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen()
socket.create_connection(s.getsockname()).recv(1)
""",
)
break_rank(
    "thread dies, main waits for it",
    "locked, exception",
    "q = queue.Queue(); threading.Thread(target=lambda: 1 / 0).start(); q.get()",
)
break_rank(
    "joins a thread that sleeps", "locked", "t = threading.Thread(target=time.sleep, args=(9999,)); t.start(); t.join()"
)
break_rank(
    "busy native loop without the lock",
    "locked",
    """
b = b'x' * (1 << 28)
while True: hashlib.pbkdf2_hmac('sha256', b, b, 1 << 28)
""",
    limit_s=75,
)
break_rank("replaced by sleep", "locked, left, other program", "os.execv('/bin/sleep', ['sleep', '999'])")
break_rank(
    "a child holds the CPU",
    "locked",
    "subprocess.run([sys.executable, '-c', 'while 1: pass'], timeout=300)",
    limit_s=75,
)
break_rank(
    "a pool's worker dies",
    "locked",
    """
import multiprocessing
multiprocessing.Pool(1).map(os._exit, [9])
""",
)
break_rank("a barrier of threads", "locked", "threading.Barrier(2).wait()")
break_rank(
    "a future that nobody sets",
    "locked",
    """
import asyncio
async def never(): await asyncio.get_running_loop().create_future()
asyncio.run(never())
""",
)
break_rank("writes to a pipe nobody reads", "locked", "r, w = os.pipe(); os.write(w, bytes(1 << 20))")
break_rank(
    "a lock of processes",
    "locked",
    """
import multiprocessing
lock = multiprocessing.Lock(); lock.acquire(); lock.acquire()
""",
)
break_rank(
    "a file lock of a stopped process",
    "locked",
    (
        "import fcntl\n"
        "subprocess.run([sys.executable, '-c', \"import fcntl, os; f = open('lock', 'w'); fcntl.flock(f, "
        '2); os.set_inheritable(f.fileno(), True); os.fork() or os.kill(os.getpid(), 19)"])\n'
        "fcntl.flock(open('lock'), 2)"
    ),
)
break_script("a key that nobody sets", "locked", "dist.distributed_c10d._get_default_store().get('never')")
break_rank(
    "a loader's process never comes back",
    "locked",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        time.sleep(9999)
list(DataLoader(Odd(), num_workers=2))
""",
)
break_script(
    "a breakpoint that was left in",
    "quit, locked",
    """
breakpoint()
pass
""",
)
break_script(
    "hangs while an error is cleaned up",
    "locked, exception",
    """
try:
    raise ValueError('bad sample')
finally:
    time.sleep(10_000)
""",
)
break_script(
    "hangs at its exit",
    "locked, left, exception",
    """
import atexit
atexit.register(time.sleep, 10_000)
sys.exit(1)
""",
)
break_rank(
    "its cgroup is frozen",
    "frozen",
    (
        "group = pathlib.Path(f'/sys/fs/cgroup/freezer/breaks-{os.getpid()}'); group.mkdir()\n"
        "(group / 'cgroup.procs').write_text(str(os.getpid()))\n"
        "subprocess.Popen(['sh', '-c', f'echo $$ > {group.parent}/cgroup.procs; echo FROZEN > "
        "{group}/freezer.state; sleep 70; echo THAWED > {group}/freezer.state; sleep 9; rmdir {group}'], "
        "start_new_session=True)\n"
        "time.sleep(3)"
    ),
)
break_rank(
    "its loader is forked while a thread holds a lock",
    "locked",
    """
held = threading.Lock()
def work():
    with held: time.sleep(3)
threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        with held: return place
rows = iter(DataLoader(Odd(), num_workers=1))
next(rows)
""",
)
break_rank(
    "a loader's worker cannot send its sample",
    "locked, exception",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        return lambda: place
rows = iter(DataLoader(Odd(), num_workers=1, batch_size=None))
next(rows)
""",
)
break_rank(
    "polls for a file that another rank should write",
    "locked",
    ("while not os.path.exists(os.path.join(tempfile.gettempdir(), 'epoch-3.pt.done')): time.sleep(0.5)"),
)
break_rank(
    "waits in the kernel, as for a dead file server",
    "locked, in the kernel",
    "ctypes.CDLL(None).vfork() or time.sleep(9999)",
)
break_rank(
    "an import that waits for itself",
    "locked",
    (
        "folder = tempfile.mkdtemp(); sys.path.insert(0, folder)\n"
        "lines = ['import threading', 't = threading.Thread(target=lambda: "
        "__import__(\"lazy_ops\").ready)', 't.start()', 't.join()', 'ready = 1']\n"
        "pathlib.Path(folder, 'lazy_ops.py').write_text(chr(10).join(lines))\n"
        "import lazy_ops"
    ),
)
break_rank(
    "tries again without end",
    "locked",
    """
import urllib.request
while True:
    try: urllib.request.urlopen('http://127.0.0.1:9/shard-7.tar', timeout=3)
    except OSError as fault: print('shard 7:', fault, '(next try in 1 s)', flush=True); time.sleep(1)
""",
)
break_rank(
    "joins a child whose queue nobody reads",
    "locked",
    """
import multiprocessing
filled = multiprocessing.Queue()
child = multiprocessing.Process(target=filled.put, args=(bytes(1 << 20),))
child.start(); child.join()
""",
)
break_rank(
    "a child has ended, its child keeps the pipe",
    "locked",
    "subprocess.run(['sh', '-c', 'sleep 300 & echo started'], capture_output=True)",
)
break_rank(
    "its signal handler takes the lock that it holds",
    "locked",
    """
saving = threading.Lock()
def save(*_):
    with saving: torch.save(model.state_dict(), os.devnull)
signal.signal(signal.SIGUSR1, save)
with saving: os.kill(os.getpid(), signal.SIGUSR1); time.sleep(1)
""",
)
break_rank(
    "a lock file that a build left behind",
    "locked",
    """
from torch.utils.file_baton import FileBaton
lock = tempfile.mkdtemp() + '/lock'; open(lock, 'x').close()
baton = FileBaton(lock)
if not baton.try_acquire(): baton.wait()
""",
)
break_rank(
    "a solver that NaN keeps from its end",
    "locked",
    """
x = torch.tensor(math.nan)
while not abs(x - 2) < 1e-6: x = x - 0.1 * (x * x - 4)
""",
    limit_s=75,
)
break_script(
    "a spawned loader runs the script again",
    "locked, exception",
    "next(iter(DataLoader(Rows(), num_workers=1, multiprocessing_context='spawn')))",
)
break_rank(
    "a loader's worker waits for a file's lock",
    "locked",
    """
shard = tempfile.NamedTemporaryFile(); fcntl.flock(shard, fcntl.LOCK_EX)
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        fcntl.flock(open(shard.name), fcntl.LOCK_EX)
next(iter(DataLoader(Odd(), num_workers=1)))
""",
)
break_rank(
    "both pipes to its tokenizer are full",
    "locked",
    """
cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
cat.stdin.write(bytes(1 << 22)); cat.stdin.close(); cat.stdout.read()
""",
)
break_rank(
    "a pool of one thread waits for itself",
    "locked",
    """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(lambda: pool.submit(len, 'shard').result()).result()
""",
)
break_rank(
    "a thread swallows its error, the event stays unset",
    "locked",
    """
ready = threading.Event()
def warm():
    try: {}['step']; ready.set()
    except Exception: pass
threading.Thread(target=warm).start(); ready.wait()
""",
)
break_rank(
    "spins until a flag is set that nobody sets",
    "locked",
    """
flag = torch.zeros(1).share_memory_()
while not flag.item(): pass
""",
    limit_s=75,
)
break_rank(
    "waits for the database of its metrics",
    "locked",
    """
import sqlite3
file = tempfile.mkdtemp() + '/metrics.db'
one = sqlite3.connect(file); one.execute('begin exclusive')
sqlite3.connect(file, timeout=600).execute('create table loss (step, value)')
""",
)
break_rank(
    "its second store waits for a worker",
    "locked",
    "dist.TCPStore('127.0.0.1', 0, world_size=2, is_master=True, wait_for_workers=True)",
)
break_rank(
    "a forked child waits for OpenMP's threads",
    "locked",
    """
import multiprocessing
torch.set_num_threads(2); big = torch.ones(1 << 22); (big + 1).sum()
child = multiprocessing.get_context('fork').Process(target=lambda: (big + 1).sum())
child.start(); child.join()
""",
)
break_rank(
    "a decoder locks twice with the interpreter's lock",
    "locked",
    """
latch = ctypes.create_string_buffer(64)
for _ in range(2): ctypes.PyDLL(None).pthread_mutex_lock(latch)
""",
    limit_s=75,
)
break_rank(
    "its crash reporter hangs",
    "locked, exception",
    "sys.excepthook = lambda *_: time.sleep(10_000); raise ValueError('bad sample 7')",
)
break_rank(
    "keeps itself alive after an error",
    "locked, exception",
    """
import traceback
try: raise ValueError('bad sample 7')
except ValueError: traceback.print_exc(); print('kept alive for a look', flush=True); time.sleep(86_400)
""",
)
