"""Faults in which a rank is slow, or computes wrong numbers."""

from benchmarks.breaks import TRAINER, break_rank, break_script

break_rank("slow in its own code", "slow", "SLOW = 0.4")
break_script("slow data", "slow", "DATA = 0.4")
break_rank("weights changed", "weights", "next(model.parameters()).data.view(-1)[0] += 1e-3", kinds=TRAINER)
break_rank("NaN", "nan", "NAN = math.nan", kinds=TRAINER)
break_script(
    "a slow step now and then",
    "slow",
    """
nap = time.sleep
time.sleep = lambda s: nap(s + 1.5 * (random.random() < 0.25))
""",
)
break_script(
    "a thread takes the interpreter",
    "slow",
    "[threading.Thread(target=spin, daemon=True).start() for _ in range(8)]",
)
break_rank(
    "stopped every other second",
    "slow, stopped",
    (
        "subprocess.Popen(['sh', '-c', f'while kill -STOP {os.getpid()}; do sleep 1; kill -CONT "
        "{os.getpid()}; sleep 1; done'])"
    ),
    limit_s=75,
)
break_rank("an own check finds NaN", "nan, exception", "assert not math.isnan(math.nan), 'loss is nan'")
break_script(
    "collects garbage all the time",
    "slow",
    """
import gc
kept = [[n] for n in range(3_000_000)]
gc.set_threshold(1)
SLOW = 0.3
""",
)
break_script(
    "a timer interrupts it all the time",
    "slow",
    """
signal.signal(signal.SIGALRM, lambda *_: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 60_000))
signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
""",
)
break_rank("a profiler that was left on", "slow", "nap = time.sleep; sys.setprofile(lambda *_: nap(0.0004))")
break_rank(
    "reports to a slow server in each step",
    "slow",
    """
server = socket.create_server(('127.0.0.1', 0))
def report(*_):
    try: socket.create_connection(server.getsockname(), timeout=0.4).recv(1)
    except OSError: pass
model.register_forward_hook(report)
""",
)
break_rank(
    "each step takes longer than the last",
    "slow",
    """
losses = []
def smooth(*_):
    losses.append(0.1)
    for _ in losses: sum(range(150_000))
model.register_forward_hook(smooth)
""",
    limit_s=75,
)
break_rank(
    "skips the steps of its optimizer",
    "weights",
    """
from torch.optim.optimizer import register_optimizer_step_pre_hook
def skip(optimizer, *_):
    for group in optimizer.param_groups:
        for each in group['params']: each.grad = None
register_optimizer_step_pre_hook(skip)
""",
    kinds=TRAINER,
)
break_rank("its loss is infinite", "nan, not finite", "NAN = math.inf", kinds=TRAINER)
break_rank(
    "halves its learning rate alone",
    "weights",
    """
from torch.optim.optimizer import register_optimizer_step_pre_hook
def halve(optimizer, *_):
    for group in optimizer.param_groups: group['lr'] = group['lr'] * 0.5
register_optimizer_step_pre_hook(halve)
""",
    kinds=TRAINER,
)
break_rank(
    "loads a checkpoint alone",
    "weights",
    "model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})",
    kinds=TRAINER,
)
break_rank(
    "starts its loader's workers in each step",
    "slow",
    """
def reload(*_): list(DataLoader([torch.ones(1)] * 4, num_workers=4)) and None
model.register_forward_hook(reload)
""",
)
break_rank(
    "asks a program for the memory in each step",
    "slow",
    "model.register_forward_hook(lambda *_: subprocess.run(['sleep', '0.4']) and None)",
)
