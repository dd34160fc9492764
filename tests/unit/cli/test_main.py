"""Words of the `muster` command, as a user types them."""

import importlib
import shlex
import sys

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from deploy.cli import deploy, main, renamed
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
    assert fabfile.namespace.task_names == main.commands().task_names


def test_each_command_is_found_by_its_name_alone():
    everything = main.commands().task_names
    assert {"deploy", "up", "status", "fetch"} <= set(everything)
    for name in everything:
        assert name in main.commands(["--json", name, "--hosts", "a"]).task_names
    assert not set(everything) - set(main._MODULES), "a command that --list shows is unknown where it is typed"


OLD = [
    (["--run", "train.py --lr 3e-4"], "--script 'train.py --lr 3e-4'"),
    (["--run=train.py", "--name=first"], "--script=train.py --run=first"),
    (["--run", "-m pkg.train", "--name", "first"], "--script '-m pkg.train' --run first"),
    (["--name", "first"], "--run first"),
    (["--script", "train.py", "--name", "first"], "--script train.py --run first"),
    (["--name", "first", "--", "train.py", "--name", "x"], "--run first -- train.py --name x"),
]


@pytest.mark.parametrize(("words", "now"), OLD)
def test_options_of_before_are_refused_with_the_command_of_today(words, now):
    with pytest.raises(UsageError) as refused:
        renamed.refuse_names(["deploy", "--hosts", "a", *words], **_options(words))
    assert refused.value.hint == f"fab deploy --hosts a {now}"


@pytest.mark.parametrize(
    ("words", "ground", "backend", "now"),
    [
        ("up --ground=docker --workers 1", "docker", "", "up --backend=docker --workers 1"),
        ("preflight --ground docker --backend gloo", "docker", "gloo", "preflight --backend docker --collectives gloo"),
        ("preflight --hosts a,b --backend nccl", "", "nccl", "preflight --hosts a,b --collectives nccl"),
    ],
)
def test_the_ground_of_before_is_refused_with_the_backend_of_today(words, ground, backend, now):
    with pytest.raises(UsageError) as refused:
        renamed.refuse_ground(words.split(), ground, backend)
    assert refused.value.hint == f"fab {now}"


@pytest.mark.parametrize("backend", ["", "auto", "docker", "processes"])
def test_a_backend_of_today_is_taken(backend):
    renamed.refuse_ground(["preflight", "--backend", backend], "", backend)


@pytest.mark.parametrize("words", [[], ["--run", "first.try_2"], ["--run", "first", "--script", "train.py"]])
def test_options_of_today_are_taken(words):
    renamed.refuse_names(["deploy", *words], **_options(words))


def test_the_refusal_of_an_old_option_does_not_repeat_a_secret(monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "sesame-4711")
    with pytest.raises(Exit) as ended:
        deploy.deploy(Context(), hosts="a", run="train.py --token sesame-4711")
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert "--secret HF_TOKEN" in output.err
    assert "sesame-4711" not in output.out + output.err


def _options(words):
    """The values of --run, --script and --name among the words of a command."""
    options = iter(words[: words.index("--")] if "--" in words else words)
    given = {"run": "", "script": "", "name": ""}
    for option in options:
        name, equals, value = option.partition("=")
        given[name.removeprefix("--")] = value if equals else next(options)
    return given
