"""Uses of torch that hooks may disturb: runs each in its own process on every rank, and records output and end.

    CASES=groups,mesh OWN=FOLDER torchrun --nproc-per-node 4 watched_cases.py

Without CASES, all cases of this file run. A name that begins with `test_` is a case of torch's own distributed tests.
`rank-N.json` has, for each case, the exit code and the output, including tracebacks and warnings.
"""

import atexit
import contextlib
import copy
import datetime
import faulthandler
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
import types
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.autograd import backward
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

PATIENCE, LIMIT_S = datetime.timedelta(seconds=60), 180
OWN, RANK, WORLD = os.environ["OWN"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# What changes from run to run: addresses, times, process ids, temporary file names, ports, lines of torch's C++.
CHANGES = re.compile(
    r"0x[0-9a-f]+|\b\d\d:\d\d:\d\d(?:\.\d+)?(?: \d+(?::\d+)?)?|\b[WE]1\d{3} ?|\b(?:pid:?|started) \d+|tmp\w{8}"
    r"|127\.0\.0\.1\]?:\d+|\d+(\.\d+)?(ms|us|s)\b|\[[^\]]*\.cc:\d+\]"
)


class Rows(Dataset):
    """Eight rows, of which one may be broken."""

    def __init__(self, bad=-1):
        self.bad = bad

    def __len__(self):
        return 8

    def __getitem__(self, place):
        if place == self.bad:
            raise ValueError(f"row {place}")
        return torch.full((4,), float(place))


class Stream(IterableDataset):
    """A stream that reports a smaller length than it has."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(torch.ones(8, 4))


class Fails(torch.autograd.Function):
    """A function that raises in its backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ZeroDivisionError("on the way back")


def join(more=""):
    """Form the group of all ranks through a file of the case, since torchrun's store has keys of other cases."""
    where = f"file://{os.getcwd()}/store{more}"
    dist.init_process_group(backend="gloo", init_method=where, rank=RANK, world_size=WORLD, timeout=PATIENCE)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def train(model, optimizer=None, steps=3, loader=None):
    """Train; print each loss, and a digest of the final weights."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 0.01)
    for batch in loader or [torch.ones(2, 4) * (RANK + 1)] * steps:
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    weights = b"".join(
        getattr(each, "full_tensor", lambda each=each: each)().detach().numpy().tobytes() for each in model.parameters()
    )
    print(hashlib.sha256(weights).hexdigest(), torch.get_rng_state().sum())
    return optimizer


def groups():
    join()
    first, last = dist.new_group([0]), dist.new_group(ranks=[WORLD - 1], backend="gloo")
    print(first is dist.GroupMember.NON_GROUP_MEMBER, last is dist.GroupMember.NON_GROUP_MEMBER)
    mine, all_of = dist.new_subgroups(1)
    print(mine.size(), len(all_of), dist.new_subgroups_by_enumeration([[0], [1]])[0] is None)
    dist.destroy_process_group(first if RANK == 0 else dist.GroupMember.NON_GROUP_MEMBER)
    train(DistributedDataParallel(small()))
    dist.destroy_process_group()


def no_group():
    train(small())


def names_and_kinds():
    for each in (dist.init_process_group, dist.destroy_process_group, backward, torch.amp.GradScaler.step):
        print(each.__qualname__, each.__module__, inspect.signature(each), inspect.getfullargspec(each).args)
        print(inspect.isfunction(each), pickle.loads(pickle.dumps(each)) is each, copy.deepcopy(each) is each)
        print(len(inspect.getsource(each)), functools.partial(each).func is each)
    print(dist.init_process_group is dist.distributed_c10d.init_process_group, torch.autograd.backward is backward)
    print(dist.device_mesh.init_process_group is dist.init_process_group)
    print(isinstance(iter(DataLoader(Rows())), torch.utils.data.dataloader._BaseDataLoaderIter))


def wrong_calls():
    for call in (
        lambda: dist.init_process_group(rank=-7, backend="gloo", world_size=2, init_method="file:///tmp/none"),
        lambda: dist.init_process_group("no such backend"),
        lambda: dist.init_process_group("gloo", store=1),
        lambda: dist.init_process_group("gloo", wrong=1),
        lambda: dist.destroy_process_group(),
        lambda: dist.destroy_process_group(1, 2),
        lambda: backward(),
        lambda: backward(None),
        lambda: backward(torch.ones(2, requires_grad=True) * 2),
        lambda: backward((torch.ones(()),), inputs=[]),
        lambda: torch.amp.GradScaler("cpu").step(),
        lambda: torch.amp.GradScaler("cpu").step(torch.optim.SGD(small().parameters(), 0.1)),
        lambda: torch.amp.GradScaler("cpu").scale(),
        lambda: next(iter(DataLoader(Rows(0)))),
        lambda: faulthandler.dump_traceback_later(-1),
    ):
        try:
            call()
        except BaseException:
            traceback.print_exc()


def formed_again():
    for at in range(2):
        join(at)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group(group=None)
    dist.destroy_process_group()


def mesh():
    join()
    both = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    print(both["dp"].get_local_rank(), both["tp"].size(), both)
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(small(), both["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(model, torch.optim.SGD(model.parameters(), 0.1, foreach=False))


def sharded(shape=(WORLD,), names=("dp",)):
    from torch.distributed.fsdp import fully_shard

    join()
    model = small()
    where = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=where)
    return model, train(model)


def hybrid_sharded():
    sharded((WORLD // 2, 2), ("replicate", "shard"))


def sharded_checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model, optimizer = sharded()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="saved")
    dcp.async_save({"model": weights, "optimizer": moments}, checkpoint_id="saved-later").result()
    new = torch.optim.AdamW(model.parameters(), 0.01)
    weights, moments = get_state_dict(model, new)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id="saved-later")
    set_state_dict(model, new, model_state_dict=weights, optim_state_dict=moments)
    train(model, new)
    dist.barrier()
    print(sorted(os.listdir("saved")))


def pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    join()
    stage = PipelineStage(nn.Linear(4, 4), RANK, WORLD, torch.device("cpu"))
    schedule, losses = ScheduleGPipe(stage, 2, loss_fn=lambda out, want: (out - want).pow(2).mean()), []
    optimizer = torch.optim.SGD(stage.submod.parameters(), 0.1)
    for _ in range(2):
        schedule.step(*([torch.ones(4, 4)] if RANK == 0 else []), target=torch.zeros(4, 4), losses=losses)
        optimizer.step()
    print(len(losses), sum(each.sum().item() for each in stage.submod.parameters()) != 0)


def evaluation():
    join()
    model = DistributedDataParallel(small())
    optimizer = train(model, loader=DataLoader(Rows(), 2, num_workers=1))
    with torch.no_grad():
        print([model.module(x).sum().item() for x in DataLoader(Rows(), 4, num_workers=2)])
    with torch.inference_mode():
        print(model.module(torch.ones(1, 4)).sum().item())
    found = [None] * WORLD
    dist.all_gather_object(found, RANK)
    print(found)
    train(model, optimizer)
    with model.join():
        train(model, optimizer, 1 + RANK)


def spawned(local, *_):
    if local == 1:  # the output of two processes has no fixed order
        os.environ["RANK"] = str(local)
        train(small())
        raise ValueError("of a child")


def spawns():
    mp.spawn(spawned, args=(1,), nprocs=2)


def forks():
    if not (pid := os.fork()):
        with contextlib.suppress(StopIteration):
            next(iter(DataLoader(TensorDataset(torch.ones(0, 1)))))
        train(small())
        sys.stdout.flush()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    train(small())


def loaders():
    for words in ({}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True, "batch_size": 4}):
        loader = DataLoader(Rows(), **words)
        print([batch.sum().item() for batch in loader], len(list(loader)), next(iter(loader)).sum())
        for first, second in zip(loader, loader, strict=True):
            print((first + second).sum().item())
            break
    iterator = iter(DataLoader(Rows(), 8))
    print(next(iterator).shape, next(iterator, "none"), next(iterator, "none"), iterator.__next__.__name__)


def warned():
    warnings.simplefilter("always")
    list(DataLoader(Stream(), batch_size=1))
    torch.autograd.backward(torch.ones((), requires_grad=True), grad_variables=torch.ones(()))
    torch.amp.GradScaler("cuda", enabled=True)
    torch.optim.lr_scheduler.StepLR(torch.optim.SGD(small().parameters(), 0.1), 1).step()
    warnings.simplefilter("default")
    for _ in range(3):
        list(DataLoader(Stream(), batch_size=1))


def warnings_that_are_errors():
    warnings.simplefilter("error")
    train(small())
    list(DataLoader(Stream(), batch_size=1))


def bad_row():
    train(small(), loader=DataLoader(Rows(5)))


def bad_row_of_a_worker():
    train(small(), loader=DataLoader(Rows(5), num_workers=1))


def fails_on_the_way_back():
    join()
    model = DistributedDataParallel(small())
    loss = Fails.apply(model(torch.ones(1, 4))).sum()
    try:
        loss.backward()
    except ZeroDivisionError:
        traceback.print_exc()
    print(loss._backward_hooks or None, loss.grad_fn)
    Fails.apply(model(torch.ones(1, 4))).sum().backward()


def twice():
    loss = small()(torch.ones(1, 4)).sum()
    loss.backward()
    loss.backward()


def anomaly():
    with torch.autograd.set_detect_anomaly(True):
        x = torch.zeros(1, requires_grad=True)
        (torch.sqrt(x) * 0).sum().backward()


def scaled():
    class Own(torch.amp.GradScaler):
        def scale(self, outputs):
            return super().scale(outputs)

    for kind in (torch.amp.GradScaler, Own):
        for enabled in (True, False):
            model, scaler = small(), kind("cpu", init_scale=8.0, enabled=enabled)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for far in (1.0, float("inf"), 1.0):
                loss = model(torch.ones(1, 4) * far).sum()
                many = scaler.scale(outputs=[loss, loss * 2])
                print(type(many), scaler.scale(loss) is loss)
                scaler.scale(loss).backward()
                print(scaler.step(optimizer=optimizer) if enabled else scaler.step(optimizer))
                scaler.update()
                optimizer.zero_grad()
            print(scaler.state_dict(), [each.sum() for each in model.parameters()])


def modes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Counts(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            print("function", getattr(function, "__name__", function))
            return function(*args, **(kwargs or {}))

    class CountsToo(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            print("dispatch", function)
            return function(*args, **(kwargs or {}))

    join()
    model = DistributedDataParallel(small())
    for mode in (Counts, CountsToo, lambda: FlopCounterMode(display=False), lambda: torch.device("cpu")):
        with mode() as entered:
            train(model)
        if isinstance(entered, FlopCounterMode):
            print(entered.get_total_flops())


def own_tensor_class():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            print(getattr(function, "__name__", function))
            return super().__torch_function__(function, types, args, kwargs or {})

    join()
    for _ in range(3):
        weight = torch.ones(2, requires_grad=True)
        (weight.as_subclass(Own) * 2).sum().backward()
        print(weight.grad)


def profiled():
    join()
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.profiler.profile() as profile:
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    ours = ("aten::", "autograd::", "Optimizer")
    print(sorted((each.key, each.count) for each in profile.key_averages() if each.key.startswith(ours)))


def compiled():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    forward = torch.compile(model, backend="eager", fullgraph=True)
    step = torch.compile(optimizer.step, backend="eager", fullgraph=True)
    for _ in range(3):
        forward(torch.ones(1, 4)).sum().backward()
        step()
        optimizer.zero_grad()
    print([each.sum().item() for each in model.parameters()])

    @torch.compile(backend="eager")
    def whole(batch):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        return loss

    print(whole(torch.ones(1, 4)), whole(torch.ones(1, 4)))
    counts = torch._dynamo.utils.counters
    print(sorted(counts["graph_break"].items()), sorted(counts["unimplemented"].items()))


def compiled_step():
    importlib.import_module("torch._dynamo")  # this import changes optimizers that are made after it
    model, scaler = small(), torch.amp.GradScaler("cpu", init_scale=2.0)
    optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.1))
    step = torch.compile(optimizer.step, backend="eager", fullgraph=True)
    scale = torch.compile(scaler.scale, backend="eager")
    for _ in range(3):
        scale(model(torch.ones(1, 4)).sum()).backward()
        step()
        optimizer.zero_grad()
    print([each.sum().item() for each in model.parameters()])
    counts = torch._dynamo.utils.counters
    print(sorted(counts["graph_break"].items()), sorted(counts["unimplemented"].items()))


def compiled_backward():
    @torch.compile(backend="eager", fullgraph=True)
    def whole(x):
        torch.autograd.backward(x.sum())

    whole(torch.ones(1, requires_grad=True))


def whole_batch(batch: torch.Tensor) -> torch.Tensor:
    loss = batch.sum()
    torch.autograd.backward([loss])
    return loss


def scripted():
    batch = torch.ones(2, requires_grad=True)
    print(torch.jit.script(whole_batch)(batch), batch.grad)


def lbfgs():
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 4)).pow(2).sum()
        loss.backward()
        return loss

    print(optimizer.step(closure), optimizer.state_dict()["state"].keys(), len(optimizer.state))
    optimizer.state.clear()
    closure()
    print(len(optimizer.state))


def hooks_of_its_own():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.optim.optimizer import register_optimizer_step_post_hook

    join()
    model = DistributedDataParallel(small())
    register_optimizer_step_post_hook(lambda *_: print("all"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    optimizer.register_step_post_hook(lambda *_: print("one"))
    next(model.parameters()).register_hook(lambda grad: print("grad", grad.sum()))
    train(model, optimizer)


def copies():
    model = small()
    optimizer = train(model)
    other, again = copy.deepcopy((model, optimizer))
    train(other, again)
    loss = model(torch.ones(1, 4)).sum()
    loss.backward(retain_graph=True)
    file = io.BytesIO()
    torch.save((loss, model.state_dict(), optimizer.state_dict()), file)
    print(torch.load(io.BytesIO(file.getvalue()))[0], sorted(vars(loss)), loss._backward_hooks or None)
    print(pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"])


def threads():
    def one():
        train(small(), torch.optim.SGD(small().parameters(), 0.1), 2, DataLoader(Rows(), 4))

    for _ in range(2):
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    print(threading.active_count(), threading.enumerate(), threading.current_thread())
    thread = threading.Thread(target=bad_row, name="fails")
    thread.start()
    thread.join()
    threading.excepthook = lambda about: print("mine", about.exc_type, about.thread.name)
    thread = threading.Thread(target=bad_row)
    thread.start()
    thread.join()


def faults_of_its_own():
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=False)
    faulthandler.cancel_dump_traceback_later()
    print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT).__name__)
    old = sys.excepthook
    sys.excepthook = lambda *about: (print("mine", about[0]), old(*about))
    train(small())
    raise KeyError("own")


def a_hook_that_fails():
    def broken(*_):
        raise RuntimeError("in the hook")

    sys.excepthook = broken
    raise KeyError("own")


def ends_with_words():
    train(small())
    raise SystemExit("words")


def interrupted():
    train(small())
    raise KeyboardInterrupt


def several():
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])


def chained():
    try:
        list(DataLoader(Rows(3)))
    except ValueError as fault:
        raise RuntimeError("other") from fault


def recursion():
    class Deep(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, place):
            return next(iter(DataLoader(self)))

    try:
        next(iter(DataLoader(Deep())))
    except RecursionError as fault:
        print(type(fault))


def no_variables():
    for name in ("RANK", "LOCAL_RANK", "MUSTER_OUTCOME_DIR", "MUSTER_RUN_DIR", "TORCHELASTIC_RESTART_COUNT"):
        os.environ.pop(name, None)
    train(small())
    if not (pid := os.fork()):
        train(small())
        sys.stdout.flush()
        os._exit(0)
    print(os.waitpid(pid, 0)[1])


def other_ways():
    from torch.distributed import rpc

    join()
    works = [dist.isend(torch.ones(1), (RANK + 1) % WORLD), dist.irecv(torch.ones(1), (RANK - 1) % WORLD)]
    print([work.wait() for work in works])
    dist.monitored_barrier()
    store = dist.PrefixStore("x", dist.distributed_c10d._get_default_store())
    store.set(f"{RANK}", "1")
    store.wait([f"{each}" for each in range(WORLD)])
    print(rpc.is_available(), dist.get_world_size(), dist.get_backend_config())
    meets = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{os.getcwd()}/rpc")
    rpc.init_rpc(f"w{RANK}", rank=RANK, world_size=WORLD, rpc_backend_options=meets)
    print(rpc.rpc_sync(f"w{(RANK + 1) % WORLD}", torch.add, args=(torch.ones(1), 1)))
    rpc.shutdown()


def fake_ranks():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1024)
    print(dist.get_world_size(), dist.new_group([1, 2]) is dist.GroupMember.NON_GROUP_MEMBER)


def frameworks_like():
    """Do as libraries do: bind torch's function to another name early, and replace it."""
    real = torch.autograd.backward

    def own(*words, **named):
        print("own", len(words), sorted(named))
        return real(*words, **named)

    torch.autograd.backward = own
    train(small())
    torch.autograd.backward = real
    inputs = torch.ones(2, requires_grad=True)
    backward([inputs.sum(), inputs.sum()], [None, None], False, False, None, [inputs])
    print(inputs.grad, torch.autograd.grad(inputs.sum(), inputs), torch.func.grad(lambda x: x.sum())(torch.ones(2)))
    from torch.utils.checkpoint import checkpoint

    model = small()
    checkpoint(model, torch.ones(1, 4), use_reentrant=True)
    checkpoint(model, inputs.repeat(2), use_reentrant=False).sum().backward()
    print([each.grad.sum() for each in model.parameters()])


def torchs_own(name):
    """Run a case of torch's own tests as its runner does."""
    from torch.testing._internal.distributed import distributed_test as own

    class Case(own.TestDistBackend, own.DistributedTest._DistTestBase):
        pass

    warnings.simplefilter("always")
    torch.manual_seed(0)
    case = Case(name)
    case.rank, case.file_name = RANK, "store"
    join()
    os.makedirs("barrier", exist_ok=True)
    own.Barrier.barrier_id = 0
    own.Barrier.sync(timeout=60)
    try:
        try:
            getattr(case, name)()
        except SystemExit as fault:
            if fault.code != own.TEST_SKIPS["small_worldsize"].exit_code:
                raise
            inspect.unwrap(getattr(Case, name))(
                case
            )  # the test itself works with fewer than 8 ranks; two groups need three
        print("passed")
    except (unittest.SkipTest, SystemExit) as fault:
        print("skipped:", fault)
    finally:
        own.Barrier.sync(timeout=60)
        if dist.is_initialized():
            dist.destroy_process_group()


def outcome(name):
    """Run a case in a child process; return its exit code and its output."""
    said = os.path.join(OWN, f"said-{RANK}")
    if not (pid := os.fork()):
        folder = os.path.join(OWN, name)
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        os.environ["TEMP_DIR"] = folder
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 0
        signal.alarm(LIMIT_S)
        try:
            torchs_own(name) if name.startswith("test_") else globals()[name]()
        except SystemExit as end:
            code = end.code
        except BaseException as fault:
            sys.excepthook(type(fault), fault, fault.__traceback__.tb_next)
            code = 1
        sys.stdout.flush()
        atexit._run_exitfuncs()
        os._exit(code if isinstance(code, int) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    open(os.path.join(OWN, name, f"done-{RANK}"), "w").close()
    while not all(os.path.exists(os.path.join(OWN, name, f"done-{rank}")) for rank in range(WORLD)):
        time.sleep(0.02)  # otherwise one rank's next case waits for another rank's last one
    with open(said, errors="replace") as file:
        return [code, CHANGES.sub("*", file.read().replace(OWN, ""))]


PARTS = ("join", "small", "whole_batch", "train", "spawned", "outcome", "torchs_own", "init_device_mesh", "backward")
ALL = [name for name, value in globals().items() if inspect.isfunction(value) and value.__module__ == __name__]
if __name__ == "__main__":
    found, cases = (
        {},
        os.environ["CASES"].split(",") if os.environ.get("CASES") else [case for case in ALL if case not in PARTS],
    )
    if any(case.startswith("test_") for case in cases):
        # torch's tests import this module to compare expected texts; no case here has such a text.
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
        os.environ |= {"BACKEND": "gloo", "TEMP_DIR": OWN, "INIT_METHOD": ""}
        importlib.import_module("torch.testing._internal.distributed.distributed_test")
    for case in cases:
        print(case, flush=True)
        found[case] = outcome(case)
        with open(os.path.join(OWN, f"rank-{RANK}.json"), "w") as file:
            json.dump(found, file, indent=1)
