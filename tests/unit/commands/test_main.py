"""The command line of `muster`, as users type it."""

import errno
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.commands import main, typos
from deploy.commands.command import code_of
from deploy.core.errors import FAILED, STOPPED, USAGE
from deploy.report.console import Console
from deploy.run.files import folders

REPO = Path(main.__file__).parents[2]


def given(words, monkeypatch):
    """The options and other arguments that a command receives for these words."""
    command, got = main.TREE.get_command(None, words[0]), {}

    def work(options, console, **own):
        got.update({each: value for each, value in vars(options).items() if value}, **own)
        return 0

    monkeypatch.setattr(command, "work", work)
    assert main.run(words) == 0
    return got


@pytest.mark.parametrize("dashes", [["--"], []])
def test_the_words_after_the_options_are_the_program_whatever_they_look_like(dashes, monkeypatch):
    script = ["train.py", "--lr", "3e-4", "--name", "it's two words", "--", "--hosts", "-H", "x"]
    got = given(["deploy", "--hosts", "a,b", *dashes, *script], monkeypatch)
    assert shlex.split(got.pop("script")) == script
    assert got == {"hosts": "a,b"}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("deploy -H a,b -n 2 -g 0,1 -e A=1 -e B=2 -d train.py -d", "hosts=a,b nproc=2 gpus=0,1 script='train.py -d'"),
        ("up torchrun --nproc-per-node 2 train.py", "script='torchrun --nproc-per-node 2 train.py'"),
        ("agent train.py --x", "script='train.py --x'"),
        ("export -N 2 train.py --x", "nodes=2 script='train.py --x'"),
        ("deploy -H a --script 'x.py -v'", "hosts=a script='x.py -v'"),
        ("logs latest -f", "run=latest follow=True"),
        ("logs 2026-11-26-1150-train-93fd", "run=2026-11-26-1150-train-93fd"),
        ("logs mine", "run=mine"),
        ("logs gpu-a,gpu-b --rank 0", "hosts=gpu-a,gpu-b rank=0"),
        ("status gpu-a, gpu-b", "hosts=gpu-a,,gpu-b"),
        ("status -H gpu-a latest", "hosts=gpu-a run=latest"),
        ("stop latest gpu-a gpu-b --now", "run=latest hosts=gpu-a,gpu-b now=True"),
        ("preflight me@gpu-a:2222,gpu-b --quick", "hosts=me@gpu-a:2222,gpu-b quick=True"),
        ("runs gpu-a", "hosts=gpu-a"),
        ("report latest", "run=latest"),
        ("completion zsh", "shell=zsh"),
        ("port 6006 latest", "number=6006 run=latest"),
        ("exec nvidia-smi -L", "words=['nvidia-smi', '-L']"),
        ("exec gpu-a -- ls -la", "hosts=gpu-a words=['ls', '-la']"),
        ("exec latest -r 3 ls -r", "run=latest rank=3 words=['ls', '-r']"),
        ("shell gpu-a -r 3", "hosts=gpu-a rank=3 words=[]"),
        ("shell -- htop -d 1", "words=['htop', '-d', '1']"),
    ],
)
def test_a_bare_word_is_a_run_or_hosts_or_begins_a_program_after_the_options(line, wanted, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "mine").mkdir()
    got = given(shlex.split(line), monkeypatch)
    pairs = [text.partition("=") for text in re.findall(r"\w+=(?:\[[^]]*\]|'[^']*'|\S+)", wanted)]
    assert {name: text.strip("'") for name, _, text in pairs} == {name: str(got[name]) for name, _, _ in pairs}
    assert not {"run", "hosts", "script"} & got.keys() - {name for name, _, _ in pairs}


