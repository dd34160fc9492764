"""What a rank of a rehearsal tries, step by step. Python 3.8 can read this file, which is sent to hosts as text."""

import datetime
import errno
import os
import re
import socket
import threading
import time

# A rank's threads: torch's two pools with a thread for each processor, and those of other libraries.
THREADS = min(64, 2 * len(os.sched_getaffinity(0)) + 16)
WORKERS, FILE_SIZE = 2, 1 << 20
# An IP literal: host names contain no colon, and do not consist of digits and dots only.
ADDRESS = re.compile(r"[0-9.]+|.*:.*")


class RehearsalError(RuntimeError):
    """A step failed. `seen`: keys of facts, as of `looked_at`; `missed`: the node that did not come."""

    def __init__(self, words, *seen, missed=None):
        super().__init__(words)
        self.facts = {"seen": seen} if missed is None else {"seen": seen, "missed": missed}


class Batches:
    """A data set with batches of 4 MB: they go through shared memory, as a real loader's batches do."""

    def __len__(self):
        return 4 * WORKERS

    def __getitem__(self, index):
        import torch

        return torch.full((1 << 20,), float(index))


def try_threads():
    """Start as many threads as a rank with its libraries has."""
    go, started = threading.Event(), []
    try:
        for _ in range(THREADS):
            started.append(threading.Thread(target=go.wait, daemon=True))
            started[-1].start()
    finally:
        go.set()
    for thread in started:
        thread.join()


def try_view(path):
    """Check that the host's marker file is in the run's folder.

    The engine may see other folders under the same names.
    """
    try:
        os.stat(path)
    except FileNotFoundError as fault:
        raise RehearsalError("the engine does not see the host's folder: %s is not there" % path, "unseen") from fault


def try_folder(folder):
    """Write a file as a checkpoint is written: under another name, synced, renamed; then remove it."""
    part = os.path.join(folder, ".muster-rehearsal-%s" % os.urandom(6).hex())
    whole = part + ".whole"
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            data = memoryview(bytes(FILE_SIZE))
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(part, whole)
    finally:
        for path in (part, whole):
            if os.path.lexists(path):
                os.unlink(path)


def try_script(folder):
    """Write a Python file and read it back, in the same way as a script that was sent there."""
    path, text = os.path.join(folder, ".muster-rehearsal-%s.py" % os.urandom(6).hex()), "answer = 42"
    try:
        with open(path, "w") as file:
            file.write(text)
        with open(path) as file:
            if file.read() != text:
                raise RuntimeError("a Python file there has different text from what was written to it")
    finally:
        if os.path.lexists(path):
            os.unlink(path)


def try_loader():
    """Load data with worker processes, which pass it on through shared memory."""
    from torch.utils.data import DataLoader

    loader = DataLoader(Batches(), batch_size=1, num_workers=WORKERS, multiprocessing_context="fork", timeout=30)
    total = sum(float(batch[0, 0]) for batch in loader)
    if total != sum(range(len(Batches()))):
        raise RuntimeError("the data loader's workers returned different numbers from those they read")


def try_layer():
    """One step of a small model on the CPU: if torch cannot detect the processor's type, its kernels crash."""
    import torch

    layer = torch.nn.Linear(64, 64)
    layer(torch.ones(1024, 64)).sum().backward()
    if not bool((layer.bias.grad == 1024).all()):
        raise RuntimeError("the CPU computes a wrong gradient")


def try_device(local):
    """Multiply two matrices on the rank's own GPU."""
    import torch

    torch.cuda.set_device(local)
    ones = torch.ones(512, 512, device="cuda")
    if not bool((ones @ ones == 512).all()):
        raise RuntimeError("GPU %d computes a wrong product" % local)


def bind(listening, where, endpoint, wait_s):
    """Bind to the run's endpoint, which the probes of another preflight may hold for a moment."""
    end = time.monotonic() + wait_s
    while True:
        try:
            return listening.bind(where)
        except OSError as failed:
            if failed.errno != errno.EADDRINUSE or time.monotonic() > end:
                busy = ["busy"] * (failed.errno == errno.EADDRINUSE)
                raise RehearsalError("%s: %s" % (endpoint, failed.strerror), *busy) from None
        time.sleep(0.1)


def meet(plan, local, wait_s):
    """Meet the other ranks; returns their common store, this rank's number and the number of ranks."""
    import torch.distributed as dist

    host, _, port = plan["endpoint"].rpartition(":")
    host, first = host.strip("[]"), plan["node"] == 0 and local == 0
    more = {}
    if first and ADDRESS.fullmatch(host):
        # Listen at the run's own address, and at no other address.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind(listening, (host, int(port)), plan["endpoint"], wait_s / 3)
        listening.listen(512)
        more = {"master_listen_fd": listening.detach()}
    limit = datetime.timedelta(seconds=wait_s)
    store = dist.TCPStore(host, int(port), is_master=first, timeout=limit, wait_for_workers=False, **more)
    if local == 0:
        store.set("ranks-%d" % plan["node"], str(plan["ranks"]))
    counts = []
    for node in range(plan["nodes"]):
        try:
            counts.append(int(store.get("ranks-%d" % node)))
        except Exception:
            raise RehearsalError("node %d did not come within %g s" % (node, wait_s), missed=node) from None
    return store, sum(counts[: plan["node"]]) + local, sum(counts)


def add_up(data, world):
    """Run one all_reduce of ones, and check the sum; returns the seconds it took."""
    import torch.distributed as dist

    data.fill_(1)
    began = time.monotonic()
    dist.all_reduce(data)
    if not bool((data == world).all()):
        raise RuntimeError("all_reduce gave a wrong sum")
    return time.monotonic() - began
