"""Makes docs/reference/exit-codes.md from the codes of commands, the verdicts of runs and the closed list of causes."""

from __future__ import annotations

import inspect
import re

from deploy.causes import end_causes
from deploy.commands.command import MEANINGS
from deploy.core import errors
from deploy.run.outcome import CODES

HEAD = """\
# Exit codes, and how a run can end

Made from `deploy/core/errors.py`, the help of each command and `deploy/causes/end_causes.py`
by `python -m tests.reference`; do not edit by hand.

Every command ends with one of these codes; [commands.md](commands.md) has what each means for a command. `make` ends
with 2 where a command failed; the command's own code is in its last line (`Error 75`).

| code | meaning |
|---|---|
"""
_END = re.compile(r'^    [A-Z_]+ = "([a-z-]+)"(?:  # (.*))?$')
_SAID = {
    errors.REFUSED: "preflight refused: training would not start, and nothing has started",
    errors.DETACHED: "Ctrl-C left the command, and the run on its hosts continues",
}


def exit_codes_page() -> str:
    """The page: the codes of commands, the verdicts of a run, and the causes of its end."""
    rows = [f"| `{code}` | {text} |" for code, text in sorted({**MEANINGS, **_SAID}.items())]
    verdicts = [f"| `{verdict}` | `{code}` |" for verdict, code in CODES.items()]
    parts = [HEAD + "\n".join(rows), "", "## The verdict of a run", "", _VERDICT, "", "| verdict | code |", "|---|---|"]
    parts += [*verdicts, "", "## The cause of an end", "", _CAUSE, "", "| cause | what the culprit did | more |"]
    return "\n".join([*parts, "|---|---|---|", *_causes(), ""])


_VERDICT = "`outcome.json` has it, and the command that followed the run to its end exits with its code."
_CAUSE = (
    "`cause` in `outcome.json` is one of these, and the group of what `muster explain` names. "
    "A slug never changes its meaning."
)


def _causes() -> list[str]:
    rows, comment = [], ""
    for line in inspect.getsource(end_causes.Cause).splitlines():
        if found := _END.match(line):
            entry = end_causes.Cause(found[1]).entry
            more = f"[{entry}](causes.md#{entry})" if entry else ""
            rows.append(f"| `{found[1]}` | {found[2] or comment} | {more} |")
        comment = line.strip().removeprefix("# ") if line.strip().startswith("# ") else ""
    return rows
