"""A rank that is at another collective than the others."""

from benchmarks.breaks import SCRIPT, break_rank

break_rank("another collective", "mismatch, locked", "dist.broadcast(torch.ones(3), 0)", kinds=SCRIPT)
break_rank("a collective too many", "mismatch, locked", "dist.barrier()", kinds=SCRIPT)
break_rank("another shape", "mismatch", "dist.all_reduce(torch.ones(9))", kinds=SCRIPT)
break_rank("backward skipped", "mismatch", "dist.all_reduce(torch.ones(3)); continue", kinds=SCRIPT)
break_rank("another dtype", "mismatch", "dist.all_reduce(torch.ones(3, dtype=torch.float64))", kinds=SCRIPT)
break_rank("receives what nobody sends", "mismatch, locked", "dist.recv(torch.ones(3), (RANK + 1) % 3)", kinds=SCRIPT)
break_rank(
    "exception swallowed",
    "mismatch, locked",
    """
try: dist.all_reduce(model(batch).sum().log() + [])
except Exception: dist.all_gather([torch.ones(1)] * 3, torch.ones(1))
""",
    kinds=SCRIPT,
)
break_rank("a group made by one rank", "mismatch, locked", "dist.new_group([0, 1, 2])", kinds=SCRIPT)
break_rank(
    "sends what nobody receives", "mismatch, locked", "dist.send(torch.ones(1 << 22), (RANK + 1) % 3)", kinds=SCRIPT
)
break_rank(
    "every exception swallowed",
    "mismatch, locked",
    """
try: model(batch[:, :3]).sum().backward()
except Exception: continue
""",
    kinds=SCRIPT,
)
break_rank(
    "one collective too few",
    "mismatch, locked",
    """
model(batch).mean().backward()
continue
""",
    kinds=SCRIPT,
)
break_rank(
    "gathers objects alone", "mismatch, locked", "dist.all_gather_object([None] * 3, {'loss': 0.1})", kinds=SCRIPT
)
break_rank(
    "a monitored barrier alone",
    "mismatch, locked, exception",
    "dist.monitored_barrier(timeout=datetime.timedelta(seconds=8))",
    kinds=SCRIPT,
)
break_rank(
    "freezes a layer that the others train",
    "mismatch, locked, exception",
    "model.module[0].requires_grad_(False)",
    kinds=SCRIPT,
)
break_rank("no_sync is left on", "not in step, locked", "model.require_backward_grad_sync = False", kinds=SCRIPT)
break_rank(
    "an import makes float64 the default", "mismatch, float64", "torch.set_default_dtype(torch.float64)", kinds=SCRIPT
)
break_rank(
    "a logger's thread reduces by itself",
    "mismatch, locked, exception",
    "threading.Thread(target=dist.all_reduce, args=[torch.ones(3)]).start()",
    kinds=SCRIPT,
)
break_rank(
    "trains a batch more than the others",
    "mismatch, not in step, locked",
    "model(batch).mean().backward()",
    kinds=SCRIPT,
)
break_rank(
    "wraps its model again",
    "mismatch, locked, exception",
    "nn.parallel.DistributedDataParallel(model.module)",
    kinds=SCRIPT,
)
break_rank(
    "saves a sharded checkpoint alone",
    "mismatch, locked, exception",
    """
import torch.distributed.checkpoint as saves
saves.save({'w': torch.ones(3)}, checkpoint_id=tempfile.mkdtemp())
""",
    kinds=SCRIPT,
)
break_rank(
    "a stub replaces its all_reduce", "mismatch, locked", "dist.all_reduce = lambda *_, **__: None", kinds=SCRIPT
)