def test_a_bare_word_that_a_cluster_file_does_not_name_is_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('[[hosts]]\nname = "gpu-a"\n')
    assert given(["logs", "gpu-a"], monkeypatch) == {"hosts": "gpu-a"}
    assert given(["logs", "of-tuesday"], monkeypatch) == {"run": "of-tuesday"}
    assert given(["exec", "gpu-a", "ls"], monkeypatch) == {"hosts": "gpu-a", "words": ["ls"]}
    assert given(["exec", "gpu-b", "ls"], monkeypatch) == {"words": ["gpu-b", "ls"]}


def test_a_run_before_a_program_may_be_the_folder_that_tab_completes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    (tmp_path / "runs/mine").mkdir(parents=True)
    assert given(["exec", "runs/mine/", "nvidia-smi"], monkeypatch) == {"run": "mine", "words": ["nvidia-smi"]}
    assert given(["exec", "./mine", "x"], monkeypatch) == {"words": ["./mine", "x"]}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"hosts = 1", b"[[hosts]]", b"hosts = [[[[", b"x" * (1 << 21)])
def test_an_invalid_cluster_file_names_no_host(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_bytes(content)
    assert typos.hosts_here() == set()
    (tmp_path / "cluster.toml").unlink()
    (tmp_path / "cluster.toml").symlink_to("/etc/passwd")
    assert typos.hosts_here() == set()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("status --hosts a -- train.py", "muster status --help"),
        ("logs train.py", "muster logs --help"),
        ("compare a", "`muster runs` lists them"),
        ("compare 1 2 3 4 5 6 7 8 9", "`muster runs` lists them"),
        ("deploy --script x.py train.py", "leave out --script"),
        ("deploy --hosts a, b train.py", "muster deploy --hosts a,b train.py"),
        ("deploy train.py --lr 3 -H a,b", "muster deploy --hosts a,b train.py --lr 3"),
        ("deploy train.py --hosts=a,b --lr 3", "muster deploy --hosts a,b train.py --lr 3"),
        ("deploy gpu-a,gpu-b train.py --lr 3", "muster deploy --hosts gpu-a,gpu-b train.py --lr 3"),
        ("deploy --detach gpu-a torchrun train.py", "muster deploy --detach --hosts gpu-a torchrun train.py"),
        ("depoly -H a train.py --lr 3e-4", "muster deploy -H a train.py --lr 3e-4"),
        ("depoly --hosts a -- train.py", "muster deploy --hosts a -- train.py"),
    ],
)
def test_a_word_in_the_wrong_place_is_refused_with_the_right_command(line, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run(shlex.split(line)) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"hint: {hint}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("deploy -H a uv run train.py --lr 3", "muster deploy -H a -- train.py --lr 3"),
        ("deploy -H a srun -n 4 train.py", "muster deploy -H a --nproc 4 --style slurm -- train.py (--nproc counts"),
        ("deploy -H a A=1 python train.py", "muster deploy -H a --env A=1 -- python train.py"),
        ("deploy -H a -- 'train.py --lr 1'", "without the quotes: muster deploy -H a -- train.py --lr 1"),
        ("deploy -H a -e KEY=sesame srun train.py", "muster deploy -H a -e KEY=... --style slurm -- train.py"),
        ("deploy -H a -eKEY=sesame srun train.py", "muster deploy -H a -eKEY=... --style slurm -- train.py"),
        ("deploy -H a --env=KEY=sesame srun train.py", "muster deploy -H a --env=KEY=... --style slurm -- train.py"),
        ("up --secret KEY=sesame --env A=1 srun train.py", "muster up --secret KEY=... --env A=... "),
        ("deploy -H a torchx run --script train.py", "muster deploy -H a -- train.py"),
        ("export --nodes 2 poetry run train.py", "muster export --nodes 2 -- train.py"),
    ],
)
def test_an_unsupported_launcher_before_a_script_is_refused_with_the_whole_command(
    line, hint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert main.run(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert f"hint: {hint}" in error
    assert "sesame" not in error


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("stop --run", "--run: its value is empty"),  # an empty value would mean any run
        ("down -H a --run", "--run: its value is empty"),
        ("deploy -H a -e", "--env: its value is empty"),
        ("up --script", "--script: its value is empty"),
    ],
)
def test_an_empty_value_is_refused_and_not_treated_as_missing(line, why, capsys):
    for words in (
        [*line.split(), ""],
        [*line.split(), " "],
        [*line.split()[:-1], f"{line.split()[-1]}=".replace("-e=", "--env=")],
    ):
        assert main.run(words) == USAGE
        assert why in capsys.readouterr().err


