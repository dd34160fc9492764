"""Type the commands of a hint exactly as written, in the folder of the test case.

A command is in backquotes, or begins with `muster` or another program. A fragment of one (`--env-file x`, `--
train.py`) applies to the line that was typed: it replaces the same option there, and `leave out --x` removes that
option.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

HOME = Path(__file__).resolve().parents[1]
# No host has this name, and no engine answers there: a command that fails at this point was understood.
NOWHERE, NO_ENGINE = "nowhere.invalid", "unix:///nowhere/docker.sock"
_OUTSIDE = ("does not resolve", "no Docker engine answers", "no run that you started is in")
_LONGEST_S = 60
_PROGRAMS = "muster|export|printf|echo|sed|ls|pip|docker|ssh|sudo|touch|chmod"
_BEGINS = re.compile(rf"(?:^|(?<=[\s`(]))(?:(?:[A-Z_]+=\S* )*(?:{_PROGRAMS}) |leave out (?=--)|--\w|-- )")
_ENDS = re.compile(r"[`?]|: | \(|,? (?:lists|shows|prints|names|gives|stops|is the default|in this shell)\b|, and ")
_ALTERNATIVES = re.compile(r"(?:;|,)? or (?=.)|; (?!then: )")
# Records the words and variables of the last `muster` call in a shell line.
_CAUGHT = 'muster() { printf "%s\\0" "$@" >"$W/words"; env -0 >"$W/variables"; }; set -e; '


@dataclass(frozen=True)
class Said:
    """The result of a command."""

    code: int
    text: str

    @property
    def error(self) -> str:
        """The line of its error message; empty if it has none."""
        return next((line for line in self.text.splitlines() if line.startswith("error: ")), "")

    @property
    def hint(self) -> str:
        """Its hint; empty if it has none."""
        return "\n".join(re.findall(r"^hint: (.*)", self.text, re.MULTILINE))

    @property
    def is_read(self) -> bool:
        """Whether the command succeeded, or was understood and failed only outside (no host, no engine)."""
        return self.code == 0 or any(words in self.text for words in _OUTSIDE)


class Typist:
    """Types `muster` commands as if Muster were installed: one process loads this checkout's code, a fork runs each."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", "from tests import typed; typed.serve()"],
            cwd="/", env={**os.environ, "PYTHONPATH": str(HOME)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, line: str, folder: Path) -> Said:
        """Run a shell line in the folder; only the last of its `muster` commands is run."""
        with tempfile.TemporaryDirectory() as name:
            ran = subprocess.run(
                ["bash", "-c", _CAUGHT + line], cwd=folder, env={**os.environ, "W": name},
                capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            )  # fmt: skip
            if ran.returncode or not (caught := Path(name, "words")).exists():
                return Said(ran.returncode, ran.stdout + ran.stderr)
            words = caught.read_text().split("\0")[:-1]
            pairs = Path(name, "variables").read_text().split("\0")[:-1]
        assert self._server.stdin
        assert self._server.stdout
        variables = dict(pair.partition("=")[::2] for pair in pairs)
        print(json.dumps([str(folder), words, variables]), file=self._server.stdin, flush=True)
        return Said(*json.loads(self._server.stdout.readline()))

    def follow(self, typed: str, answer: Said, folder: Path) -> dict[str, Said]:
        """Run each command of the answer's hint, and after a foreign one `typed` again; returns results by command."""
        lines = commands(answer, shlex.split(typed)[1:])
        return {line: self(line if "muster " in line else f"{line}; {typed}", folder) for line in lines}

    def close(self) -> None:
        """End the process that loaded the code."""
        self._server.communicate()


def serve() -> None:
    """Run each command from standard input in a fork."""
    sys.argv = ["muster", "--"]  # a script comes after `--`: from here on, hints name it this way
    from deploy.commands import main

    main.every_command()
    with tempfile.NamedTemporaryFile() as settings:
        for line in sys.stdin:
            folder, words, variables = json.loads(line)
            os.environ.clear()
            os.environ |= {**variables, "DOCKER_HOST": NO_ENGINE, "MUSTER_SSH_CONFIG": settings.name}
            with tempfile.TemporaryFile() as out:
                if not (pid := os.fork()):
                    _do(words, folder, out.fileno())
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                out.seek(0)
                print(json.dumps([code, out.read().decode()]), flush=True)


