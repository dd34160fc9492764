"""Failing lines of real runs, from public threads: lab/threads.jsonl.xz has one JSON line for each thread.

    python -m lab.threads              prints the threads, to be read
    python -m lab.threads FILE...      makes the archive from such printed files; the same texts give the same bytes

A thread has its address, the causes that follow from its discussion or its own text (`unknown`: the lines do not show
any), who failed first (empty: the lines do not show it), the basis of that label, and a part: `rules` were read while
the rules were written (found by rule_queries.txt); the others were collected by queries (thread_queries.txt), labelled
before the reader saw them, and used for one score each (docs/evidence/explain-score.md). Names of users, hosts and
folders are replaced, and most lines are left out. In a few, the last line is the thread's title, because the available
text ends before it; their basis says so.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent / "threads.jsonl.xz"


@dataclass(frozen=True)
class Thread:
    """One thread's failing lines."""

    source: str
    part: str
    causes: tuple[str, ...]
    culprits: tuple[str, ...]
    basis: str
    text: str


def load() -> list[Thread]:
    """All threads."""
    lines = lzma.decompress(ARCHIVE.read_bytes()).decode().splitlines()
    values = [json.loads(line) for line in lines]
    return [Thread(**{**value, **{key: tuple(value[key]) for key in ("causes", "culprits")}}) for value in values]


def parse(text: str) -> Iterator[Thread]:
    """The threads in a printed file: `=== ADDRESS | PART | CAUSES | CULPRITS | BASIS`, then the lines."""
    for block in f"\n{text}".split("\n=== ")[1:]:
        head, lines = block.split("\n", 1)
        source, part, causes, culprits, basis = (word.strip() for word in head.split("|", 4))
        yield Thread(source, part, _words(causes), _words(culprits), basis, lines.rstrip("\n") + "\n")


def printed(threads: list[Thread]) -> str:
    """The text that `parse` reads."""
    return "".join(
        f"=== {one.source} | {one.part} | {', '.join(one.causes)} | {', '.join(one.culprits)} | {one.basis}\n{one.text}"
        for one in threads
    )


def main() -> None:
    """Print the threads, or make the archive from printed files."""
    files = [Path(name) for name in sys.argv[1:]]
    if not files:
        print(printed(load()), end="")
        return
    threads = sorted((one for file in files for one in parse(file.read_text())), key=lambda one: (one.part, one.source))
    lines = "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in threads)
    ARCHIVE.write_bytes(lzma.compress(lines.encode(), preset=9))
    print(f"{len(threads)} threads, {ARCHIVE.stat().st_size} bytes")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


if __name__ == "__main__":
    main()