def test_a_blank_among_hosts_does_not_mean_all_hosts_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('hosts = ["a", "b"]')
    assert main.run(["down", "--allow-folder", "--hosts", " "]) == USAGE
    assert "error: --hosts: its value is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["down", "a", ""], ["down", " "], ["stop", ""], ["exec", "", "--", "true"], ["report", ""]),
        *(["board", ""], ["explain", " "], ["compare", "", "latest"], ["exec", "", "ls"], ["docs", ""]),
    ],
)
def test_an_empty_word_is_refused_and_not_ignored(words, capsys):
    assert main.run(words) == USAGE
    assert re.search(f"error: {words[0]} ' ?': one argument is empty", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("deploy -H a,b -H c --spare a --spare b train.py", {"hosts": "a,b,c", "spare": "a,b", "script": "train.py"}),
        ("up --rank 0 -r 2 train.py", {"rank": "0,2", "script": "train.py"}),
        ("up -n 2 --nproc 2 train.py", {"nproc": "2", "script": "train.py"}),
        ("deploy --slurm l --sbatch=-p=a --sbatch=-t=9 train.py", "--sbatch"),
        ("logs r --grep a --grep b", "--grep"),
        ("down -H a --run r --run s", "--run"),
        # An alias may have given the first one.
        (
            "deploy -H a --gpus 2 -g 0 --max-hours 2 --max-hours 3 x.py",
            {"hosts": "a", "gpus": "0", "max_hours": "3", "script": "x.py"},
        ),
    ],
)
def test_a_repeated_option_is_joined_or_refused(line, wanted, monkeypatch, capsys):
    if isinstance(wanted, dict):
        assert given(line.split(), monkeypatch) == wanted
    else:
        assert main.run(line.split()) == USAGE
        assert f"{wanted} is given twice" in capsys.readouterr().err


def test_fab_lists_all_commands(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fab", "--list"])
    fabfile = importlib.reload(importlib.import_module("fabfile"))
    assert set(fabfile.namespace.task_names) == {each.name for each in main.every_command()}


def test_each_listed_command_is_found_by_its_name():
    everything = {each.name for each in main.every_command()}
    assert {"deploy", "up", "status", "fetch"} <= everything
    assert everything == set(main._HOMES), "a command that is listed is unknown where it is typed"


def test_a_script_given_to_run_is_refused_without_showing_its_secret(monkeypatch, capsys):
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
        ["logs", "\x1b[2J.py"],
        ["deploy", "\x1b[2J,b", "train.py"],
        ["deploy", "train.py", "--hosts", "\x1b[2J"],
        ["deply", "--", "\x1b[2J"],
    ],
)
def test_an_unknown_word_is_refused_with_its_control_characters_escaped(words, capsys):
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
        (["deploy", "-m=pkg.train", "--hosts", "a"], "deploy has no option -m"),
        (["compare"], "RUN"),
        (["port"], "NUMBER"),
    ],
)
def test_wrong_usage_names_the_word_and_the_help_of_its_command(words, why, capsys):
    assert main.run(words) == 2
    error, _, hint = capsys.readouterr().err.partition("hint: ")
    assert why in error
    assert words[0] in hint


def test_an_option_inside_a_value_is_part_of_the_value(capsys):
    """`--args=--json` is for the trainer: only a separate word is an option where a value is missing."""
    assert main.run(["deploy", "--hosts", "no host", "--args=--json"]) == 2
    assert "'no host' is not a host" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("words", [["status", "-H", "127.0.0.1:1"], ["runs"], ["up", "train.py"]])
