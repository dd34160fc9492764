"""The reference pages for options and for cluster.toml's keys, from the table of options (deploy/job/options.py)."""

from __future__ import annotations

import re

from deploy.job.options import FLAG, FREE, KEYS, ROWS, Job, OptionRow, Rule, flag_of
from deploy.job.together import condition

HEAD = """\
# Options

Made from `deploy/job/options.py` by `python -m tests.reference`; do not edit by hand. `muster COMMAND --help` shows
those of a command, with an example and its exit codes.

- **again**: a resume repeats the option, so you need not type it again.
- **key**: what it is called in the `[job]` table of a cluster.toml ([cluster-file.md](cluster-file.md)).
- **Python**: its name in `Cluster.deploy(...)` ([python-api.md](python-api.md)), where that is not the flag's with `_`
  for `-`.
- **engine**: hosts without a container engine refuse it.
- **cannot be used with**, **cannot be used without**: the options that it excludes, and those that it needs; why, and
  what to type instead.
"""
_DEFAULT = re.compile(r" ?\(default: (.*)\)([^()]*)$")


def options_page() -> str:
    """The page, with a section for each option in alphabetical order."""
    return "\n".join([HEAD, *(section(name, ROWS[name]) for name in sorted(ROWS) if ROWS[name].helps)])


def section(name: str, row: OptionRow) -> str:
    """The section about one option, from the table."""
    meanings: dict[str, list[str]] = {}
    for command, text in row.helps.items():
        meanings.setdefault(text, []).append(f"`{command}`")
    lines = [f"- {', '.join(commands)}: {text}" for text, commands in meanings.items()]
    about = {
        "short": f"`-{row.letter}`" if row.letter else "",
        "again": "yes" if row.again else "",
        "key": f"`{row.key.name}`" if row.key else "",
        "Python": f"`{row.python}`" if row.python else "",
        "engine": "yes" if row.engine else "",
    }
    facts = "; ".join(f"{word}: {text}" for word, text in about.items() if text)
    lines += [f"- {facts}"] * bool(facts) + [rule_line(name, rule) for rule in row.rules]
    return "\n".join([f"## `{flag_of(name)}`", *lines, ""])


def rule_line(name: str, rule: Rule) -> str:
    """A line that names the options which this one excludes or needs."""
    what = condition(name, rule.terms, vars(FLAG)).removeprefix(f"{flag_of(name)}: ")
    where = f" ({', '.join(f'`{each}`' for each in rule.on.split() if each in ROWS[name].helps)})" if rule.on else ""
    return f"- {what}{where}: {rule.why}{f'; {rule.hint}' if rule.hint else ''}"


def keys_table() -> str:
    """The table of the [job] keys: what each means, how it is written, and whether the user is asked about it."""
    rows = ["| key | option | meaning | written as | default | asked for |", "|---|---|---|---|---|---|"]
    for name in sorted(KEYS, key=lambda name: KEYS[name].name):
        key, row = KEYS[name], ROWS[name]
        meaning, default = split(row.help)
        value = getattr(Job(), key.name)
        if isinstance(value, bool):
            meaning, default = f"`{str(not value).lower()}`: {meaning}", f"`{str(value).lower()}`"
        written = f"a table of variables; each is {key.wanted}" if key.named else key.wanted
        if isinstance(value, tuple):
            written = f"{'one or ' * key.alone}a list; each is {key.wanted}"
        flag = f"`{flag_of(name)}`" if row.helps else ""
        asked = "" if key.asks == FREE else "yes"
        rows.append(f"| {' | '.join([f'`{key.name}`', flag, meaning, written, default, asked])} |".replace("  ", " "))
    return "\n".join(rows)


def split(help: str) -> tuple[str, str]:
    """Split a help text into its meaning and its default."""
    found = _DEFAULT.search(help)
    meaning, default = (help[: found.start()] + found[2], found[1]) if found else (help, "")
    return re.split(r"; (?:several|repeatable)", meaning)[0], default
