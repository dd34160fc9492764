"""Fuzz every parser for a few minutes: `make fuzz SECONDS=120`, or `python -m tests.hostile.fuzz --count 5000`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.hostile.fuzz import running
from tests.hostile.fuzz.entries import ENTRIES


def main():
    """Run rounds on all entries until the time, or each entry's count, is used up. Exit code 1 for a finding."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=120.0)
    asked.add_argument("--count", type=int, default=0, help="so many inputs for each, instead of seconds")
    asked.add_argument("--seed", type=int, default=int(time.time()))
    asked.add_argument("--only", default="")
    asked.add_argument("--grow", action="store_true", help="keep inputs that reach new lines, a few for each")
    options = asked.parse_args()
    entries = [entry for entry in ENTRIES if options.only in ("", entry.name)]
    print(f"seed {options.seed}, {len(entries)} parsers", flush=True)
    total, bad, most_mb, share = 0, 0, 0.0, options.seconds / len(entries)
    for entry in entries:
        began = time.monotonic()
        count, until = (options.count, None) if options.count else (1 << 40, began + share)
        # Each parser has its own process, so that the memory measured there is that of one parser.
        with multiprocessing.get_context("fork").Pool(1) as alone:
            findings, done, memory_mb = alone.apply(rounds, (entry.name, options.seed, count, until, options.grow))
        total, bad, most_mb = total + done, bad + len(findings), max(most_mb, memory_mb)
        spent = time.monotonic() - began
        print(
            f"{entry.name:16} {done:9,} inputs  {spent:6.1f} s  {memory_mb:4.0f} MB  {len(findings)} findings",
            flush=True,
        )
        for wrong, times in findings.most_common(20):
            print(f"    {times:6} x {wrong}", flush=True)
    print(f"{total:,} inputs, {bad} findings, at most {most_mb:.0f} MB of memory for one parser")
    return 1 if bad or most_mb > running.MOST_MB else 0


def rounds(name, seed, count, until, grow):
    """`running.rounds` for the entry with this name, and the peak memory of this process in MB."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    findings, done = running.rounds(entry, seed, count, until=until, grow=grow)
    return findings, done, running.memory_mb()


if __name__ == "__main__":
    sys.exit(main())
