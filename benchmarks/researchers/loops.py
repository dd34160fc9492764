"""Ways to write a training loop, to print, to evaluate and to end."""

import json
import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import LOSSES, RANK, batches, begins, error, join, joined, line, net, note, result, run, train, weights
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset


def sgd(model, rate=0.05):
    return torch.optim.SGD(model.parameters(), rate)


def evaluates_on_rank_0():
    """The others wait at a barrier."""
    model = joined()
    optimizer = sgd(model)
    for epoch in range(3):
        last = train(model, optimizer, 8)
        dist.barrier()
        if RANK == 0:
            with torch.no_grad():
                score = sum(error(model.module, batch).item() for batch in batches(40)) / 40
            print(f"Epoch {epoch}: train loss {last:.4f}, val loss: {score:.4f}", flush=True)
        dist.barrier()
    result(last, score if RANK == 0 else "")


def evaluates_elsewhere():
    """A program of its own reads the checkpoint, and prints."""
    model = joined()
    train(model, sgd(model))
    if RANK == 0:
        torch.save(model.module.state_dict(), "m.pt")
        text = "import torch; print('loaded', len(torch.load('m.pt')))"
        alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        result(subprocess.run([sys.executable, "-c", text], env=alone, capture_output=True, text=True).stdout.strip())
    dist.barrier()
    result(weights(model))


def formats():
    """The loss in five ways of writing."""
    model = joined()
    optimizer = sgd(model)
    for step in range(30):
        loss = train(model, optimizer, 1, 0.05)
        if RANK == 0:
            print(f"loss: {loss:.1e}", f"train_loss={loss:.6f}", json.dumps({"it": step, "loss": loss}), sep="\n")
            print(f"| {step:4d} | {loss:10.5f} |\n[{step}/30] Loss {loss:.3f} ({loss:.3f})", flush=True)
    result(loss)


def bar():
    """A progress bar that goes back to the beginning of its line."""
    model = joined()
    optimizer = sgd(model)
    for step in range(40):
        loss = train(model, optimizer, 1, 0.05)
        sys.stderr.write(f"\r{step + 1:3d}/40 |{'#' * (step // 4):10s}| loss={loss:.4f}")
        sys.stderr.flush()
    sys.stderr.write("\n")
    result(loss)


def stops_early():
    """All ranks stop when rank 0 says so."""
    model = joined()
    optimizer = sgd(model)
    for epoch in range(20):
        last = train(model, optimizer, 4)
        stop = torch.tensor(int(epoch == 3))
        dist.broadcast(stop, 0)
        if stop:
            break
    result(epoch, last)


def accumulates():
    """Four batches a step, without sums between."""
    model = joined()
    optimizer = sgd(model)
    for _ in range(10):
        whole = 0.0
        optimizer.zero_grad()
        for at, batch in enumerate(batches(4)):
            model.require_backward_grad_sync = at == 3
            loss = error(model, batch) / 4
            loss.backward()
            whole += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        note(whole)
    result(whole, weights(model))


def ema():
    """An average of the weights, and a schedule."""
    model = joined()
    average = torch.optim.swa_utils.AveragedModel(
        model.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn()
    )
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)
    for _ in range(20):
        last = train(model, optimizer, 1)
        average.update_parameters(model.module)
        schedule.step()
    if RANK == 0:
        torch.save(average.module.state_dict(), "ema.pt")
    result(last, weights(average.module))


def two_optimizers():
    """One for each layer."""
    model = joined()
    one, other = sgd(model.module[0]), torch.optim.Adam(model.module[2].parameters(), 0.01)
    for batch in batches(20):
        loss = error(model, batch)
        model.zero_grad()
        loss.backward()
        one.step()
        other.step()
        note(loss)
    result(loss.item())


def closures():
    """LBFGS asks for the loss as often as it likes; its step returns the first."""
    model = joined()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    for batch in batches(6):

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = error(model, batch)
            loss.backward()
            return loss

        note(optimizer.step(closure))
    result(LOSSES[-1])


