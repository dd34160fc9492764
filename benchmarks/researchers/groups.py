"""Groups, meshes, stores and other ways of ranks to talk."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from common import MORE, RANK, WORLD, batches, error, join, joined, net, note, result, run, train, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def some_ranks():
    """A group of rank 0 alone, groups of two, and objects of all."""
    model = joined()
    seen, mine = [None] * WORLD, [None]
    dist.all_gather_object(seen, {"rank": RANK})
    dist.scatter_object_list(mine, [f"part {rank}" for rank in range(WORLD)], 0)
    dist.monitored_barrier()
    alone, (pair, _) = dist.new_group([0]), dist.new_subgroups(2)
    train(model, torch.optim.SGD(model.parameters(), 0.05))
    score = torch.tensor([float(RANK)])
    dist.all_reduce(score, group=pair)
    if RANK == 0:
        dist.barrier(alone)
    result(seen, mine, "pair", score.item(), "weights", weights(model))


def hsdp():
    """Sharded on each host, and replicated over them."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))
    model = net()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    last = train(model, torch.optim.AdamW(model.parameters(), 0.01))
    result("loss", last, "norm", [each.full_tensor().norm().item() for each in model.parameters()])


def tensor_parallel():
    """Two axes: a layer is cut over tp, the data over dp."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(net(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for x, _ in batches():
        dist.broadcast(x, RANK - RANK % 2, mesh["tp"].get_group())
        loss = error(model, (x, x.sum(1, keepdim=True)))
        optimizer.zero_grad()
        loss.backward()
        for each in model.parameters():
            part = each.grad.to_local() if hasattr(each.grad, "to_local") else each.grad
            dist.all_reduce(part, op=dist.ReduceOp.SUM, group=mesh["dp"].get_group())
        optimizer.step()
        note(loss)
    result("loss", loss.item())


def pipeline():
    """Rank 0 has the first layer, the last rank the loss."""
    join()
    torch.manual_seed(RANK)
    part = nn.Linear(8, 8) if RANK == 0 else nn.Linear(8, 1)
    optimizer = torch.optim.SGD(part.parameters(), 0.05)
    for x, _ in batches():
        optimizer.zero_grad()
        if RANK == 0:
            out = part(x)
            dist.send(out.detach(), 1)
            grad = torch.empty_like(out)
            dist.recv(grad, 1)
            out.backward(grad)
        else:
            had = torch.empty(8, 8)
            dist.recv(had, 0)
            loss = part(had.requires_grad_()).square().mean()
            loss.backward()
            dist.send(had.grad, 0)
        optimizer.step()
    result("weights", weights(part), loss.item() if RANK else "")


def uneven():
    """Ranks have different numbers of batches: Join."""
    from torch.distributed.algorithms.join import Join

    model = joined()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with Join([model]):
        train(model, optimizer, 12 - 4 * RANK)
    MORE["slowest"] = 8
    result("weights", weights(model))


def averaging():
    """Ranks train alone, and average their models every four steps."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    join()
    model = net()
    optimizer, averager = torch.optim.SGD(model.parameters(), 0.05), PeriodicModelAverager(period=4)
    for batch in batches():
        loss = error(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        note(loss)
    result("loss", loss.item(), "weights", weights(model))


def zero():
    """Each rank has a part of the optimizer's state; rank 0 collects it."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = joined()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    last = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    if RANK == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "zero.pt")
    result("loss", last)


def served():
    """A parameter server: RPC, without a process group."""
    from torch.distributed import rpc

    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=WORLD)
    if RANK == 0:
        model = net()
        remote = rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
        last = train(model, torch.optim.SGD(model.parameters(), 0.05))
        result("remote", remote.tolist(), "loss", last)
    rpc.shutdown()


def own_store():
    """A store of its own beside the group's, to give out work."""
    model = joined()
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 7
    store = dist.TCPStore(address, port, WORLD, RANK == 0, timedelta(seconds=60))
    store.add("shards", 1)
    train(model, torch.optim.SGD(model.parameters(), 0.05))
    dist.barrier()
    result("shards", store.add("shards", 0), weights(model))
    dist.barrier()


def tries_again():
    """A batch fails on all ranks; the script leaves its group, makes another, and goes on from its last weights.

    A second group with the first one's keys in torchrun's store hangs, by hand in 3 of 6 starts.
    """
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for attempt in range(2):
        dist.init_process_group("gloo", store=dist.PrefixStore(str(attempt), store), rank=RANK, world_size=WORLD)
        model = joined()
        if attempt:
            model.module.load_state_dict(torch.load(f"try-{RANK}.pt"))
        try:
            train(model, torch.optim.SGD(model.parameters(), 0.05), 6)
            torch.save(model.module.state_dict(), f"try-{RANK}.pt")
            if not attempt:
                raise RuntimeError("bad batch")
        except RuntimeError as fault:
            result("caught", fault)
            dist.destroy_process_group()
    result("weights", weights(model))


if __name__ == "__main__":
    run(globals())
