"""Acts that look like a fault but are none: the right reaction is silence."""

from benchmarks.breaks import break_rank, break_script

break_rank("prints 50 MB", "harmless", "for _ in range(50): print('x' * (1 << 20), flush=True)", limit_s=25)
break_rank(
    "stopped for two seconds",
    "harmless",
    ("subprocess.Popen(['sh', '-c', f'kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}'])"),
    limit_s=25,
)
break_rank(
    "prints the words of a failure",
    "harmless",
    "print('RuntimeError: CUDA out of memory', file=sys.stderr, flush=True)",
    limit_s=25,
)
break_rank("a child fails", "harmless", "subprocess.run(['sh', '-c', 'kill -9 $$'])", limit_s=25)
break_rank(
    "evaluates for 25 s while the others wait",
    "harmless",
    """
end = time.monotonic() + 25
while time.monotonic() < end: torch.randn(300, 300) @ torch.randn(300, 300)
""",
    limit_s=35,
)
break_rank(
    "a download that trickles",
    "harmless",
    """
server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())
def send(to):
    for _ in range(60):
        to.send(b'x'); time.sleep(0.4)
    to.close()
threading.Thread(target=send, args=[server.accept()[0]], daemon=True).start()
while client.recv(1): pass
""",
    limit_s=35,
)
break_rank("time.time is patched", "harmless", "time.time = lambda: 1.0e9", limit_s=35)
break_rank(
    "an exception in __del__",
    "harmless",
    """
class Pool:
    def __del__(self): raise RuntimeError('the pool is closed')
kept = Pool(); del kept
""",
    limit_s=20,
)
break_rank(
    "a task's exception that nobody awaits",
    "harmless",
    """
import asyncio, gc
async def upload(): raise ConnectionError('the metrics server is away')
async def main():
    asyncio.create_task(upload())
    await asyncio.sleep(0.1)
asyncio.run(main()); gc.collect()
""",
    limit_s=20,
)
break_rank(
    "logs the traceback of an error that it handles",
    "harmless",
    """
import logging
try: open('/data/shard-3.tar')
except OSError: logging.exception('shard 3 is left out')
""",
    limit_s=20,
)
break_rank("other seeds than the others", "harmless", "torch.manual_seed(77 + RANK); random.seed(RANK)", limit_s=25)
break_rank(
    "compiles for 15 s",
    "harmless",
    ("subprocess.run(['sh', '-c', 'end=$(($(date +%s) + 15)); while [ $(date +%s) -lt $end ]; do :; done'])"),
    limit_s=30,
)
break_script(
    "two thousand warnings",
    "harmless",
    """
import warnings
for n in range(2000): warnings.warn(f'option {n} is deprecated', FutureWarning)
""",
    limit_s=20,
)
break_rank(
    "sys.exit(1) in a thread that nobody needs",
    "harmless",
    "threading.Thread(target=sys.exit, args=(1,)).start()",
    limit_s=20,
)
break_script(
    "its memory grows by 400 MB",
    "harmless",
    "globals().setdefault('KEPT', []).extend(bytearray(b'x' * (1 << 24)) for _ in range(25))",
    limit_s=20,
)
break_script(
    "a forked child raises",
    "harmless",
    "if os.fork() == 0: raise ConnectionError('the upload is refused')",
    limit_s=20,
)
break_rank(
    "a log line that cannot be formatted",
    "harmless",
    """
import logging
logging.warning('loss %d at step %d', 'none', 40)
""",
    limit_s=20,
)
break_rank(
    "its watchdog only prints where it is",
    "harmless",
    """
import faulthandler
faulthandler.dump_traceback_later(1)
""",
    limit_s=20,
)
break_rank(
    "a notice of preemption that it handles",
    "harmless",
    """
signal.signal(signal.SIGTERM, lambda *_: print('preemption notice', flush=True))
os.kill(os.getpid(), signal.SIGTERM)
""",
    limit_s=20,
)
break_rank("goes to another folder", "harmless", "os.chdir(tempfile.mkdtemp()); os.umask(0o077)", limit_s=25)
break_rank(
    "prints the end of an earlier run's log",
    "harmless",
    (
        "print('Root Cause (first observed failure):', '  rank      : 0 (local_rank: 0)', '  exitcode  : "
        "-9 (pid: 77)', '  traceback : Signal 9 (SIGKILL) received by PID 77', sep=chr(10), "
        "file=sys.stderr, flush=True)"
    ),
    limit_s=20,
)
break_rank(
    "goes on without the loader's worker that died",
    "harmless",
    """
class Odd(Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, place):
        os.kill(os.getpid(), 9)
try: list(DataLoader(Odd(), num_workers=1))
except RuntimeError as fault: print('loads in the main process from now on:', fault, flush=True)
""",
    limit_s=20,
)
break_rank("copies its next shard for 12 s", "harmless", "subprocess.run(['sleep', '12'])", limit_s=25)
break_rank(
    "an overflow that its scaler skips",
    "harmless",
    """
own = torch.ones(2, requires_grad=True); steps = torch.optim.SGD([own], lr=0.1)
scaler = torch.amp.GradScaler('cpu'); scaler.scale((own * math.inf).sum()).backward(); scaler.step(steps)
scaler.update(); print('Gradient overflow, skipping step: loss scale', scaler.get_scale(), flush=True)
""",
    limit_s=20,
)
break_rank(
    "a thread of its metrics client dies",
    "harmless",
    """
def send(): raise BrokenPipeError(32, 'Broken pipe')
threading.Thread(target=send, name='NetStatThr').start()
""",
    limit_s=20,
)
break_rank(
    "sends its output to a file",
    "harmless",
    """
log = os.open(tempfile.mkdtemp() + '/train.log', os.O_WRONLY | os.O_CREAT)
os.dup2(log, 1); os.dup2(log, 2)
""",
    limit_s=25,
)
