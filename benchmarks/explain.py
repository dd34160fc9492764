"""`fab explain`: how long 500 MB take and how much memory; with a folder, how often it is right on real-world output.

    python -m benchmarks.explain [FOLDER]

The folder holds NAME.log beside NAME.json, {"causes": [...], "source": "where from"}: the causes that a senior engineer
would name, `unknown` where the output does not tell. Output of others belongs to others: none of it is kept here.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from deploy.explain.cause import explain, judge
from deploy.explain.read import CHUNK, read

SIZE, MOST_S, MOST_MB = 500 << 20, 10, 100
LINE = "2026-11-21 10:11:12,345 [rank{rank}] INFO epoch 3 step {step} loss 0.{step:07d} lr 3.0e-04 samples/s 1234.5\n"
ERROR = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def speed() -> tuple[float, float, str]:
    """(seconds of CPU, MB of memory at most, the cause named) for a log whose one error is in its middle."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        block = "".join(LINE.format(rank=step % 8, step=step) for step in range(10_000)).encode()
        for number in range(SIZE // len(block)):
            file.write(block)
            if number == SIZE // len(block) // 2:
                file.write(ERROR.encode())
        file.flush()
        start = time.process_time()
        with Path(file.name).open("rb") as stream:
            reading = judge([read("big", iter(lambda: stream.read(CHUNK), b""))])
        took = time.process_time() - start
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, reading.cause


def score(folder: Path) -> Counter[str]:
    """How often the first cause named is right, among the others named (vague), not known, or wrong."""
    counts: Counter[str] = Counter()
    for file in sorted(folder.glob("*.log")):
        wanted = set(json.loads(file.with_suffix(".json").read_text())["causes"])
        explained = explain({file.stem: file.read_text(errors="replace")})
        cause = explained.cause or "unknown"
        verdict = "right" if cause in wanted else "vague" if wanted & set(explained.maybe) else ""
        counts[verdict or ("not known" if cause == "unknown" else "wrong")] += 1
    return counts


def main() -> None:
    """Print the figures; ends with 1 where the speed or the memory is not reached."""
    took, memory, cause = speed()
    print(f"{SIZE >> 20} MB: {took:.1f} s (at most {MOST_S}), {memory:.0f} MB of memory (at most {MOST_MB}), {cause}")
    for folder in sys.argv[1:]:
        counts = score(Path(folder))
        print(f"{folder}: {dict(counts)} of {counts.total()}, right {counts['right'] / max(1, counts.total()):.0%}")
    sys.exit(took > MOST_S or memory > MOST_MB or cause != "gpu-memory")


if __name__ == "__main__":
    main()