def test_a_folder_that_was_removed_is_named(words, tmp_path):
    (tmp_path / "gone").mkdir()
    program = f"import os, sys; sys.path.insert(0, {str(folders.CHECKOUT)!r}); os.rmdir('../gone'); "
    program += "from deploy.commands.main import run; sys.exit(run(sys.argv[1:]))"
    line = [sys.executable, "-P", "-c", program, *words]
    done = subprocess.run(line, cwd=tmp_path / "gone", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:46]) == (2, "error: the folder that you are in was removed\n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/secret/a.log"),
            "error: /secret/a.log: Permission denied",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "error: this machine: Too many open files"),
        (
            OSError(errno.ENOSPC, "No space left on device", "record.json"),
            "error: record.json: No space left on device",
        ),
    ],
)
def test_a_refusal_of_the_system_is_an_error_and_no_traceback(fault, words, capsys):
    def work():
        raise fault

    assert code_of(Console(), work) == FAILED
    assert capsys.readouterr().err.splitlines()[0] == words


def test_a_fault_that_may_be_a_bug_shows_its_traceback():
    with pytest.raises(FileNotFoundError):
        code_of(Console(), lambda: os.open("/nowhere/of/ours", os.O_RDONLY))


@pytest.mark.parametrize("words", [["explain"], ["report"], ["board", "--no-open"], ["up", "--resume"]])
@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 300])
def test_an_impossible_path_is_refused_in_words(words, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run([*words, name]) in (FAILED, USAGE)
    assert name[:10] in capsys.readouterr().err


@pytest.mark.parametrize("words", ["-H a -H me@b:22,c", "--hosts=a,me@b:22 -Hc", "--hosts a,me@b:22,c"])
def test_repeated_hosts_options_are_joined(words, monkeypatch):
    """Otherwise half of the hosts would train, and nobody would notice."""
    assert given(["deploy", *words.split(), "train.py"], monkeypatch)["hosts"] == "a,me@b:22,c"


def test_a_file_of_hosts_is_refused_with_the_command_that_reads_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("gpu-a\ngpu-b\n")
    assert main.run(["status", "-H", "hosts.txt"]) == 2
    assert '--hosts "$(paste -sd, hosts.txt)"' in capsys.readouterr().err


def test_ctrl_c_outside_a_step_names_the_command_that_ended(capsys):
    """After `muster stop`, the word "stopped" would say that the run has ended."""

    def work():
        raise KeyboardInterrupt

    assert code_of(Console(), work) == STOPPED
    assert capsys.readouterr().err.strip() == "interrupted by Ctrl-C"


def test_a_script_in_the_place_of_hosts_is_refused_with_both_in_place(tmp_path, monkeypatch, capsys):
    """`--hosts $HOSTS train.py` with an empty variable."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main.run(["deploy", "-H", "train.py"]) == 2
    error = capsys.readouterr().err
    assert "train.py is a script, not a host" in error
    assert "--hosts gpu-a,gpu-b train.py" in error


@pytest.mark.parametrize("pattern", ["gpu-*", "gpu-[1-4]", "gpu-{1..4}"])
def test_a_pattern_of_hosts_is_refused_with_a_list(pattern, capsys):
    assert main.run(["status", "-H", pattern]) == 2
    assert "a pattern names no host; write each: --hosts gpu-a" in capsys.readouterr().err


def test_words_after_the_dashes_reach_the_command_unchanged(monkeypatch):
    within = importlib.import_module("deploy.commands.within")
    seen = []
    monkeypatch.setattr(within.execute, "work", lambda options, console, words: seen.append(words) or 7)
    assert main.run(["exec", "--hosts", "a", "--", "sh", "-c", "a b", "--", "--hosts"]) == 7
    assert main.run(["exec", "--hosts", "a"]) == 7
    assert seen == [["sh", "-c", "a b", "--", "--hosts"], []]


@pytest.mark.long
@pytest.mark.parametrize(
    ("into", "wanted"),
    [
        (None, "No module named 'nowhere'"),
        ("RuntimeError: Distributed package doesn't have NCCL built in\n", "torch-without-cuda"),
    ],
    ids=["the latest run", "a pipe"],
)
def test_explain_without_arguments_reads_the_latest_run_or_standard_input(tmp_path, into, wanted):
    logs = tmp_path / "runs" / "2026-11-28-2100-train" / "logs"
    logs.mkdir(parents=True)
    logs.joinpath("n0.log").write_text("ModuleNotFoundError: No module named 'nowhere'\n")
    logs.parent.with_name("latest").symlink_to(logs.parent.name)
    stdin = {"input": into} if into else {"stdin": subprocess.DEVNULL}
    line = [sys.executable, "-m", "muster", "explain"]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, **stdin)
    assert wanted in done.stdout, done.stderr


def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_traceback(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", interrupted)
    monkeypatch.setattr(main, "take_no_program_from_here", lambda: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 75
    assert capsys.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("letters", ["ascii", "latin-1"])
def test_a_letter_that_the_terminal_cannot_show_ends_no_command(tmp_path, letters):
    """The letter may come from a script's progress bar or from Muster: earlier, a local run failed with a traceback."""
    (tmp_path / "a.log").write_text("RuntimeError: \u2588\u2588 no such thing \u2713\n")
    words = [sys.executable, "-c", "from deploy.commands.main import main; main()", "explain", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": letters, "PYTHONUTF8": "0"}
    done = subprocess.run(words, env=environment, cwd=REPO, capture_output=True, check=False)
    assert b"\\u2588\\u2588 no such thing \\u2713" in done.stdout
    assert b"Traceback (most recent" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("words", ["--help", "docs", "completion bash", "explain gpu-xid --json"])
def test_output_cut_by_a_full_disk_is_an_error(words):
    """`muster export train.py >job.sbatch` once left half a file and exit code 0; the help failed with a traceback."""
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m muster {words} >/dev/full",
        shell=True,
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "error: standard output: No space left on device\nhint: free some space: df -h\n"
    assert done.returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("out", ["| true", "2>&1 | true", "2>/dev/full >&2"])
def test_output_that_nobody_reads_changes_no_exit_code(tmp_path, out):
    """Earlier, `muster runs --json | grep -q ...` under `set -o pipefail` ended with 120 and a Python exception."""
    (tmp_path / "a.log").write_text("RuntimeError: no such thing\n")
    line = f"{shlex.quote(sys.executable)} -m muster explain {shlex.quote(str(tmp_path))}"
    words = ["bash", "-c", f"{{ sleep 0.2; {line}; echo $? >{shlex.quote(str(tmp_path / 'code'))}; }} {out}"]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True)
    assert ((tmp_path / "code").read_text(), done.stderr) == ("1\n", "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "first"), [("explain --json", "no run"), ("bootstrap a", "there is no terminal to ask you on")]
)
def test_with_closed_streams_a_command_behaves_as_without_a_terminal(words, first, tmp_path):
    """Cron and service managers start commands this way: earlier, that ended with a traceback."""
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m muster {words} <&- >&-",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
    )
    assert done.stderr.startswith(f"error: {first}")
    assert done.returncode == 2


@pytest.mark.parametrize("word", ["RuntimeError: CUDA error: an illegal memory access " * 9, "~no-such-user-here"])
@pytest.mark.parametrize("typed", ["explain", "report", "board", "compare latest", "up", "up --resume", "exec"])
def test_a_word_that_cannot_be_a_path_is_refused(typed, word, tmp_path, monkeypatch, capsys):
    """A pasted error is too long for a file name, and `~x` may name no user: earlier, both gave tracebacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("mine")
    assert main.run([*typed.split(), word]) in (1, 2)
    assert "hint: " in capsys.readouterr().err