def nan():
    """The loss is no number from the tenth step on, and nobody looks."""
    model = joined()
    optimizer = sgd(model)
    train(model, optimizer, 9, 0.1)
    for _, batch in zip(range(20), batches(20), strict=True):
        loss = error(model, batch) * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(loss)
        time.sleep(0.05)
    result(loss.item())


def rises():
    """A rate that is too large: the loss grows."""
    model = joined()
    result(f"{train(model, sgd(model, 1.5), 30):.3e}")


def no_loss():
    """Inference of all ranks."""
    join()
    with torch.no_grad():
        total = sum(net()(x).sum() for x, _ in batches(50))
    dist.all_reduce(total)
    result(total.item())


class Sign(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(context, x):
        return x.sign()

    @staticmethod
    def backward(context, grad):
        return grad


def hooks():
    """Hooks of all kinds, a function with its own gradient, a model that is not compiled, and mixed precision."""
    model, seen = joined(), []
    model.module[0].register_full_backward_hook(lambda *_: seen.append("backward"))
    next(model.parameters()).register_hook(lambda grad: grad.clamp(-1, 1))
    whole = torch.compile(lambda x: Sign.apply(model(x)), disable=True)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=8.0)
    for x, y in batches(20):
        with torch.autocast("cpu", torch.bfloat16):
            loss = (whole(x) - y).square().mean()
        begins()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        note(loss)
    result(len(seen), loss.item())


class Rows(Dataset):
    """Samples that a worker has to read."""

    def __len__(self):
        return 48

    def __getitem__(self, at):
        draw = torch.Generator().manual_seed(at)
        x = torch.randn(8, generator=draw)
        return x, x.sum(0, keepdim=True)


class Stream(IterableDataset):
    """The same, without an end that is known."""

    def __iter__(self):
        return iter([Rows()[at] for at in range(20)])


def workers():
    """Loaders with processes of their own, forked and spawned."""
    model = joined()
    optimizer = sgd(model)
    sampler = torch.utils.data.DistributedSampler(Rows())
    loaders = (
        DataLoader(Rows(), 4, sampler=sampler, num_workers=2, persistent_workers=True),
        DataLoader(Stream(), 4, num_workers=1, multiprocessing_context="spawn"),
    )
    for loader in loaders:
        for batch in loader:
            loss = error(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            note(loss)
    result(loss.item(), len(LOSSES))


def prepares(at, rank):
    """What a child of the rank does."""
    torch.save(torch.full((2,), at), f"shard-{rank}-{at}.pt")


def spawns():
    """mp.spawn and a pool prepare the data; then the ranks train."""
    mp.spawn(prepares, (RANK,), nprocs=2)
    with mp.get_context("fork").Pool(2) as pool:
        squares = pool.map(abs, [-1, -2])
    model = joined()
    train(model, sgd(model))
    result(squares, sum(torch.load(f"shard-{RANK}-{at}.pt").sum().item() for at in range(2)), weights(model))


def signals():
    """Handlers of its own: a timer, and a signal to itself."""
    caught = []
    for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, lambda number, _: caught.append(signal.Signals(number).name))
    model = joined()
    optimizer = sgd(model)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    train(model, optimizer, 20, 0.01)
    os.kill(os.getpid(), signal.SIGUSR1)
    result(caught, weights(model))


def fails():
    """One rank raises; the others wait for it."""
    model = joined()
    train(model, sgd(model), 5)
    if RANK == 1:
        raise ValueError("no such sample")
    train(model, sgd(model), 5)


def leaves():
    """sys.exit(0) in the middle, on all ranks."""
    model = joined()
    train(model, sgd(model), 5)
    result(weights(model))
    sys.exit(0)


def three_steps():
    model = joined()
    result(train(model, sgd(model), 3))


def fast():
    """A thousand steps a second."""
    model = net()
    result(train(model, sgd(model, 0.001), 1000))


def steady():
    """Steps of a quarter of a second, long enough to look at."""
    model = joined()
    optimizer = sgd(model)
    for step in range(60):
        loss = train(model, optimizer, 1, 0.25)
        if RANK == 0:
            line(f"step {step + 1} loss {loss:.6f}")
    result(loss)


if __name__ == "__main__":
    run(globals())
