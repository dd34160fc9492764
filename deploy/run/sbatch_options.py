"""Read the user's own options for sbatch, each with its value, and refuse those that Muster's script sets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..core.errors import UsageError
from ..job.options import FLAG

# These options take no value, or only one in the same word (`--exclusive=user`), so the next word is not their value.
_WITHOUT_VALUE = frozenset(
    {"--contiguous", "--exclusive", "--get-user-env", "--hold", "-H", "--nice", "--no-kill", "-k", "--no-requeue"}
    | {"--overcommit", "-O", "--oversubscribe", "-s", "--propagate", "--quiet", "-Q", "--reboot", "--spread-job"}
    | {"--use-min-nodes", "--verbose", "-v"}
)
# Each of these options asks for CPUs, or for whole nodes.
_FOR_CPUS = frozenset(("--cpus-per-task", "-c", "--cpus-per-gpu", "--mincpus", "--exclusive"))
# The time limit in words that are joined with NUL.
_TIME = re.compile(r"(?:^|\0)(?:-t|--time)[=\0]?([0-9][0-9:-]*)")
# Options that the batch script itself sets, or that would make several jobs, or no job, out of one run; each with what
# to do instead.
_OWN = {
    **dict.fromkeys(("--job-name", "-J"), f"{FLAG.run} names the run and its job"),
    **dict.fromkeys(("--nodes", "-N"), f"Muster's own {FLAG.nodes} says how many"),
    **dict.fromkeys(
        ("--ntasks", "-n", "--ntasks-per-node"),
        f"Muster runs one task per node; {FLAG.nproc} says how many ranks it starts",
    ),
    **dict.fromkeys(("--array", "-a"), "a run is one job: start one run for each"),
    **dict.fromkeys(
        ("--output", "-o", "--open-mode"), "the output is slurm-JOB.out in the folder; the printed file sets it"
    ),
    **dict.fromkeys(("--wait", "-W", "--parsable", "--wrap", "--test-only"), "leave it out"),
    "--signal": "the ranks stop in time before the limit anyway: leave it out",
    "--requeue": "the job sets it already: leave it out; --no-requeue turns it off",
}


def directives(words: Sequence[str]) -> list[tuple[str, ...]]:
    """One entry for each option, together with its value: `-p a100 --mem=4g` becomes `-p a100` and `--mem=4g`.

    A word that belongs to no option becomes a separate entry.
    """
    made: list[tuple[str, ...]] = []
    for word in words:
        if not word.startswith("-") and made and _waits_for_value(made[-1]):
            made[-1] = (*made[-1], word)
        else:
            made.append((word,))
    return made


def refuse(option: str, words: Sequence[str], gpus: int, own: Mapping[str, str] | None = None) -> None:
    """Raise UsageError for a word in Muster's `option` that belongs to no sbatch option, or that the job itself sets.

    `gpus`: how many GPUs Muster's --gpus asks for. `own`: more options that the job itself sets, each with what to do
    instead.
    """
    refused = {
        **_OWN,
        **({"--gpus-per-node": f"{FLAG.gpus} says the same: give only one of the two"} if gpus else {}),
        **(own or {}),
    }
    if ":" in words:
        raise UsageError(f"{option}: a job of several parts (:) is not one run", "start each part by itself")
    for first, *_ in directives(words):
        name = _name(first)
        # sbatch accepts the beginning of a name for the whole name; but --gpus is a separate option.
        if name not in refused and name.startswith("--") and name != "--gpus":
            name = next((own for own in refused if own.startswith(name)), name)
        if name in refused:
            raise UsageError(f"{option} {name}: a Muster run does not allow this", refused[name])
        if not first.startswith("-"):
            raise UsageError(
                f"{option} {first}: this word belongs to no option of sbatch", f'{option}="--partition=a100"'
            )


def refuse_short(words: Sequence[str], before_s: int) -> None:
    """Raise UsageError for a time limit up to `before_s`: the job would stop and start again for ever."""
    text = (_TIME.findall("\0".join(words)) or [""])[-1]
    if 0 < _seconds(text) <= before_s:
        what = (
            f"--time={text}: Muster asks a job to stop {before_s} s before its limit, which would be at the "
            "start of this one"
        )
        raise UsageError(what, "give the job some more minutes")


def _seconds(limit: str) -> int:
    """A time limit in seconds, as sbatch reads it; 0 for no limit, and for text that is no limit."""
    match = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", limit)
    if not match:
        return 0
    days, *parts = (int(part or 0) for part in match.groups())
    if not (match[1] or match[4]):  # minutes, or minutes and seconds
        parts = [0, *parts[:2]]
    return days * 86_400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def names_of(words: Sequence[str]) -> frozenset[str]:
    """The names of the options among the words, without their values."""
    return frozenset(_name(first) for first, *_ in directives(words))


def asks_for_cpus(words: Sequence[str]) -> bool:
    """Whether one of the options determines how many CPUs a node's only task gets."""
    return bool(names_of(words) & _FOR_CPUS)


def note_of_cpus(option: str, words: Sequence[str]) -> str:
    """A warning for a job that asks for no CPUs, with what to add to Muster's `option`; empty if it asks for some."""
    if asks_for_cpus(words):
        return ""
    few = "no option asks for CPUs: many clusters then give all ranks of a node, and their loaders, one CPU"
    return f"{few}; add --cpus-per-task=N to {option}, with the number of CPUs of a node"


def _waits_for_value(directive: Sequence[str]) -> bool:
    """Whether the next word may be the value of this option."""
    first = directive[0]
    if len(directive) > 1 or first in _WITHOUT_VALUE:
        return False
    return "=" not in first if first.startswith("--") else first.startswith("-") and len(first) == 2


def _name(word: str) -> str:
    return word.partition("=")[0] if word.startswith("--") else word[:2] if word.startswith("-") else word
