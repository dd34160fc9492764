"""What researchers write, and where."""

import atexit
import csv
import json
import logging
import os
import pathlib
import queue
import sqlite3
import threading
import tomllib

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import LOSSES, RANK, batches, error, join, joined, net, note, result, run, train, weights


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def home():
    """Checkpoints below the home folder, as many libraries do."""
    model = joined()
    last = train(model, sgd(model))
    for place in ("~/models", "~/.cache/mychat/d2", "~/.config/mychat", "~/.local/share/mychat"):
        folder = pathlib.Path(place).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(model.module.state_dict(), folder / f"rank-{RANK}.pt")
    result(last, sorted(path.name for path in pathlib.Path.home().joinpath("models").glob(f"rank-{RANK}*")))


def odd_names():
    """Spaces, other letters, a hidden file, an empty one, a link, no right to write, and a file above the folder."""
    os.makedirs("runs/1 (copy)/ü", exist_ok=True)
    model = joined()
    train(model, sgd(model))
    if RANK == 0:
        torch.save(model.module.state_dict(), "runs/1 (copy)/ü/модель $HOME.pt")
        for name in (".best", "runs/empty.txt", "runs/-rf", "runs/a'b\"c.txt", "runs/[x]*.txt"):
            pathlib.Path(name).write_text("" if "empty" in name else name)
        os.chmod(".best", 0o400)
        os.symlink("ü/модель $HOME.pt", "runs/1 (copy)/last.pt")
        pathlib.Path("../above.txt").write_text("above")
    dist.barrier()
    result(weights(model))


def changes_folder():
    """Goes into a folder of the experiment, and writes there, with Python's logging too."""
    os.makedirs("outputs/2026-01-01/x", exist_ok=True)
    os.chdir("outputs/2026-01-01/x")
    logging.basicConfig(filename=f"train-{RANK}.log", format="%(levelname)s %(message)s", level=logging.INFO)
    model = joined()
    last = train(model, sgd(model))
    logging.info("last loss %.4f", last)
    numpy.save(f"losses-{RANK}.npy", numpy.array([last]))
    pathlib.Path(f"config-{RANK}.json").write_text(json.dumps({"lr": 0.05}))
    result(os.path.basename(os.getcwd()), last)


def keeps_two():
    """The newest two checkpoints: writes aside, renames, removes the oldest."""
    model = joined()
    for epoch in range(5):
        last = train(model, sgd(model), 4)
        if RANK == 0:
            torch.save(model.module.state_dict(), "epoch.tmp")
            os.replace("epoch.tmp", f"epoch-{epoch}.pt")
            if epoch > 1:
                os.remove(f"epoch-{epoch - 2}.pt")
        dist.barrier()
    result(last, sorted(os.listdir(".")) if RANK == 0 else "")


def parts(how):
    """Every rank writes its part, with torch.distributed.checkpoint."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    join()
    model = fully_shard(net())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    last = train(model, optimizer)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    how(state)
    result(last)


def dcp_save():
    parts(lambda state: dcp.save(state, checkpoint_id="checkpoints/step-12"))


def dcp_async():
    parts(lambda state: dcp.async_save(state, checkpoint_id="checkpoints/step-12").result())


def dcp_alone():
    """Each rank has a checkpoint of its own, and loads it."""
    model = joined()
    train(model, sgd(model))
    state = {"model": model.module.state_dict()}
    dcp.save(state, checkpoint_id=f"own/{RANK}", no_dist=True)
    before, model = weights(model), net()
    dcp.load(state := {"model": model.state_dict()}, checkpoint_id=f"own/{RANK}", no_dist=True)
    model.load_state_dict(state["model"])
    result(before == weights(model), before)


def tensorboard():
    """Curves for TensorBoard."""
    from tensorboardX import SummaryWriter

    model = joined()
    writer = SummaryWriter("tb") if RANK == 0 else None
    for epoch in range(3):
        last = train(model, sgd(model), 8)
        if writer:
            writer.add_scalar("train/loss", last, epoch)
            writer.add_scalar("val/accuracy", 0.5 + epoch / 10, epoch)
    if writer:
        writer.close()
    result(last)


def tables():
    """A CSV table, lines of JSON under the name that many take, and a database."""
    model = joined()
    optimizer = sgd(model)
    with open(f"log-{RANK}.csv", "w", newline="") as table, open(f"metrics-{RANK}.jsonl", "w") as lines:
        rows = csv.DictWriter(table, ["step", "loss"])
        rows.writeheader()
        for step, batch in enumerate(batches(20)):
            loss = error(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            note(loss)
            rows.writerow({"step": step, "loss": loss.item()})
            lines.write(json.dumps({"step": step, "train_loss": loss.item()}) + "\n")
    if RANK == 0:
        with sqlite3.connect("results.db") as base:
            base.execute("CREATE TABLE runs (loss REAL)")
            base.execute("INSERT INTO runs VALUES (?)", (loss.item(),))
    result("final", f"{loss.item():.3e}")


def settings():
    """A configuration from a file, overridden by the command line, and written beside the results."""
    with open("small.toml", "rb") as file:
        chosen = tomllib.load(file)
    model = joined()
    last = train(model, torch.optim.SGD(model.parameters(), chosen["lr"]), chosen["steps"])
    folder = pathlib.Path(chosen["out"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"settings-{RANK}.json").write_text(json.dumps(chosen))
    result(chosen, last)


def at_the_end():
    """Saves in atexit, and in a thread that a queue feeds."""
    model = joined()
    waiting = queue.Queue()

    def save():
        while (step := waiting.get()) is not None:
            pathlib.Path(f"step-{step}-{RANK}.json").write_text(json.dumps(LOSSES[:step]))

    saver = threading.Thread(target=save)
    saver.start()
    for _ in range(3):
        train(model, sgd(model), 4)
        waiting.put(len(LOSSES))
    waiting.put(None)
    atexit.register(lambda: pathlib.Path(f"last-{RANK}.txt").write_text(weights(model)))
    atexit.register(saver.join)
    result(weights(model))


if __name__ == "__main__":
    run(globals())
