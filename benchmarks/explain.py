"""`muster explain`: how often it is right on other people's runs, compared with rivals; its time and memory for 500 MB.

    python -m benchmarks.explain [--misses]

The runs are those of lab/threads.py; a person labelled each before the reader saw it, or it was read while the rules
were written. By now the rules know all of them: docs/evidence/explain-score.md has the scores of each part's one try.
This program ends with 1 if a goal is missed. A cause is right if it is one of the label's; an exception of the script
and an exception of a library count as the same. The rivals name a line: the first or the last that `grep -i error`
finds, or torchrun's own report (the first traceback or signal in it). Such a line counts as right if `muster explain`
reads a right cause from it alone.

No rule knows the cause of a thread that nobody has seen. How `muster explain` behaves then is tried with all threads:
the rows of the thread's own cause are left out of the tables, and the cause that is named without them is wrong, or
not known.
"""

from __future__ import annotations

import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from deploy.explain import read as reader
from deploy.explain.cause import explain, judge
from deploy.explain.read import CHUNK, read
from deploy.explain.signs import general as signs_general
from deploy.explain.signs.table import SIGNS
from lab import threads

SIZE, MOST_S, MOST_MB = 500 << 20, 10, 100
RIGHT, WRONG = 0.8, 1 / 40
LINE = "2026-11-21 10:11:12,345 [rank{rank}] INFO epoch 3 step {step} loss 0.{step:07d} lr 3.0e-04 samples/s 1234.5\n"
ERROR = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
EXCEPTIONS = {"exception", "script-error"}
# Causes whose signs belonged to another cause when the threads were labelled.
SPLIT = {"library-missing": "library-mismatch"}


def speed() -> tuple[float, float, str]:
    """(CPU seconds, peak memory in MB, the named cause) for a log whose only error is in its middle."""
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


def grep(text: str) -> list[str]:
    """The lines that `grep -i error` prints."""
    return [line for line in text.splitlines() if "error" in line.lower()]


def report(text: str) -> str:
    """The root cause in torchrun's own report: its signal, or the error of its traceback."""
    rest = text.partition("Root Cause")[2]
    said = re.search(r"traceback *: (Signal .*)|^ +(\w*(?:Error|Exception): .*)", rest, re.MULTILINE)
    return (said[1] or said[2]) if said else ""


WAYS: dict[str, Callable[[str], str]] = {
    "fab explain": lambda text: text,
    "grep -i error | head -1": lambda text: (grep(text) or [""])[0],
    "grep -i error | tail -1": lambda text: (grep(text) or [""])[-1],
    "torchrun's report": report,
}


def verdict(thread: threads.Thread, text: str) -> str:
    """Whether the cause read from `text` is right, wrong or not known."""
    cause = explain({"log": text}).cause or "unknown"
    alike = EXCEPTIONS if cause in EXCEPTIONS else {cause, SPLIT.get(cause, cause)}
    return "right" if alike & set(thread.causes) else "not known" if cause == "unknown" else "wrong"


@contextmanager
def without(causes: tuple[str, ...]) -> Iterator[None]:
    """Remove the rows of these causes from the tables inside the block."""
    signs = tuple(sign for sign in SIGNS if sign.cause not in causes)
    rows = tuple(row for row in signs_general.ROWS if row.cause not in causes)
    reader.sign_of.cache_clear()
    with patch.object(reader, "SIGNS", signs), patch.object(signs_general, "ROWS", rows):
        yield
    reader.sign_of.cache_clear()


def unforeseen(every: list[threads.Thread]) -> Counter[str]:
    """The verdicts on threads whose cause a row detects, when the rows of that cause are left out of the tables."""
    said: Counter[str] = Counter()
    for thread in every:
        if explain({"log": thread.text}).cause not in (*EXCEPTIONS, "") and verdict(thread, thread.text) == "right":
            with without(thread.causes):
                said[verdict(thread, thread.text)] += 1
    return said


def named(thread: threads.Thread) -> bool:
    """Whether the reader names the one that failed first, if the label contains it."""
    first = explain({"log": thread.text}).first
    return any(re.search(rf"(?:^|\b){re.escape(name)}\b", first) for name in thread.culprits)


def main() -> None:
    """Print the figures; ends with 1 if the right or wrong answers, the time or the memory miss their goal."""
    every = threads.load()
    print(f"{len(every)} threads")
    for way, taken in WAYS.items():
        verdicts = [(verdict(thread, taken(thread.text)), "unknown" in thread.causes) for thread in every]
        counts = Counter(words for words, _ in verdicts)
        told = [words for words, unknown in verdicts if not unknown]
        print(f"  {way:25} right {counts['right']:3} ({counts['right'] / len(every):.0%})  wrong {counts['wrong']:3}  "
              f"not known {counts['not known']:3}; where the lines tell a cause, right "
              f"{told.count('right')} of {len(told)}")  # fmt: skip
    with_culprit = [thread for thread in every if thread.culprits]
    print(f"  who failed first          named {sum(map(named, with_culprit))} of {len(with_culprit)} that tell")
    said = {thread: verdict(thread, thread.text) for thread in every}
    for thread in every if "--misses" in sys.argv[1:] else ():
        if said[thread] != "right":
            told_as = explain({"log": thread.text})
            causes = ", ".join(thread.causes)
            print(f"  {said[thread]}: {thread.source} is {causes}; named: {told_as.cause or told_as.what}")
    counts = Counter(said.values())
    well = counts["right"] >= RIGHT * len(every) and counts["wrong"] <= WRONG * len(every)
    blind = unforeseen(every)
    print(f"no row has the cause: {blind.total()} threads, wrong {blind['wrong']}, not known {blind['not known']}")
    took, memory, cause = speed()
    print(f"{SIZE >> 20} MB: {took:.1f} s (at most {MOST_S}), {memory:.0f} MB of memory (at most {MOST_MB}), {cause}")
    sys.exit(not well or took > MOST_S or memory > MOST_MB or cause != "gpu-memory")


if __name__ == "__main__":
    main()
