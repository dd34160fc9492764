"""The --help of every command has an example that can be typed, the defaults, and the meaning of the exit codes."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest

from deploy.commands import main
from deploy.commands.command import MEANINGS
from deploy.core.errors import STOPPED
from deploy.job.options import SECTIONS, Options
from tests.typed import split

HOME = Path(__file__).resolve().parents[3]
COMMANDS = [pytest.param(each, id=each.name) for each in main.every_command()]


def flags_of(command):
    return {flag for each in command.params for flag in each.opts}


def examples_of(command):
    return command.help.partition("Example:\n")[2].partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_can_be_typed(command):
    """The example uses only options of the command."""
    examples = examples_of(command)
    assert examples
    for example in examples:
        words = shlex.split(example.rpartition("| ")[2].partition("2>&1")[0].partition(" > ")[0])
        assert words[:2] == ["muster", command.name]
        words = split(words[1:])[0]
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags_of(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_exit_code_that_a_command_can_end_with_has_a_meaning(command):
    lines = command.help.partition("Exit codes:\n")[2].splitlines()
    codes = {int(words[0]): words[1:] for line in lines if (words := line.split())[0].isdigit()}
    assert set(codes) >= set(MEANINGS)
    assert all(codes.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_no_two_exit_codes_have_the_same_meaning(command):
    """`muster board` had listed 0 and 75 for Ctrl-C, without a difference."""
    ends = command.help.partition("Exit codes:\n")[2]
    ctrl_c = re.findall(r"^ *\d+  (.*Ctrl-C.*)", ends, re.MULTILINE)
    assert MEANINGS[STOPPED] not in ctrl_c or len(ctrl_c) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_takes_a_value_shows_its_default(command):
    taking = [each for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    assert [each.name for each in taking if not re.search(r"\(default: |\(required\)", each.help)] == []
    assert all(each.help for each in command.params)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_text_above_the_options_fits_a_terminal_of_80_columns(command):
    assert max(len(line) for line in command.help.splitlines()) <= 77


def test_a_short_option_means_the_same_in_every_command():
    pairs = {tuple(each.opts) for command in COMMANDS for each in command.values[0].params if each.opts[1:]}
    letters = [letter for _, letter in pairs]
    assert ("--hosts", "-H") in pairs
    assert len(letters) == len({*letters}), pairs


@pytest.mark.long
@pytest.mark.parametrize("words", [("deploy", "--help-all"), ("--help", "deploy"), ("-h", "deploy")])
@pytest.mark.parametrize("name", ["muster", "fab"])
def test_the_help_breaks_no_line_at_a_hyphen(name, words, capsys, monkeypatch):
    """Readers copy `--sbatch="--partition=a100` from the screen: a line break must not turn it into `-- partition`."""
    monkeypatch.setenv("COLUMNS", "80")
    if name == "muster":
        assert main.run(words) == 0
        shown = capsys.readouterr().out
    else:
        line = [Path(sys.executable).with_name("fab"), *words]
        shown = subprocess.run(line, cwd=HOME, capture_output=True, text=True, check=True, timeout=60).stdout
    assert ('"--partition=a100 --cpus-per-task=64"' in " ".join(shown.split())) == ("--help-all" in words)
    assert [line for line in shown.splitlines() if line.endswith("-")] == []


def flags_shown(words, capsys):
    assert main.run(words) == 0
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_short_help_has_at_most_14_options_and_the_long_help_has_all(command, capsys):
    first = flags_shown([command.name, "--help"], capsys) - {"--help"}
    every = {each.opts[0] for each in command.params if isinstance(each, click.Option)}
    assert len(first) <= 14
    if first != every:
        assert flags_shown([command.name, "--help-all"], capsys) == every


def test_every_option_of_a_long_help_is_in_one_section():
    titled = [name for words in SECTIONS.values() for name in words.replace("|", " ").split()]
    assert len(titled) == len({*titled})
    assert {*titled} <= {each.name for each in fields(Options)}
