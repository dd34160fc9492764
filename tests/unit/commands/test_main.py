"""Words of the `muster` command, as a user types them."""

import importlib
import shlex
import sys

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError


def test_what_stands_after_the_dashes_is_the_script_whatever_it_looks_like():
    script = ["train.py", "--lr", "3e-4", "--name", "it's two words", "--", "--hosts"]
    words = main.with_script(["deploy", "--hosts", "a,b", "--", *script])
    assert words[:3] == ["deploy", "--hosts", "a,b"]
    assert len(words) == 4
    assert shlex.split(words[3].removeprefix("--script=")) == script


def test_words_without_dashes_stay_as_they_are():
    assert main.with_script(["deploy", "--hosts", "a", "--script", "x.py -v"]) == [
        "deploy",
        "--hosts",
        "a",
        "--script",
        "x.py -v",
    ]


@pytest.mark.parametrize(
    "words", ["status --hosts a -- train.py", "-- train.py", "deploy --hosts a --", "deploy --script x.py -- train.py"]
)
def test_a_script_where_none_makes_sense_is_refused(words):
    with pytest.raises(UsageError):
        main.with_script(words.split())


def test_a_mistyped_command_before_a_script_gets_the_nearest_one():
    with pytest.raises(UsageError, match="no command depoly") as refused:
        main.with_script(["depoly", "--hosts", "a", "--", "train.py", "--lr", "3e-4"])
    assert refused.value.hint.endswith("deploy --hosts a -- train.py --lr 3e-4")


def test_fab_has_all_commands_where_none_is_typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fab", "--list"])
    fabfile = importlib.reload(importlib.import_module("fabfile"))
    assert set(fabfile.namespace.task_names) == {each.name for each in main.every_command()}


def test_each_command_is_found_by_its_name_alone():
    everything = {each.name for each in main.every_command()}
    assert {"deploy", "up", "status", "fetch"} <= everything
    assert everything == set(main._HOMES), "a command that is listed is unknown where it is typed"


def test_a_script_behind_run_is_refused_without_a_secret_that_it_has(monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "sesame-4711")
    assert main.run(["deploy", "--hosts", "a", "--run", "train.py --token sesame-4711"]) == 2
    output = capsys.readouterr()
    assert "--secret HF_TOKEN" in output.err
    assert "sesame-4711" not in output.out + output.err


@pytest.mark.parametrize(
    "words",
    [
        ["\x1b]0;owned\x07"],
        ["--\x1b[2J"],
        ["deploy", "--\x1b[2J=x"],
        ["deploy", "--hosts", "a", "x\u202ey"],
        ["compare", "a", "b", "\x1b[2J"],
        ["status", "--hosts", "a", "\udcff\udcfe"],
        ["explain", "--\udcff"],
        ["--help", "\x1b[2J"],
        ["deply", "--", "\x1b[2J"],
    ],
)
def test_a_word_that_nobody_knows_is_refused_and_obeyed_by_no_terminal(words, capsys):
    assert main.run(words) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert not [letter for letter in shown.out + shown.err if letter != "\n" and not letter.isprintable()]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["deploy", "--hosts", "--json"], "--hosts"),
        (["deploy", "--hosts"], "--hosts"),
        (["deploy", "--json=yes"], "--json"),
        (["compare", "a"], "SECOND"),
        (["port"], "NUMBER"),
        (["explain"], "WHAT"),
        (["exec", "--hosts", "a", "ls"], "ls"),
    ],
)
def test_wrong_usage_names_the_word_and_the_help_of_its_command(words, why, capsys):
    assert main.run(words) == 2
    error, _, hint = capsys.readouterr().err.partition("hint: ")
    assert why in error
    assert words[0] in hint


def test_an_option_that_stands_in_a_value_is_the_value(capsys):
    """`--args=--json` is about the trainer: only a word by itself is an option in the place of a value."""
    assert main.run(["deploy", "--hosts", "no host", "--args=--json"]) == 2
    assert "'no host' is not a host" in capsys.readouterr().err


def test_what_stands_behind_the_dashes_comes_to_the_command_as_it_was_typed(monkeypatch):
    within = importlib.import_module("deploy.commands.within")
    seen = []
    monkeypatch.setattr(within.execute, "work", lambda options, console, words: seen.append(words) or 7)
    assert main.run(["exec", "--hosts", "a", "--", "sh", "-c", "a b", "--", "--hosts"]) == 7
    assert main.run(["exec", "--hosts", "a"]) == 7
    assert seen == [["sh", "-c", "a b", "--", "--hosts"], []]
