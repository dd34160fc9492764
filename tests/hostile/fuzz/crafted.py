"""Inputs designed to hurt their reader, made from a seed: logs, archives, folders, JSON, stacks, tar streams.

Each is a mapping from paths to bytes: the files of a folder. readers.py decides how each is read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib

from deploy.run.output import MOST_LINES
from tests.hostile.fuzz import mutate, near, samples
from tests.hostile.test_fetch import archive, member

ERRORS = (
    "RuntimeError: CUDA error", "error: x failed", "ValueError: y", "a.b.Cde: z", "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 4, in main', "Exception in thread T", "Exception ignored in: <x>", "FAILED",
    "[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, "
    "OpType=ALLREDUCE, NumelIn=1", "Root Cause (first observed failure):", "  rank      : 1 (local_rank: 1)",
    "╭──── Traceback (most recent call last) ────╮", "│ /home/me/train.py:4 in load   │", "╰─────╯", "loss nan",
    "[rank3]:[E socket.cpp] The client socket has failed to connect to any network address of (a, 29500).",
    "step 4 loss 0.1", "exited with code 1", "srun: error: n1: task 3: Exited with exit code 1", "training done",
)  # fmt: skip
PREFIXES = ("", "[rank{0}]: ", "worker-{0}  | ", "n{0}: ", "[1,{0}]<stderr>:", "2026-11-21 05:21:16,{0} ",
            "{0}: ", "(RayWorker pid={0}, ip=10.0.0.{0}) ", "[{0}]: ",
            "E1121 05:21:16.1 {0} x.cc:1] ", "\x1b[3{0}m")  # fmt: skip
_WORDS = "abcdefghijklmnopqrstuvwxyz"


def log(random):
    """A log of up to 300 KB that a script might print."""
    return {"run.log": _text(random, random.choice((1_000, 30_000, 30_000, 100_000, 100_000, 300_000)))}


def logs(random):
    """Logs from many ranks, or a folder that is hard to walk."""
    if random.random() < 0.3:
        return {f"{'d/' * random.randrange(40)}{number}": b"x error\n" for number in range(random.choice((10, 3000)))}
    text = _text(random, 3_000)
    return {f"rank_{number}.log": text for number in range(random.choice((8, 400, 2500)))}


def packed(random):
    """An archive: a bomb, nested, truncated, with wrong sizes, or of another format."""
    text = random.choice((
        lambda: b"\0" * (100 << 20), lambda: b"error: x failed\n" * (4 << 20),
        lambda: b"".join(b"error %d: %s failed\n" % (n, b"x" * (n % 50)) for n in range(300_000)),
        lambda: _text(random, 100_000) * 200,
    ))()  # fmt: skip
    way = random.randrange(10)
    if way < 5:
        data = gzip.compress(text, 1)
        data = random.choice((
            lambda: data, lambda: data[: random.randrange(len(data))], lambda: gzip.compress(data),
            lambda: data[:-8] + b"\xff" * 8, lambda: data[:1000] + b"\xff" * 40 + data[1040:],
        ))()  # fmt: skip
    elif way == 5:
        data = gzip.compress(b"error\n") * random.choice((10, 50_000))
    elif way == 6:
        data = random.choice((bz2.compress, lzma.compress, zlib.compress))(text[: 4 << 20])
    elif way == 7:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("../../x.log", text[: 40 << 20])
        data = file.getvalue()
    elif way == 8:
        data = gzip.compress(archive(member("a", text[: 20 << 20]), member("../b", b"x", link="/")))
    else:
        data = b"\x28\xb5\x2f\xfd" + random.randbytes(100_000)
    return {random.choice(("run.log.gz", "run.log")): data}


def manifest(random):
    """A checkpoint's manifest."""
    good = {"format": 1, "step": 20, "created": 1795238476.5, "metric": None, "summary": {}, "check": "0" * 64,
            "files": {"state.pt": {"sha256": "0" * 64, "bytes": 5}}}  # fmt: skip
    name = random.choice(("checkpoints/step-00000020/manifest.json",) * 3 + ("metrics.jsonl",))
    return {name: planted(json.dumps(good), random), "checkpoints/step-00000020/state.pt": b"12345"}


