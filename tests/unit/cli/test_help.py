"""What --help of every command shows: an example that can be typed, the defaults, and what the exit codes mean."""

import inspect
import re
import shlex
import sys

import pytest
from invoke.program import Program

from deploy.cli import main
from deploy.cli.command import MEANINGS

TASKS = [pytest.param(task, id=name) for name, task in main.commands().tasks.items()]


def options_of(task):
    return {argument.name.replace("_", "-"): argument for argument in task.get_arguments()}


def examples_of(task):
    return inspect.getdoc(task).partition("Example:\n")[2].partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("task", TASKS)
def test_the_example_can_be_typed(task):
    """Its options are options of the command."""
    examples = examples_of(task)
    assert examples
    for example in examples:
        words = shlex.split(example.rpartition("| ")[2].partition("2>&1")[0].partition(" -- ")[0])
        assert words[:2] == ["fab", task.name]
        named = {word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")}
        assert named <= set(options_of(task))


@pytest.mark.parametrize("task", TASKS)
def test_every_exit_code_that_a_command_can_end_with_has_a_meaning(task):
    lines = inspect.getdoc(task).partition("Exit codes:\n")[2].splitlines()
    codes = {int(words[0]): words[1:] for line in lines if (words := line.split())[0].isdigit()}
    assert set(codes) >= set(MEANINGS)
    assert all(codes.values())


@pytest.mark.parametrize("task", TASKS)
def test_every_option_that_takes_a_value_shows_its_default(task):
    shown = list(options_of(task).values())
    taking = [argument for argument in shown if argument.kind is not bool and not argument.positional]
    assert [each.name for each in taking if not re.search(r"\(default: |\(required\)", each.help)] == []
    assert all(argument.help for argument in shown)


@pytest.mark.parametrize("task", TASKS)
def test_what_stands_above_the_options_fits_a_terminal_of_80_columns(task):
    assert max(len(line) for line in inspect.getdoc(task).splitlines()) <= 77


def test_options_have_no_letters_that_a_new_option_would_move():
    assert [name for _, task in main.commands().tasks.items() for name in options_of(task) if len(name) == 1] == []


@pytest.mark.parametrize("name", ["muster", "fab"])
def test_the_help_breaks_no_line_at_a_hyphen(name, monkeypatch, capsys):
    """A reader copies `--sbatch="--partition=a100` from the screen: it must not become `-- partition`."""
    program = main._Program(namespace=main.commands(["deploy"]), name=name, binary=name)
    if name == "fab":
        program = Program(namespace=main.commands(["deploy"]), name=name, binary=name)
        main.refusing(program)
    monkeypatch.setattr("deploy.cli.main.pty_size", lambda: (80, 24))
    monkeypatch.setattr("sys.argv", [name, "--help", "deploy"])
    program.run(sys.argv, exit=False)
    shown = capsys.readouterr().out
    assert '"--partition=a100 --cpus-per-task=64"' in shown
    assert [line for line in shown.splitlines() if line.endswith("-")] == []
