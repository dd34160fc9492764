"""Refuse options that exclude each other or need another one, by the rules in the table of options (options.py).

Every command uses this module. Conflicts that only the hosts or a run's record show are refused where these are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.errors import UsageError
from .options import FLAG, KEYS, ROWS, Job, Options, Term, keys_of, rules_of

# Words for options that can be typed in several ways, or are a table in the file.
_IN_WORDS = {"role": "several roles", "script": "a script", "each": "a script", "runs": "a kind, such as --runs"}
_EMPTY_JOB = Job()


def refuse_pairs(task: str, options: Options, job: Job = _EMPTY_JOB, whole: bool = True) -> None:
    """Raise UsageError for an option of a command together with one that it excludes, or without one that it needs.

    `job`: the job of cluster.toml with the typed options over it. That file is for many runs, so what one of its keys
    needs may be missing. `whole`: neither a file nor a record can add options later.
    """
    typed = {name: value if isinstance(value, str) else "" for name, value in vars(options).items() if value}
    filed = {name for name in keys_of(job) - typed.keys() if not KEYS[name].typed}
    given = dict.fromkeys(filed, "") | typed
    say = vars(FLAG) | {name: f"`{KEYS[name].name}` of cluster.toml" for name in filed}
    for name, rule in rules_of(task):
        may_come = not whole and any(ROWS[each].key or ROWS[each].again for each in rule.needs)
        if may_come or name not in (typed if rule.needs else given):
            continue
        seen = [term for each in rule.terms for term in _matching(each, given)]
        if len(seen) == len(rule.terms):
            names = dict.fromkeys([name, *(term.names[0] for term in seen if not term.absent)])
            instead = rule.hint or ", or ".join(f"leave out {say[each]}" for each in names)
            raise UsageError(f"{condition(name, seen, say)}: {rule.why}", instead)


def needs_engine(job: Job) -> str:
    """The option or key, as the user wrote it, that only a container engine can provide; empty if there is none."""
    given = keys_of(job) | {"secret_file" for secret in job.secrets if secret.as_file}
    needs = next((name for name, row in ROWS.items() if row.engine and name in given), "")
    return vars(FLAG)[needs] if needs and ROWS[needs].helps else f"{needs} of cluster.toml" * bool(needs)


def condition(name: str, terms: Sequence[Term], say: Mapping[str, str]) -> str:
    """When an option is refused, in words: `--mount: not with --slurm without --container`."""
    own, beside, lacking = say[name], list[str](), list[str]()
    for term in terms:
        names, texts = term.names[:1] if term.absent else term.names, " or ".join(term.texts)
        words = " or ".join(dict.fromkeys(f"{_IN_WORDS.get(each, say[each])} {texts}".rstrip() for each in names))
        if term.names == [name]:
            own = words
        else:
            (lacking if term.absent else beside).append(words)
    parts = [f"with {' and '.join(beside)}"] * bool(beside) + [f"without {', or '.join(lacking)}"] * bool(lacking)
    return f"{own} cannot be used {' '.join(parts)}"


def _matching(term: Term, given: Mapping[str, str]) -> list[Term]:
    """The term, reduced to the option that meets it; empty if the term does not hold."""
    fits = [name for name in term.names if name in given and (not term.texts or given[name] in term.texts)]
    if term.absent:
        return [] if fits else [term]
    return [Term([name], [given[name]] * bool(term.texts), False) for name in fits[:1]]