def stacks(random):
    """What a rank leaves about its threads and about how it ended."""
    calls = [["0", 1, "allreduce", "4", "a.py", 3, "f"]]
    look = json.dumps({"t": 1795238476.5, "pid": 4711, "main": "0x7f", "step": 4, "since_s": 2.5, "before": 0,
                       "doing": "collective", "error": "", "collectives": calls})  # fmt: skip
    frames = 'Thread 0x7f (most recent call first):\n  File "/home/me/train.py", line 4 in main\n'
    whole = b"Look " + planted(look, random) + b"\n" + frames.encode()
    whole = random.choice((
        lambda: whole, lambda: whole * 300, lambda: whole + frames.encode() * 100_000, lambda: b"Look {}\n" * 300_000,
        lambda: whole + b"\nFatal Python error: Segmentation fault\n" + frames.encode(),
        lambda: frames.encode() + b'  File "x", line ' + "²9".encode() + b"9" * 9999 + b" in f\n" + whole,
        lambda: whole + b'  File "' + b'", line 4 in "' * 100_000 + b"\n",
    ))()  # fmt: skip
    return {"0.stacks": whole, "0.json": planted(samples.VERDICT, random)}


def run_folder(random):
    """A run folder with files that hosts and containers wrote."""
    good = {"record.json": samples.RECORD, "outcome.json": samples.OUTCOME, "config.json": samples.CONFIG,
            "timeline.jsonl": samples.TIMELINE, "metrics.jsonl": samples.METRICS, "nodes/a.json": samples.NODE_UP,
            "ranks/rank-0.jsonl": samples.RANK_LINES, "telemetry/a.jsonl": samples.TELEMETRY, "logs/a.log": "x error\n",
            "scalars/a.jsonl": samples.SCALARS, "outcome/a-0.json": samples.VERDICT, "preflight.json": "{}",
            ".fetched.json": '{"a": {"x": [1, 2]}}'}  # fmt: skip
    files = {name: text.encode() for name, text in good.items()}
    name = random.choice(list(good))
    lines = good[name].rstrip("\n").split("\n")
    way = random.randrange(5)
    if way == 0 and name.endswith(".jsonl"):
        files[name] = _many(random, lines, random.choice((1 << 20, 4 << 20, 24 << 20)))
    elif way == 1:
        folder, _, last = name.rpartition("/")
        for number in range(random.choice((300, 2000))):
            other = f"ranks/rank-{number}.jsonl" if folder == "ranks" else f"{folder or 'nodes'}/{number}-{last}"
            files[other] = files[name]
    elif way == 2:
        files[name] = random.choice((b"\0" * (8 << 20), b"\n" * (4 << 20), b"{}\n" * (1 << 20), b"\xff\xfe" * 1000))
    else:
        files[name] = b"\n".join(planted(line, random) for line in lines) + b"\n"
    return files


def answer(random):
    """An answer from a host or a container; the reader chooses which one."""
    return {"answer": b""}


def listing(random):
    """A host's list of a run's files."""
    count = random.choice((10, 20_000, 100_000))
    sent = planted('{"a": ["0644", 5, 6]}', random).replace(b"\n", b" ")
    lines = [b"%x %d %d.5 ./%s" % (random.choice((0o100644, 0o120777, 0o10644)), random.randrange(10**6), 1795238476,
                                   f"{'d/' * random.choice((0, 0, 2, 60))}{number}".encode())
             for number in range(count)]  # fmt: skip
    odd = (b"9" * 5000 + b" 1 1 ./x", b"81a4 " + b"9" * 5000 + b" 1 ./x", b"x" * 100_000, b"81a4 1 1 ./../../x", b"\0")
    lines += [random.choice(odd) for _ in range(20)]
    return {"answer": b"\n".join([sent, b"{}", *lines, b"end", b""])}


