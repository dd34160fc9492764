"""Failing lines of real runs, from public threads: lab/threads.jsonl.xz has a JSON object a line for each.

    python -m lab.threads              prints them, to be read
    python -m lab.threads FILE...      makes the archive of such prints; the same texts give the same bytes

A thread has its address, the causes that its discussion or its own words lead to (`unknown`: the lines do not tell),
who failed first (empty: the lines do not tell), the basis of that label, and a part: `rules` were read while the rules
were written, `score` only after the rules stood, `fresh` a second time after that, `again`, `third` and `fourth`
likewise. Names of users, hosts and folders are replaced, and most lines left out. The last line of a few is the
thread's title, where the text that could be had ends before it; their basis says so.

94 of `rules` came first. 160 more were found later, for the rules alone, by queries of lab/rule_queries.txt: its first
93, none of which is in lab/thread_queries.txt, and of which about 55 were put. None of them is in another part. 41 more
were looked for because a row of the tables had no thread: 39 by the other 44 queries, all put, each with the words of a
row, and two by the words alone, in public files. A row for which nothing was found has gone.

`fresh` was found by 24 of the first 90 queries in lab/thread_queries.txt: `random.Random(20261124).sample(range(90),
24)`. Of each the first one to three results that quote a failed run were taken, less a message that the query had
already given: 34 threads; four queries gave none, and on web pages beside GitHub's threads none was found. Nine further
queries asked for the rest of threads that were cut short; of what else those found, at most two each were taken: 12
threads.

`again` was found by 24 of the other 66 queries: `random.Random(20261125).sample` of their places. Of each the first one
to three results were taken in the same way: 48 threads; three queries gave none, and on web pages beside GitHub's
threads none was found for them. 32 further queries asked for the rest of threads that were cut short; of what else
those found, at most two each were taken: 25 threads.

`third` was found by the 42 of the 90 queries that were left, and by 20 more, the last of that file, which were written
before one of them was put. Of each the first one to three results that quote a failed run were taken, with as many of
its lines as could be had; a result whose text has nothing of the failure was passed over, and of several with one
message that with the most lines was taken: 59 and 33 threads. Four and one queries gave none, and on web pages beside
GitHub's threads none was found for them. 17 further queries asked for the rest of threads that were cut short; of what
else those found, at most two each were taken: 8 threads. The rules were changed at that time, with other threads.

`fourth` was found by the 42 last queries of lab/thread_queries.txt, which were written before one of them was put, and
after the rules stood. Of each the first one to three results that quote a failed run were taken, less those that other
parts have, with as many lines as could be had; a result whose text has nothing of the failure was passed over, and of
several with one message that with the most lines was taken: 82 threads. Five queries gave none. They were labelled
before the reader saw one of them, but by somebody who had read its rules.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent / "threads.jsonl.xz"
RULES, SCORE, FRESH, AGAIN = "rules", "score", "fresh", "again"
THIRD, FOURTH = "third", "fourth"


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
    """The threads in a print: `=== ADDRESS | PART | CAUSES | CULPRITS | BASIS`, then the lines."""
    for block in f"\n{text}".split("\n=== ")[1:]:
        head, lines = block.split("\n", 1)
        source, part, causes, culprits, basis = (word.strip() for word in head.split("|", 4))
        yield Thread(source, part, _words(causes), _words(culprits), basis, lines.rstrip("\n") + "\n")


def printed(threads: list[Thread]) -> str:
    """What `parse` reads."""
    return "".join(
        f"=== {one.source} | {one.part} | {', '.join(one.causes)} | {', '.join(one.culprits)} | {one.basis}\n{one.text}"
        for one in threads
    )


def main() -> None:
    """Print the threads, or make the archive of prints."""
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