def _do(words: list[str], folder: str, out: int) -> None:
    from deploy.commands import main

    code = 99
    try:
        signal.alarm(_LONGEST_S)
        os.chdir(folder)
        for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, out)):
            os.dup2(file, stream)
        sys.argv = ["muster", *words]
        _look_again()
        main.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _look_again() -> None:
    """Refresh what modules read from the command line and the current folder when they were loaded."""
    from deploy.core import program
    from deploy.run.files import folders

    folders.RUNS, loaded = Path.cwd() / "runs", program.COMMAND
    command = next((word for word in sys.argv[1:] if word in ("up", "deploy", "ray", "agent", "export")), "deploy")
    for name, module in list(sys.modules.items()):
        if name.startswith("deploy.") and getattr(module, "COMMAND", None) == loaded:
            module.COMMAND = command  # type: ignore[attr-defined]


def commands(answer: Said, typed: list[str]) -> list[str]:
    """The commands of a hint, as shell lines."""
    found = []
    for part in _ALTERNATIVES.split(answer.hint):
        steps = [line for step in part.split("; then: ") if (line := _line(step, answer, typed))]
        found += ["; ".join(steps)] if steps else []
    return found


def _line(part: str, answer: Said, typed: list[str]) -> str:
    if whole := re.search(r"did you mean `([^`]+)`", part):
        return whole[1]
    if meant := re.search(r"did you mean (?:-m |-- )?([^?=]+)[^?]*\?", part):
        wrong = re.search(r"no option (--[\w-]+)", answer.error) or re.search(
            r"error: (?:-m )?([\w./-]+)", answer.error
        )
        assert wrong
        return shlex.join(["muster", *(word.replace(wrong[1], meant[1]) for word in typed)])
    if "leave it out" in part and (wrong := re.search(r"--[\w-]+", answer.error)):
        return shlex.join(["muster", *_without(typed, wrong[0])])
    if not (begin := _BEGINS.search(part)):
        return ""
    text = part[begin.start() :]
    if text.startswith("leave out"):
        return shlex.join(["muster", *_without(typed, text.split()[2].rstrip(",:;"))])
    end = None if text.startswith(("printf", "sed", "echo")) else _ENDS.search(text)
    text = text[: end.start()] if end else text
    if text.startswith("--"):
        words = [re.sub(r"\bFILE$", "key.txt", word) for word in shlex.split(text)]
        return shlex.join(["muster", *_with(typed, words)])
    hosts = typed[typed.index("--hosts") + 1] if "--hosts" in typed else NOWHERE
    text = re.sub(r"--hosts (?:\.\.\.|a,b)", f"--hosts {hosts}", text)
    return shlex.join(["muster", *_with(typed, shlex.split(text)[3:])]) if " ... " in text else text


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a line into the words of the command itself, its name first, and those of the program after it."""
    from deploy.commands.main import TREE

    command = TREE.get_command(None, words[0])
    assert command, words
    context = command.context_class(command, **command.context_settings)
    own, program = command.split(context, words[1:])
    return [words[0], *(own[:-1] if own[-1:] == ["--"] else own)], program


def _parts(typed: list[str]) -> tuple[list[str], list[str]]:
    if "--" in typed or typed[0].startswith("-"):
        at = typed.index("--") if "--" in typed else len(typed)
        return typed[:at], typed[at:]
    try:
        own, program = split(typed)
    except click.UsageError:
        return typed, []
    return own, ["--", *program] if program else []


def _without(typed: list[str], option: str) -> list[str]:
    words, at = list(typed), 0
    while at < len(words):
        if words[at].partition("=")[0] == option:
            takes = "=" not in words[at] and words[at + 1 : at + 2] and not words[at + 1].startswith("--")
            del words[at : at + 1 + bool(takes)]
        else:
            at += 1
    return words


def _with(typed: list[str], piece: list[str]) -> list[str]:
    """The typed words, with the options and the script of the fragment in place of their own."""
    (options, script), (head, own_script) = _parts(piece), _parts(typed)
    for word in options:
        head = _without(head, word.partition("=")[0]) if word.startswith("--") else head
    return [*head, *options, *(script or own_script)]
