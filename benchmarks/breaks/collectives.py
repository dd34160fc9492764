"""Faults in which a rank calls another collective than the other ranks."""

from benchmarks.breaks import break_script

break_script("another collective", "mismatch, locked", "dist.broadcast(torch.ones(3), 0)")
break_script("a collective too many", "mismatch, locked", "dist.barrier()")
break_script("another shape", "mismatch", "dist.all_reduce(torch.ones(9))")
break_script("backward skipped", "mismatch", "dist.all_reduce(torch.ones(3)); continue")
break_script("another dtype", "mismatch", "dist.all_reduce(torch.ones(3, dtype=torch.float64))")
break_script("receives what nobody sends", "mismatch, locked", "dist.recv(torch.ones(3), (RANK + 1) % 3)")
break_script(
    "exception swallowed",
    "mismatch, locked",
    """
try: dist.all_reduce(model(batch).sum().log() + [])
except Exception: dist.all_gather([torch.ones(1)] * 3, torch.ones(1))
""",
)
break_script("a group made by one rank", "mismatch, locked", "dist.new_group([0, 1, 2])")
break_script("sends what nobody receives", "mismatch, locked", "dist.send(torch.ones(1 << 22), (RANK + 1) % 3)")
break_script(
    "every exception swallowed",
    "mismatch, locked",
    """
try: model(batch[:, :3]).sum().backward()
except Exception: continue
""",
)
break_script(
    "one collective too few",
    "mismatch, locked",
    """
model(batch).mean().backward()
continue
""",
)
break_script("gathers objects alone", "mismatch, locked", "dist.all_gather_object([None] * 3, {'loss': 0.1})")
break_script(
    "a monitored barrier alone",
    "mismatch, locked, exception",
    "dist.monitored_barrier(timeout=datetime.timedelta(seconds=8))",
)
break_script(
    "freezes a layer that the others train",
    "mismatch, locked, exception",
    "model.module[0].requires_grad_(False)",
)
break_script("no_sync is left on", "not in step, locked", "model.require_backward_grad_sync = False")
break_script("an import makes float64 the default", "mismatch, float64", "torch.set_default_dtype(torch.float64)")
break_script(
    "a logger's thread reduces by itself",
    "mismatch, locked, exception",
    "threading.Thread(target=dist.all_reduce, args=[torch.ones(3)]).start()",
)
break_script(
    "trains a batch more than the others",
    "mismatch, not in step, locked",
    "model(batch).mean().backward()",
)
break_script(
    "wraps its model again",
    "mismatch, locked, exception",
    "nn.parallel.DistributedDataParallel(model.module)",
)
break_script(
    "saves a sharded checkpoint alone",
    "mismatch, locked, exception",
    """
import torch.distributed.checkpoint as saves
saves.save({'w': torch.ones(3)}, checkpoint_id=tempfile.mkdtemp())
""",
)
break_script("a stub replaces its all_reduce", "mismatch, locked", "dist.all_reduce = lambda *_, **__: None")
