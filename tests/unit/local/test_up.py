"""How `muster up` reads its options before anything starts, and `muster logs` on this machine."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.core.facts import EngineFacts
from deploy.hosts.act import within as hosts_within
from deploy.job.option_words import words_again
from deploy.job.options import Options
from deploy.local import up, within, witness
from deploy.report.recorder import Recorder
from deploy.run import environment
from deploy.run.files import folders


def test_ranks_of_a_script_train_alone_only_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    options = Options(script="train.py", folder=str(tmp_path))
    assert environment.SEPARATE not in up._read(options)[1].own.own
    separate = up.replace(options, separate=True)
    read, asked = up._read(separate)
    assert asked.own.own[environment.SEPARATE] == "1"
    assert "--separate" in shlex.join(words_again(read))
    with pytest.raises(UsageError, match="--separate"):
        up._read(Options(separate=True))


@pytest.mark.parametrize(("rank", "shown"), [("", 2), ("all", 2), ("1", 1)])
def test_local_logs_show_all_ranks_or_the_named_one(tmp_path, monkeypatch, rank, shown):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r1" / "logs").mkdir(parents=True)
    for number in (0, 1):
        (tmp_path / "r1" / "logs" / f"rank-{number}.log").write_text(f"rank {number}\n")
    lines: list[dict[str, object]] = []
    assert within.logs_here(Options(run="r1", rank=rank), Recorder(lines.append)) == 0
    assert len([line for line in lines if "line" in line]) == shown


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("^[[:alpha:]]+ [[:digit:]]$", ["rank 7"]), ("(a|b){2}", ["abba"]), ("7|^abba$", ["rank 7", "abba"]), ("no", [])],
)
@pytest.mark.parametrize("name", ["rank-0.log", "n0.log"])
def test_a_grep_pattern_means_the_same_here_as_on_hosts(tmp_path, monkeypatch, pattern, found, name):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r1" / "logs").mkdir(parents=True)
    (tmp_path / "r1" / "logs" / name).write_text(
        "rank 7\nmuster-said 7\nabba\n" if name[0] == "n" else "rank 7\nabba\n"
    )
    lines: list[dict[str, object]] = []
    assert within.logs_here(Options(run="r1", grep=pattern), Recorder(lines.append)) == 0
    assert [line["line"] for line in lines if "line" in line] == found
    with pytest.raises(UsageError, match="--grep"):
        within.logs_here(Options(run="r1", grep="("), Recorder(lines.append))


def test_the_on_end_command_gets_the_runs_variables_and_secrets(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(witness.subprocess, "Popen", lambda *_, **given: started.append(given["env"]))
    script = environment.Script("", own={"A": "1"}, secrets={"KEY": "k"})
    witness.start(environment.local_spec(tmp_path / "r1", 1, 0, ["x.py"], 1, 1, "Linux", script), "true")
    (given,) = started
    assert (given["A"], given["KEY"], given["MUSTER_SECRETS_PRESENT"]) == ("1", "k", "KEY")
    assert given["MUSTER_RESUME_COMMAND"] == "muster resume r1"
    assert "MUSTER_RUN_DIR" not in given, "by it the end of the run would kill it"


@pytest.mark.parametrize("rank", ["x", "-1", "0,1", "1" * 10])
def test_a_rank_that_is_no_number_is_refused(rank):
    with pytest.raises(UsageError, match=f"--rank {rank}: not a number"):
        within.logs_here(Options(run="r1", rank=rank), Recorder(lambda event: None))


@pytest.fixture
def live(tmp_path, monkeypatch):
    """Returns a function: `muster logs` of a run whose rank 0 has printed a line, and rank 1 nothing.

    `over`: for each look, whether the run is over. It returns the exit code, or the error, and the notes.
    """
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    monkeypatch.setattr(within, "_LOOK_EVERY_S", 0.0)
    (tmp_path / "r1/logs").mkdir(parents=True)
    (tmp_path / "r1/ranks").mkdir()

    def logs(over, begun=True, **options):
        looks, heard, console = [*over], list[str](), Recorder(lambda event: None)
        monkeypatch.setattr(within.attach, "is_over", lambda *_: looks.pop(0) if looks[1:] else looks[0])
        monkeypatch.setattr(console, "note", heard.append)
        if begun:
            (tmp_path / "r1/logs/rank-0.log").write_text("rank 0\n")
            (tmp_path / "r1/ranks/rank-1.jsonl").touch()
        try:
            return within.logs_here(Options(run="r1", **options), console), heard
        except DeployError as fault:
            return fault.message, heard

    return logs


def test_following_a_rank_that_has_not_begun_names_those_that_have(live):
    """Earlier, the command printed nothing for as long as the run lasted."""
    missing = "r1: it has no rank 7, only ranks 0-1"
    assert live([False, True], rank="7", follow=True) == (missing, [missing])
    assert live([False], rank="7") == (missing, [])


@pytest.mark.parametrize("rank", ["", "0", "1"])
def test_logs_of_ranks_that_have_not_started_say_so(live, rank):
    """It had been an error: `it has no rank 0`, and `no log of it is here`."""
    assert live([False], begun=False, rank=rank) == (0, ["r1: its ranks have not started yet"])
    assert live([True], begun=False, rank=rank) == (0, ["r1: none of its ranks started"])


def test_a_rank_that_has_printed_nothing_may_still_print_while_the_run_lasts(live):
    assert live([False], rank="1") == (0, ["r1: rank 1 has printed nothing yet"])
    assert live([False, True], rank="1", follow=True) == (
        0, ["r1: rank 1 has printed nothing yet", "r1: rank 1 printed nothing"]
    )  # fmt: skip
    assert live([True], rank="1") == (0, ["r1: rank 1 printed nothing"])
    assert live([False]) == (0, [])


def test_a_shell_without_a_terminal_gets_the_command_for_the_same_place():
    """On hosts, the hint had said `--hosts a,b` to a user who had typed others."""
    with pytest.raises(UsageError) as here:
        within.shell_here(Options(run="r1", rank="1"), ())
    assert here.value.hint == "without one: muster exec --run r1 --rank 1 -- COMMAND"
    with pytest.raises(UsageError) as there:
        hosts_within.shell(Options(hosts="gpu-a,gpu-b", rank="1"), ())
    assert there.value.hint == "without one: muster exec --hosts gpu-a,gpu-b --rank 1 -- COMMAND"


@pytest.mark.parametrize("backend", ["docker", "processes"])
def test_a_script_behind_a_link_out_of_the_folder_is_refused_for_containers(tmp_path, monkeypatch, backend):
    """Once, the container started, and then said that there is no such script."""
    (tmp_path / "far.py").touch()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").symlink_to("../far.py")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(up, "_engine", lambda wanted: EngineFacts(answers=True, version="28.2.2"))
    start = up._OnThisMachine(Options(script="train.py", backend=backend), Recorder(lambda event: None), None)
    refused = pytest.raises(UsageError, match=r"train\.py: the ranks would not have it")
    with refused if backend == "docker" else nullcontext(), start.reach():
        pass
