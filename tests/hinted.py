"""Checks each hint that a test produces: a `muster` line in it must name an existing command with existing options.

`tests/dist/test_hints.py` types whole lines and runs them. This module reads each hint of an error, and each fix of a
finding, that any other test makes, including those that need a host or a full disk and cannot be typed.
"""

import re
from collections.abc import Iterator
from functools import cache

from deploy.causes.finding import Finding
from deploy.core.errors import DeployError

# A command ends where the sentence continues: at a comma at the end of a word, a bracket or a semicolon.
_COMMAND = re.compile(
    r"(?:^|(?<=[\s`(]))(?:muster|fab) ([a-z]+)((?: +(?:'[^']*'|\"[^\"]*\"|(?:[^\s`,;():]|[,:](?=\S))+))*)"
)
# Where the user's own program begins: the words after it are not ours.
_PROGRAM = re.compile(r" (?:--|[\w./-]+\.(?:py|sh)|torchrun|python|accelerate|deepspeed|bash)(?= |$)")
_OPTION = re.compile(r"(?<=\s)--[a-z][\w-]*")
_met: set[tuple[str, str]] = set()


def collect() -> None:
    """From now on, keep the hint of each error and the fix of each finding."""
    make, check = DeployError.__init__, Finding.__post_init__

    def made(self: DeployError, *words: object, **named: object) -> None:
        make(self, *words, **named)  # type: ignore[arg-type]
        _met.add((self.message, self.hint))

    def found(self: Finding) -> None:
        check(self)
        _met.add((f"{self.cause}: {self.text}", self.fix))

    DeployError.__init__ = made  # type: ignore[method-assign, assignment]
    Finding.__post_init__ = found  # type: ignore[method-assign]


def wrong_hints() -> list[str]:
    """The faults in the hints since the last call."""
    met = sorted(_met)
    _met.clear()
    return [f"{wrong}\n  error: {message}\n  hint: {hint}" for message, hint in met for wrong in _faults_of(hint)]


def _faults_of(hint: str) -> Iterator[str]:
    for command, words in _COMMAND.findall(hint):
        known = _options_of(command)
        if known is None:
            yield f"no command {command}"
        else:
            ours = _PROGRAM.split(words)[0]
            yield from (f"{command} has no {each}" for each in _OPTION.findall(ours) if each not in known)


@cache
def _options_of(command: str) -> frozenset[str] | None:
    """The options of a command; None if there is no such command."""
    from deploy.commands.main import TREE

    found = TREE.get_command(None, command)
    return None if found is None else frozenset(name for each in found.params for name in each.opts) | {"--help"}
