"""Load all GPUs of a host at once for a while, and measure each: products, memory, PCIe, copies to its peers.

The control side (deploy/hosts/burn.py) sends this file, with nvidia_smi.py and question.py in it, as text into any
image that has torch. It reads a question from standard input, a JSON line with `seconds`, and answers with one JSON
line. This process never touches a GPU: its children do, and it sees how each of them ends. Python 3.8 can read it.

On a machine without GPUs, `"device": "cpu"` in the question lets the tests of this file run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import sys
import time

from .nvidia_smi import FIXED, NOW, number, nvlinks, smi, watched
from .question import end_with_parent, read_line

GB = 1e9
# The share of the time that memory gets; products get the rest, because they heat the most.
MEMORY_SHARE = 0.3
COPY_S, PEER_S, WINDOW_S, WATCH_S, GRACE_S = 0.25, 0.1, 0.5, 1.0, 60.0
COPIED, PEERED, CHUNK, FILLED = 256 << 20, 64 << 20, 1 << 30, 0.9
SIZE = 8192
SMALL = {"copied": 1 << 20, "peered": 1 << 20, "chunk": 4 << 20, "size": 256, "free": 32 << 20}


class Child:
    """A process of its own for `work`, which gets `say`: what it says, and how it ended."""

    def __init__(self, work, *words):
        self.heard, self.rest, self.ended = [], b"", None
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            end_with_parent()
            say = lambda what: os.write(theirs, (json.dumps(what) + "\n").encode())  # noqa: E731
            try:
                work(say, *words)
            except BaseException as failed:
                lines = str(failed).strip().splitlines() or [""]
                say({"error": ("%s: %s" % (type(failed).__name__, lines[0]))[:500]})
            os._exit(0)
        os.close(theirs)

    def hear(self):
        """Read what it says; at the end of its output, how it ended."""
        piece = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + piece).split(b"\n")
        self.heard += [json.loads(line.decode()) for line in lines]
        if not piece:
            status = os.waitpid(self.pid, 0)[1]
            self.ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {}

    def end(self):
        """End it, if it has not ended."""
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ended = {"error": "it did not end in time"}

    def outcome(self):
        """All that it said, in one piece; with how it ended, if badly."""
        whole = {}
        for message in self.heard:
            whole.update(message)
        return dict(whole, **(self.ended or {}))


def synchronize(device):
    """Wait until the device has done all that it was given."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate_of(copy, size, seconds, device):
    """GB/s of repeating `copy`, which moves `size` bytes, for a while."""
    copy()
    synchronize(device)
    began, times = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(4):
            copy()
        synchronize(device)
        times += 4
    return round(times * size / (time.monotonic() - began) / GB, 2)


def devices_of(kind):
    """torch's devices: all GPUs, or two stand-ins on the CPU."""
    import torch

    if kind == "cpu":
        return [torch.device("cpu"), torch.device("cpu")]
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def identity(device):
    """What a GPU is called."""
    import torch

    if device.type == "cpu":
        return {"name": "CPU", "uuid": ""}
    properties = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    return {"name": properties.name, "uuid": "GPU-" + uuid if uuid else ""}


