"""What the command line answers to a word that it does not know."""

import subprocess
import sys

import pytest

from deploy.commands import main, typos

OPTIONS, TASKS = ["--hosts", "--script", "--json", "--run"], ["deploy", "down", "status", "up"]


@pytest.mark.parametrize(
    ("typed", "word", "task", "hint"),
    [
        ("deploy --host a", "--host", "deploy", "did you mean --hosts?"),
        ("deploy --host=a", "--host=a", "deploy", "did you mean --hosts=a? muster deploy --hosts=a"),
        ("deploy --host a -e A=secret t.py", "--host", "deploy", "did you mean --hosts? muster deploy --help"),
        ("deploy --lr 3 train.py", "--lr", "deploy", "muster deploy train.py --lr 3"),
        ("deploy --file train.py --x", "--file", "deploy", "muster deploy train.py --x"),
        ("deploy --fp16 torchrun train.py", "--fp16", "deploy", "muster deploy torchrun train.py --fp16"),
        ("deploy --name first -- train.py", "--name", "deploy", "did you mean --run?"),
        ("deploy --hotss a train.py", "--hotss", "deploy", "did you mean --hosts? muster deploy --hosts a train.py"),
        ("deploy --hostfile gpus -n 2 a.py", "--hostfile", "deploy", '--hosts "$(paste -sd, gpus)" -n 2 a.py'),
        ("status --zzz", "--zzz", "status", "muster status --help"),
        ("status --ru r1", "--ru", "status", "did you mean --run? muster status --run r1"),
        ("status --stop r1", "--stop", "status", "muster status --help"),
    ],
)
def test_a_typo_gets_the_option_that_the_user_may_have_meant(typed, word, task, hint):
    refused = typos.refusal(word, task, OPTIONS, TASKS, typed.split())
    assert refused.code == 2
    assert hint in refused.hint
    assert "{" not in refused.message


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("deply --hosts a", "muster deploy --hosts a"), ("qqq", "muster --help"), ("ps -a", "muster status --help")],
)
def test_an_unknown_command_gets_one_that_works(typed, hint, muster):
    code, _, error = muster(typed)
    assert code == 2
    assert error.partition("hint: ")[2].strip() == hint


@pytest.fixture
def muster(monkeypatch, capsys):
    """Returns muster(words): its exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces the hook

    def run(typed):
        monkeypatch.setattr(sys, "argv", ["muster", *typed.split()])
        try:
            main.main()
        except SystemExit as end:
            return (end.code or 0, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return run


def test_muster_hints_at_the_right_name(muster):
    code, _, error = muster("--help statsu")
    assert code == 2
    assert "status" in error.partition("hint:")[2]


@pytest.mark.long
def test_fab_hints_at_the_right_name():
    line = [sys.executable, "-m", "fabric", "status", "--host", "a"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--hosts" in done.stderr.partition("hint:")[2]


def test_the_help_of_muster_begins_with_its_commands(muster):
    code, shown, _ = muster("--help")
    assert code == 0
    assert "deploy" in shown
    assert "sudo" not in shown


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("compare", "compare: RUN is missing"),
        ("logs --run", "--run: its value is missing"),
        ("logs --run --follow", "--run: its value is missing"),
        ("runs --json=1", "--json: it takes no value"),
    ],
)
def test_a_missing_value_is_reported_in_our_words(typed, words, muster):
    code, _, error = muster(typed)
    assert code == 2
    assert error.startswith(f"error: {words}\nhint: muster {typed.split()[0]} --help")