def stream(random):
    """A tar stream from a host."""
    members = [
        lambda: member("f" * 90, b"x" * random.choice((0, 10, 100_000))), lambda: member("../x", b"y"),
        lambda: member("s", kind=tarfile.SYMTYPE, link="/etc"), lambda: member("d" * 99, kind=tarfile.DIRTYPE),
        lambda: member("/".join("d" * 40), b"x"), lambda: member("p" * 5000, b"x"),
        lambda: member("x", kind=tarfile.XHDTYPE) + planted("20 path=a/b", random)[:500],
        lambda: member("h", kind=tarfile.LNKTYPE, link="../../x"), lambda: member("g", kind=tarfile.GNUTYPE_SPARSE),
    ]  # fmt: skip
    data = b"".join(random.choice(members)() for _ in range(random.choice((3, 300, 3000))))
    data = random.choice((lambda: archive(data), lambda: data[: random.randrange(len(data))],
                          lambda: mutate.mutated(data[: 1 << 20], random)))()  # fmt: skip
    return {"answer": data}


def planted(text, random):
    """JSON in which something monstrous replaces a value, a key or the whole document."""
    raw = random.choice((*mutate.RAW, *_MONSTERS))
    raw = raw() if callable(raw) else raw
    if random.random() < 0.1:
        return raw.encode(errors="surrogatepass")
    if random.random() < 0.1:
        return text.rstrip().removesuffix("}").encode() + b', "a": 1' * 100_000 + b"}"
    try:
        value = json.loads(text)
    except ValueError:
        return mutate.mutated(text.encode(), random)
    odd = random.choice(mutate.ODD_JSON) if random.random() < 0.5 else mutate.HOLE
    return json.dumps(mutate.changed(value, random, odd)).replace(json.dumps(mutate.HOLE), raw).encode(errors="replace")


_MONSTERS = (
    lambda: "[" * 60 + "]" * 60, lambda: '{"a":' * 400 + "1" + "}" * 400, lambda: "[" + "[]," * 300_000 + "[]]",
    lambda: "[" + '{"a":1},' * 100_000 + "{}]", lambda: "{" + ",".join(f'"{n}":{n}' for n in range(100_000)) + "}",
    lambda: "[" + "1e5," * 900_000 + "0]", lambda: '"' + "é" * 2_000_000 + '"', lambda: '"' + "\\u0001" * 300_000 + '"',
    lambda: '["\\ud800", "\\udfff\\ud800", "\\u202e"]', lambda: "1" + "0" * 4000, lambda: "-1e-400", lambda: "1E+400",
)  # fmt: skip


def _many(random, lines, size):
    """At least `size` bytes of these lines, with different numbers in each block."""
    text, number = bytearray(), 0
    while len(text) < size:
        number += 1
        block = "\n".join(lines) + "\n"
        text += block.replace('"step": 2', f'"step": {number}').replace("179523", f"{179523 + number % 5}").encode()
    return bytes(text)


def _text(random, size):
    way = random.randrange(8)
    if way == 0:
        pattern = random.choice(_PATTERNS)
        length = random.choice((200, 4096, 4096, 60_000))
        lines = [near.almost(pattern, random, length) for _ in range(8)]
    elif way == 1:
        lines = [near.almost(random.choice(_PATTERNS), random, random.choice((80, 400, 4096))) for _ in range(200)]
    elif way == 2:
        lines = [random.choice(ERRORS)] * MOST_LINES
    elif way == 3:
        return random.choice((b"\0", b"\r", b"\n", b"\x1b[", b"error\r", "│".encode(), b"a ", b"\xc3")) * (size // 2)
    else:
        lines = []
    text = bytearray()
    while len(text) < size:
        if lines:
            line = random.choice(lines)
        else:
            prefix = "".join(random.choice(PREFIXES) for _ in range(random.choice((0, 1, 1, 2, 6))))
            noise = "".join(random.choice(_WORDS) for _ in range(random.choice((3, 12, 60))))
            line = (
                f"{prefix.format(random.choice((3, random.randrange(10**6), 10**300)))}{random.choice(ERRORS)} {noise}"
            )
        text += line.encode(errors="replace") + random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    data = bytes(text[:size])
    if way == 7:
        data = data.decode(errors="replace").encode(random.choice(("utf-16", "utf-16-le", "utf-16-be")), "replace")
    return data


_PATTERNS = tuple(pattern for pattern in near.patterns().values() if isinstance(pattern.pattern, str))