def measure_copies(say, kind):
    """One GPU after the other: its PCIe, by pinned memory, and its copies to each peer. Says a list of GPUs."""
    import torch

    devices = devices_of(kind)
    gpus = []
    for device in devices:
        size = COPIED if device.type == "cuda" else SMALL["copied"]
        pinned = torch.ones(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        on_gpu = torch.empty(size, dtype=torch.uint8, device=device)
        to = rate_of(lambda: on_gpu.copy_(pinned, non_blocking=True), size, COPY_S, device)  # noqa: B023
        back = rate_of(lambda: pinned.copy_(on_gpu, non_blocking=True), size, COPY_S, device)  # noqa: B023
        under = smi(NOW).get(identity(device)["uuid"], {})
        lanes = {name: number(under, name) for name in ("gen", "width")}
        gpus.append(dict(identity(device), to=to, back=back, peers={}, wrong_peers=[], **lanes))
    for index, device in enumerate(devices):
        for other, peer in enumerate(devices):
            if index != other:
                rate, right = peer_copy(device, peer)
                gpus[index]["peers"][str(other)] = rate
                gpus[index]["wrong_peers"] += [] if right else [other]
    say({"gpus": gpus})


def peer_copy(device, peer):
    """GB/s of copies from one GPU to another, and whether the bytes arrived."""
    import torch

    size = PEERED if device.type == "cuda" else SMALL["peered"]
    source = torch.arange(size // 4, dtype=torch.int32, device=device)
    target = torch.zeros(size // 4, dtype=torch.int32, device=peer)
    rate = rate_of(lambda: target.copy_(source), size, PEER_S, device)
    synchronize(peer)
    return rate, bool(torch.equal(target.cpu(), source.cpu()))


def load(say, kind, index, seconds):
    """Load one GPU: its memory, then products. Says each as it is done."""
    device = devices_of(kind)[index]
    say(fill_memory(device, seconds * MEMORY_SHARE))
    say(multiply(device, seconds * (1 - MEMORY_SHARE)))


def fill_memory(device, seconds):
    """Fill most of the free memory with a pattern, then look whether each byte is still there; over and over."""
    import torch

    if device.type == "cuda":
        torch.cuda.set_device(device)
        free, chunk = torch.cuda.mem_get_info(device)[0], CHUNK
    else:
        free, chunk = SMALL["free"], SMALL["chunk"]
    count = max(1, int(free * FILLED) // chunk - 2)
    pattern = torch.randint(-(1 << 31), (1 << 31) - 1, (chunk // 4,), dtype=torch.int32, device=device)
    chunks = [torch.empty_like(pattern) for _ in range(count)]
    # One way through memory is read and one is written.
    rate = rate_of(lambda: chunks[0].copy_(pattern), 2 * chunk, COPY_S, device)
    wrong, passes, end = 0, 0, time.monotonic() + seconds
    while passes == 0 or time.monotonic() < end:
        for place, each in enumerate(chunks):
            torch.bitwise_xor(pattern, passes * count + place, out=each)
        for place, each in enumerate(chunks):
            each.bitwise_xor_(passes * count + place)
            wrong += 0 if torch.equal(each, pattern) else int((each != pattern).sum())
        passes += 1
    return {"memory": rate, "filled": round(count * chunk / GB, 2), "passes": passes, "wrong_words": wrong}


def multiply(device, seconds):
    """Multiply two matrices over and over. Each result must be the first one, bit for bit."""
    import torch

    size, kind = SMALL["size"], torch.float32
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.empty_cache()
        size, kind = SIZE, torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16
    left, right = (torch.randn(size, size, device=device, dtype=torch.float32).to(kind) for _ in range(2))
    first = left @ right
    result, rates, wrong = torch.empty_like(first), [], 0
    end = time.monotonic() + seconds
    while not rates or time.monotonic() < end:
        done = 2 * size**3 * rate_of(lambda: torch.matmul(left, right, out=result), GB, WINDOW_S, device)
        rates.append(done / 1e12)
        wrong += not torch.equal(result, first)
    fast, slow = max(rates), statistics.median(rates[-max(1, len(rates) // 4) :])
    return {
        "tflops": round(statistics.median(rates), 3),
        "fastest": round(fast, 3),
        "last": round(slow, 3),
        "kind": str(kind).partition(".")[2],
        "windows": len(rates),
        "wrong_products": wrong,
    }


def follow(children, limit_s, watch):
    """Hear all children to their end; `watch` is called each second."""
    end, looked = time.monotonic() + limit_s, 0.0
    while time.monotonic() < end:
        waiting = {child.pipe: child for child in children if child.ended is None}
        if not waiting:
            break
        for pipe in select.select([*waiting, 0], [], [], WATCH_S)[0]:
            if pipe in waiting:
                waiting[pipe].hear()
            elif not os.read(0, 1 << 16):  # the control side is gone
                os._exit(9)
        if time.monotonic() - looked >= WATCH_S:
            watch()
            looked = time.monotonic()
    for child in children:
        child.end()
    return [child.outcome() for child in children]


def burn(seconds, kind):
    """The whole answer."""
    try:
        import torch
    except Exception as failed:
        return {"error": ("%s: %s" % (type(failed).__name__, failed))[:500], "gpus": []}
    fixed, links, looks = smi(FIXED), nvlinks(), [smi(NOW)]
    copies = follow([Child(measure_copies, kind)], GRACE_S + seconds, lambda: None)[0]
    gpus = copies.pop("gpus", [])
    ended = follow(
        [Child(load, kind, index, seconds) for index in range(len(gpus))],
        seconds + GRACE_S,
        lambda: looks.append(smi(NOW)),
    )
    looks.append(smi(NOW))
    for gpu, loaded in zip(gpus, ended):
        uuid = gpu["uuid"]
        gpu.update(loaded, nvlinks=links.get(uuid, 0), watched=watched([look[uuid] for look in looks if uuid in look]))
        gpu["limits"] = {name: number(fixed[uuid], name) for name in FIXED if name != "uuid"} if uuid in fixed else {}
    return dict(copies, gpus=gpus, torch=torch.__version__)


def main():
    """Read the question, answer it."""
    answer = os.dup(1)
    os.dup2(2, 1)
    asked = read_line()
    result = burn(float(asked.get("seconds", 60)), asked.get("device", "cuda"))
    os.write(answer, (json.dumps(result) + "\n").encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
