"""Faults that nobody chose: drawn at random (lab/drawn/), tried with real torchrun, and preflight's answer on each.

python -m benchmarks.preflight_drawn                    a score: 50 draws that fail, 50 that train, a fresh seed
python -m benchmarks.preflight_drawn --write            the same, into lab/scores/preflight-score.md
python -m benchmarks.preflight_drawn --look 100         draws to look at, recorded with the probes' answers
python -m benchmarks.preflight_drawn --again            what today's rules say about the recorded answers
python -m benchmarks.preflight_drawn --draw 12.34       one draw, with everything that preflight says about it
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks import score_page
from deploy.preflight import judge
from deploy.report import preflight_text
from lab import job, network, trial
from lab.drawn import recorded, score
from lab.drawn.draw import Draw, draw, draws
from lab.drawn.trial import Tried, attempt, truth

EACH, AT_ONCE = 50, 4
# The goals of the figures, by question; for draws that fail (True), or for those that train (False).
REACH = (
    ("right cause or true observation first, right host, pair or network", score.RIGHT, True, "≥ 90 %"),
    ("of these, the cause itself", (score.CAUSE,), True, ""),
    ("right cause, another host or pair", (score.PLACE,), True, ""),
    ("green, and the run fails", (score.GREEN,), True, "≤ 1 %"),
    ("another cause, stated as sure", (score.WRONG,), True, "≤ 2 %"),
    ("could not tell, and nothing true first", (score.UNSURE,), True, ""),
    ("refused, and the run trains", (score.REFUSED,), False, "≤ 1 %"),
)


def tried(some: Iterable[Draw], of_score: bool) -> list[Tried]:
    """Try draws, some in parallel, and record each, with a line on standard error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = []
        for each in filter(None, pool.map(_one, some)):
            done.append(each)
            recorded.add([each], of_score)
        return done


def _one(drawn: Draw) -> Tried | None:
    try:
        each = attempt(drawn)
    except Exception as failed:
        print(f"  .. {drawn.id} could not be made: {failed!r} ({drawn.words})", file=sys.stderr, flush=True)
        return None
    print(f"  .. {each.id} {each.truth:5} {each.quick.mark:8} {each.full.mark}", file=sys.stderr, flush=True)
    return each


def scored(seed: int, each: int) -> list[Tried]:
    """Try draws until `each` of them fail and `each` of them train."""
    done: list[Tried] = []
    count, source = {True: 0, False: 0}, draws(seed)
    breaking = (drawn for drawn in draws(seed) if drawn.number % 2 == 0)
    well = (drawn for drawn in source if drawn.number % 2 == 1)
    while min(count.values()) < each:
        lacking = [breaking] * (count[True] < each) + [well] * (count[False] < each)
        wanted = max(each - min(count.values()), 6) // len(lacking) + 2
        for one in tried([next(stream) for stream in lacking for _ in range(wanted)], True):
            if count[one.fails] < each:
                count[one.fails] += 1
                done.append(one)
    return done


def table(results: Sequence[Tried]) -> list[str]:
    """The figures, quick and full, as lines of a Markdown table."""
    lines = ["| figure | quick | with the proof | reach |", "|---|---|---|---|"]
    for words, marks, fails, reach in REACH:
        of = [one for one in results if one.fails == fails]
        cells = [score.share(sum(getattr(one, way).mark in marks for one in of), len(of)) for way in ("quick", "full")]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} | {reach} |")
    # Other draws that train have a part that was meant to break them: a run that transferred more data would have met
    # it.
    meant_well = [one for one in results if not one.fails and not any(causes for causes, _, _ in one.parts)]
    cells = [
        score.share(sum(getattr(one, way).mark == score.REFUSED for one in meant_well), len(meant_well))
        for way in ("quick", "full")
    ]
    lines.append(f"| of these, where no part was meant to break anything | {cells[0]} | {cells[1]} | ≤ 1 % |")
    return lines


def misses(results: Sequence[Tried]) -> list[str]:
    """The wrong answers, as lines of a Markdown table."""
    lines = ["| draw | what was done | run | preflight said | mark |", "|---|---|---|---|---|"]
    for one in results:
        if one.full.mark not in (*score.RIGHT, score.QUIET):
            where = ", ".join(one.full.hosts)
            said = f"{one.full.cause} ({where}; {one.full.level})" if one.full.cause else "nothing"
            lines.append(f"| {one.id} | {one.words} | {one.truth} | {said} | {score.WORDS[one.full.mark]} |")
    return lines


