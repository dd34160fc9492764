"""What the command line answers to a word that it does not know."""

import shlex
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


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("deply -e A=s3cret -H a t.py -e B=2", "muster deploy -e A=... -H a t.py -e B=2"),
        ("deploy --host a -e A=s3cret t.py", "did you mean --hosts? muster deploy --hosts a -e A=... t.py"),
        (
            "deploy --hosts a --sekret A=s3cret t.py",
            "did you mean --secret? muster deploy --hosts a --secret A=... t.py",
        ),
        ("deply -e A=a.py -e B=s3cret -H a t.py", "muster deploy -e A=... -e B=... -H a t.py"),
        ("deply --requirements t.py -e B=s3cret t.py", "muster deploy --requirements t.py -e B=... t.py"),
        ("deploy -eA=s3cret -H gpu-1 gpu-2 t.py", "muster deploy -eA=... -H gpu-1,gpu-2 t.py"),
        ("deploy -H gpu-1 -H gpu-2 gpu-3 t.py", "muster deploy -H gpu-1 -H gpu-2,gpu-3 t.py"),
        ("deploy --env=A=s3cret gpu-1 gpu-2 t.py", "muster deploy --env=A=... --hosts gpu-1,gpu-2 t.py"),
        (
            "up --on-end 'curl a b' -e A=s3cret python -c 1",
            "muster up --on-end 'curl a b' -e A=... -- train.py --lr 3e-4",
        ),
    ],
)
def test_a_hint_repeats_the_command_without_the_values_of_variables(typed, hint, muster):
    code, _, error = muster(typed)
    assert code == 2
    assert error.partition("hint: ")[2].strip() == hint
    assert "s3cret" not in error


@pytest.mark.parametrize(
    ("typed", "hosts"),
    [
        ("status -H gpu-1 gpu-2", "gpu-1,gpu-2"),
        ("stop -H 127.0.0.1:1 127.0.0.2:2", "127.0.0.1:1,127.0.0.2:2"),
        ("push --hosts=me@a, alice", "me@a,alice"),
        ("exec -H gpu-1 gpu-2 nvidia-smi", "gpu-1,gpu-2"),
    ],
)
def test_hosts_after_the_option_are_refused_with_the_list(typed, hosts, muster):
    """A shell makes two words of `-H gpu-{1,2}`: the second one was taken for a run, or for a program."""
    code, _, error = muster(typed)
    assert code == 2
    assert error.partition("hint: ")[2].strip() == f"--hosts {hosts}"


@pytest.mark.parametrize("typed", ["stop -H gpu-1 2026-11-30-train", "exec -H a w", "port -H a 6006"])
def test_a_run_a_program_or_a_port_after_hosts_is_no_host(typed):
    name, *words = typed.split()
    with main.TREE.make_context("muster", [name, *words], obj=[name, *words]):
        command = main.TREE.get_command(None, name)
        assert command.make_context(name, list(words)).params["hosts"] == words[1]


@pytest.fixture
def muster(monkeypatch, capsys):
    """Returns muster(words): its exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces the hook

    def run(typed):
        monkeypatch.setattr(sys, "argv", ["muster", *shlex.split(typed)])
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