_HEAD = """\
## Faults that nobody chose

`lab/drawn/` composes parts (a primitive at a place: drop, reject, delay, limit, lose, cut, lie, differ, fill, remove,
swap, overlap) at random, one to three at a time. Real torchrun says whether the run trains; the generator fixed before
what is right to say. These draws are made for the score and for nothing else; other draws are for looking at.
Command: `python -m benchmarks.preflight_drawn --write`.
"""


def section(seed: int, results: Sequence[Tried], seconds: float) -> str:
    """The section about draws in lab/scores/preflight-score.md."""
    slow = sum(one.truth == job.SLOW for one in results)
    head = [
        f"Seed {seed}, {time.strftime('%Y-%m-%d')}, {len(results)} draws in {seconds / 60:.0f} minutes; {slow} of "
        "those that fail are only slow. In brackets: the share, and its 95 % interval.",
        "",
    ]
    past = history(seed)
    past = ["Scores before, each with the rules of its day and a seed of its own:", "", *past, ""] if past else []
    return "\n".join([_HEAD, *head, *table(results), "", *past, "Misses (with the proof):", "", *misses(results), ""])


def history(but: int) -> list[str]:
    """The scores of other seeds, in the order of their runs, with the proof."""
    seeds = dict.fromkeys(int(entry["id"].split(".")[0]) for entry in recorded.load() if entry["score"])
    lines = ["| seed | right | green, fails | wrong as sure | refused, trains |", "|---|---|---|---|---|"]
    for seed in seeds:
        of = [entry for entry in recorded.load() if entry["score"] and entry["id"].startswith(f"{seed}.")]
        marks = {
            fails: [one["full"]["mark"] for one in of if (one["truth"] != job.FINE) == fails] for fails in (True, False)
        }

        def count(words: Sequence[str], marks: list[str]) -> str:
            return score.share(sum(marks.count(word) for word in words), len(marks))

        cells = [count(words, marks[fails]) for _, words, fails, reach in REACH if reach]
        lines += [f"| {seed} | {' | '.join(cells)} |"] if seed != but else []
    return lines if len(lines) > 2 else []


def again() -> None:
    """Apply today's rules to the recorded answers."""
    entries, marks, wrong = [entry for entry in recorded.load() if entry["answers"]], Counter(), []
    for entry in entries:
        marked, verdict = recorded.judged(entry)
        marks[entry["truth"] != job.FINE, marked.word] += 1
        if marked.word not in (*score.RIGHT, score.QUIET):
            first = verdict.first or next(iter(verdict.warnings), None)
            said = f"{first.cause} {','.join(first.hosts)} [{first.level}] {first.text[:150]}" if first else "nothing"
            wrong.append(f"{entry['id']:10} {entry['truth']:5} {marked.word:8} {entry['words']}\n      said {said}")
    print(
        "\n".join(
            [*wrong, *(f"{'fails' if fails else 'trains'} {word}: {n}" for (fails, word), n in sorted(marks.items()))]
        )
    )


def show(identity: str) -> None:
    """Show everything about one draw."""
    drawn = draw(*map(int, identity.split(".")))
    with drawn.lab() as lab:
        drawn.break_hosts(lab)
        verdict = judge(trial.answers(lab, drawn.cast.run))
    print(drawn.words, *preflight_text.lines_of(verdict, "gloo"), sep="\n")
    print(f"torchrun: {truth(drawn)}; mark: {score.mark(drawn.parts, truth(drawn), verdict).word}")


def main() -> None:
    """Score draws, record draws to look at, or show one draw."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked.add_argument("--each", type=int, default=EACH, help="draws that fail, and as many that train")
    asked.add_argument("--look", type=int, default=0)
    asked.add_argument("--again", action="store_true")
    asked.add_argument("--draw", default="")
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    if given.again:
        return again()
    if lacking := network.missing():
        sys.exit(f"error: {lacking}")
    if given.draw:
        return show(given.draw)
    began = time.monotonic()
    if given.look:
        results = tried(itertools.islice(draws(given.seed), given.look), False)
    else:
        results = scored(given.seed, given.each)
    text = section(given.seed, results, time.monotonic() - began)
    print(text)
    if given.write and not given.look:
        score_page.write("drawn", text)
    return None


if __name__ == "__main__":
    main()
