"""A command without hosts is about a run: on this machine, on Slurm, or on hosts that this user recorded."""

import json
import subprocess
import sys

import pytest

from deploy.commands import explain, where
from deploy.commands.main import run
from deploy.core.errors import DONE, FAILED, USAGE, UsageError
from deploy.door import faults
from deploy.hosts import recorded
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders, locks, record, recorded_ends
from deploy.slurm import runs as slurm_runs
from deploy.slurm.recorded_run import RecordedRun
from tests import started as programs
from tests.unit.run.test_locks import HELD


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def started(runs, name, backend, t, **more):
    folder = runs / name
    folder.mkdir(parents=True)
    record.open_start(folder, record.Choice(None, ()), backend, "why", ["a"], t)
    record.write_record(folder, {**record.facts(folder), **more})
    return folder


def asked(options):
    options = where.with_recorded_hosts(options, Console())
    return options.hosts, options.run


def test_the_newest_run_on_hosts_is_chosen_or_the_named_one(runs):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["me@a:22", "b"])
    started(runs, "r2", record.HOSTS, 2.0, hosts=["c"])
    started(runs, "r3", "processes", 3.0)
    assert asked(Options()) == ("c", "r2")
    assert asked(Options(run="latest")) == ("c", "r2")
    assert asked(Options(run="r1")) == ("me@a:22,b", "r1")
    assert asked(Options(hosts="d")) == ("d", "")
    assert asked(Options(hosts="d", run="latest")) == ("d", "r2")
    assert asked(Options(run="r3")) == ("", "r3")


def test_of_several_runs_on_the_hosts_the_newest_of_this_folder_is_chosen(runs):
    assert recorded.newest_of(["r1", "r2"]) is None
    started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    started(runs, "r2", record.HOSTS, 2.0, hosts=["a"])
    assert recorded.newest_of(["of another folder", "r1", "r2"]) == "r2"
    assert recorded.newest_of(["of another folder", "r1"]) is None, "the newest is elsewhere: nobody guesses"


def test_a_command_that_knows_this_machine_asks_hosts_only_for_their_runs(runs):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    assert [where.run_on_this_machine(Options(run=run)) for run in ("", "latest", "r1", "r2")] == [None] * 4
    here = started(runs, "r2", "processes", 2.0)
    assert [where.run_on_this_machine(Options(run=run)) for run in ("", "latest", "r2")] == [here] * 3
    assert where.run_on_this_machine(Options(run="r1")) is None
    assert where.run_on_this_machine(Options(hosts="a", run="r2")) is None


@pytest.mark.parametrize("words", [("--wait-lost", "1h"), ("--secret", "HOME")])
@pytest.mark.parametrize("backend", ["processes", record.SLURM])
def test_options_for_runs_on_hosts_are_refused_for_other_runs(runs, words, backend, capsys):
    started(runs, "r1", backend, 1.0, hosts=["login"], shared="/s")
    assert run(["attach", "--run", "r1", *words]) == USAGE
    assert f"{words[0]}: r1 is not a run on hosts" in capsys.readouterr().err


def test_a_named_local_run_is_chosen_although_there_is_a_cluster_file(runs):
    here = started(runs, "r1", "processes", 1.0)
    (runs.parent / "cluster.toml").touch()
    assert [where.run_on_this_machine(Options(run=run)) for run in ("", "latest", "r1")] == [None, None, here]


def test_status_without_hosts_is_of_the_local_run_until_one_is_deployed(runs, capsys):
    started(runs, "r1", "processes", 1.0)
    started(runs, "r2", "docker", 2.0)
    run(["status"])
    out, err = capsys.readouterr()
    assert out.split()[:2] == ["r2", "unfinished"]
    assert "muster why --run r2" in err
    run(["status", "--run", "r1"])
    assert capsys.readouterr().out.split()[:2] == ["r1", "unfinished"]
    started(runs, "r3", record.HOSTS, 3.0, hosts=["a"])
    assert where.run_on_this_machine(Options()) is None


def test_for_an_unknown_run_the_error_names_the_run_not_its_hosts(runs):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    with pytest.raises(UsageError, match="nonsense: no such run"):
        asked(Options(run="nonsense"))
    assert asked(Options(hosts="d", run="nonsense")) == ("d", "nonsense")


def test_a_cluster_file_takes_precedence_over_recorded_hosts(runs):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    (runs.parent / "cluster.toml").touch()
    assert asked(Options()) == ("", "")


def test_down_goes_to_the_hosts_of_the_cluster_file(runs, capsys):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["one.invalid"])
    (runs.parent / "cluster.toml").write_text('[[hosts]]\nname = "two.invalid"\n')
    assert run(["down", "--run", "r1", "--allow-folder"]) == FAILED
    assert "the name two.invalid does not resolve" in capsys.readouterr().err


def test_a_record_that_somebody_else_wrote_names_no_hosts(runs):
    path = started(runs, "r1", record.HOSTS, 1.0, hosts=["a"]) / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hosts": ["evil"]}))
    assert asked(Options()) == ("", "")
    assert asked(Options(run="r1")) == ("", "r1")
    with pytest.raises(UsageError, match="latest"):
        asked(Options(run="latest"))


def test_logs_are_read_here_once_the_run_has_ended_and_its_logs_are_here(runs):
    folder = started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    assert not where.ended_here(Options())
    (folder / "outcome.json").touch()
    assert not where.ended_here(Options(run="latest"))
    (folder / "logs" / "a.log").touch()
    assert [where.ended_here(Options(run=run)) for run in ("", "latest", "r1")] == [True] * 3
    assert not where.ended_here(Options(hosts="a", run="r1"))
    assert not where.ended_here(Options(run="r1"), "1"), "the hosts have a rank's log, and a follower brings none"
    (folder / "logs" / "rank-1.log").touch()
    assert [where.ended_here(Options(run="r1"), rank) for rank in ("1", "all", "2")] == [True, True, False]


@pytest.fixture
def going(monkeypatch):
    """The names of the runs that are going on on this machine: a test fills the list."""
    names = []
    monkeypatch.setattr(where, "going_on", lambda: names)
    return names


def to_stop():
    run = where.to_stop(Options(), Console())
    return run.run if isinstance(run, Options | RecordedRun) else run.name


def test_stop_chooses_the_only_run_without_an_end_and_never_guesses(runs, going):
    first, second = (started(runs, name, record.HOSTS, t, hosts=["a"]) for name, t in (("r1", 1.0), ("r2", 2.0)))
    with pytest.raises(UsageError, match=r"which run\? as far as this machine knows, r2 and r1 ") as fault:
        to_stop()
    assert "--run r2" in fault.value.hint
    (second / "outcome.json").write_text("{}")
    assert to_stop() == "r1"
    assert where.to_stop(Options(run="latest"), Console()).run == "r2"
    started(runs, "r3", "processes", 3.0)
    going.append("r3")
    with pytest.raises(UsageError, match=r"which run\? as far as this machine knows, r3 and r1 have not"):
        to_stop()
    (first / "outcome.json").write_text("{}")
    assert to_stop() == "r3"
    going.clear()
    assert to_stop() == "r3", "it says that the latest has ended"
    started(runs, "r4", record.SLURM, 4.0, hosts=["login"], shared="/home/me")
    assert to_stop() == "r4"
    going.append("r3")
    with pytest.raises(UsageError, match=r"which run\? as far as this machine knows, r3 and r4 have not"):
        to_stop()
    going.clear()
    started(runs, "r5", record.SLURM, 5.0, hosts=["login"], shared="/home/me")
    with pytest.raises(UsageError, match=r"which run\? as far as this machine knows, r5 and r4 have not"):
        to_stop()


def to_resume(run="", noted=None):
    console = Console()
    console.note = console.note if noted is None else noted.append
    return where.to_resume(Options(run=run), console, recorded_ends.end_of).name


def test_resume_takes_the_newest_run_and_asks_if_only_an_older_one_is_not_done(runs, going):
    """A user wants the run that was stopped; the newest, a short test that is done, had been started again."""
    first, second = (started(runs, name, "processes", t) for name, t in (("r1", 1.0), ("r2", 2.0)))
    assert to_resume() == "r2"
    (second / "outcome.json").write_text('{"verdict": "failed"}')
    assert to_resume() == "r2"
    (second / "outcome.json").write_text('{"verdict": "done"}')
    (first / "outcome.json").write_text('{"verdict": "stopped"}')
    with pytest.raises(UsageError, match=r"^which run\? the newest, r2, is done; r1 is not$") as fault:
        to_resume()
    assert fault.value.hint == "muster resume r1; or, to start the newest again with its files: muster resume r2"
    assert [to_resume(run) for run in ("latest", "r1", "r2")] == ["r2", "r1", "r2"], "a name is no question"
    noted = []
    going.append("r1")
    assert to_resume(noted=noted) == "r2"
    going.clear()
    assert noted == ["r2 is done: it starts again with its files"]
    (first / "record.json").write_text('{"id": "r1"}')
    assert to_resume() == "r2", "nobody can resume a run that another user started"


def test_resume_does_not_claim_to_know_the_end_of_a_run_that_nobody_here_followed(runs, going):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["a"])
    (started(runs, "r2", "processes", 2.0) / "outcome.json").write_text('{"verdict": "done"}')
    with pytest.raises(UsageError, match=r"is done; r1 is not, as far as this machine knows$"):
        to_resume()


@pytest.mark.parametrize("words", ["exec --run latest -- ls", "gpus", "down --run r2", "down --run r2 --delete", "why"])
def test_a_command_without_slurm_support_says_so_and_asks_no_host_of_an_older_run(words, runs, capsys):
    started(runs, "r1", record.HOSTS, 1.0, hosts=["one.invalid"])
    started(runs, "r2", record.SLURM, 2.0, hosts=["login.invalid"], shared="/home/me", job="12")
    assert run(words.split()) == USAGE
    assert (
        "error: r2: it runs on Slurm: status, logs, attach, stop and fetch can do this there" in capsys.readouterr().err
    )


def test_down_that_cannot_delete_a_job_names_its_local_copy(runs, capsys):
    started(runs, "r1", record.SLURM, 1.0, hosts=["login.invalid"], shared="/home/me", job="12")
    assert run(["down", "--run", "r1", "--delete"]) == USAGE
    assert "its copy here: rm -r runs/r1" in capsys.readouterr().err
    assert (runs / "r1").is_dir()


@pytest.mark.parametrize("words", ["logs", "logs r1", "logs --grep x"])
def test_logs_of_an_ended_job_are_read_on_the_cluster(words, runs, monkeypatch):
    """This machine has only the end of the logs."""
    folder = started(runs, "r1", record.SLURM, 1.0, hosts=["login.invalid"], shared="/home/me", job="12")
    (folder / "outcome.json").touch()
    (folder / "logs/rank-0.log").write_text("(9 bytes before this stay on the cluster)\nx\n")
    asked = []
    monkeypatch.setattr(slurm_runs, "logs", lambda known, options, console: asked.append(known.run) or DONE)
    assert run(words.split()) == DONE
    assert asked == ["r1"]
    started(runs, "r2", "processes", 2.0)
    run(["logs"])
    assert asked == ["r1"], "the latest is of this machine"


def test_an_unknown_run_is_named_although_the_newest_run_is_on_slurm(runs, capsys):
    """The word could be a host; the error must not blame --hosts or --slurm, which nobody typed."""
    started(runs, "r1", record.SLURM, 1.0, hosts=["login.invalid"], shared="/home/me")
    assert run(["resume", "mispelt"]) == USAGE
    assert "error: mispelt: no run of that name is here" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["down --run r1", "down --run latest", "down r1", "down runs/r1/"])
def test_down_accepts_each_name_of_a_local_run(words, runs, monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{runs}/no-engine")
    started(runs, "r1", "processes", 1.0)
    assert run(words.split()) == DONE
    assert "nothing was running on this machine; on hosts: muster down --hosts a,b" in capsys.readouterr().err
    assert run(["down", "--run", "r2"]) == USAGE
    assert "error: --run r2: no such run" in capsys.readouterr().err


def test_a_mistyped_run_taken_for_a_host_is_reported_as_both(runs, capsys, monkeypatch):
    assert run(["attach", "mispelt.invalid"]) != DONE
    words = capsys.readouterr().err
    assert "the name mispelt.invalid does not resolve" in words
    assert "if a run is meant: `muster runs` lists the runs of this folder" in words
    assert run(["attach", "--hosts", "mispelt.invalid"]) != DONE
    assert "a run is meant" not in capsys.readouterr().err
    assert run(["preflight", "mispelt.invalid"]) != DONE
    assert "a run is meant" not in capsys.readouterr().err
    monkeypatch.setattr(faults, "READ_AS_HOSTS", {"gpu-a"})
    there = faults.FaultPlace("gpu-a", "10.0.0.1", 22, "me", "gpu-a")
    assert "a run is meant" not in faults.fault("refused", there).hint, "a name that resolves is a host's"


@pytest.mark.parametrize("words", ["status", "why", "logs", "attach", "stop", "fetch", "shell", "explain", "resume"])
def test_in_a_folder_without_runs_a_command_says_so(words, runs, capsys, monkeypatch):
    """It had said `no hosts`, or `latest: no such run`, to a user who had typed neither."""
    monkeypatch.setattr(explain, "_is_piped", lambda: False)
    assert run([words]) == USAGE
    assert f"error: no run that you started is in {runs}\nhint: go to the folder where it was started" in (
        capsys.readouterr().err
    )


def test_in_a_copy_without_the_link_the_latest_run_is_the_one_that_was_started_last(runs):
    started(runs, "r2", "processes", 1.0)
    here = started(runs, "r1", "processes", 2.0)
    (runs / "latest").unlink()
    assert (where.run_on_this_machine(Options()), record.find("latest")) == (here, here)
    (runs / "latest").symlink_to("/")
    assert record.find("latest") == here, "a link to elsewhere may have come with the folder"


@pytest.mark.parametrize("task", ["why", "logs", "fetch", "attach", "exec -- ls", "explain"])
def test_with_several_runs_going_on_a_command_says_which_one_it_is_about(task, runs, going, capsys, monkeypatch):
    """With two `muster up` in one folder, each command silently answered for the newest."""
    monkeypatch.setattr(explain, "_is_piped", lambda: False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{runs}/no-engine")
    for t, name in enumerate(("r1", "r2", "r3")):
        started(runs, name, "processes", t + 1.0)
    going += ["r1", "r2", "r3"]
    words = "this is about r3; r2 and r1 are going on, too: --run r2"
    run(task.split())
    assert words in capsys.readouterr().err
    run([*task.split()[:1], *([] if task == "explain" else ["--run"]), "r3", *task.split()[1:]])
    assert "this is about" not in capsys.readouterr().err, "the user named it"


def test_a_command_about_hosts_names_a_run_that_is_going_on_here(runs, going, capsys):
    started(runs, "r1", "processes", 1.0)
    started(runs, "r2", record.HOSTS, 2.0, hosts=["one.invalid"])
    going.append("r1")
    run(["status"])
    assert "this is about r2; r1 is going on, too: --run r1" in capsys.readouterr().err


def test_status_shows_every_run_that_is_going_on_here_and_the_newest(runs, capsys, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{runs}/no-engine")
    folders_of = [started(runs, f"r{t}", "processes", float(t)) for t in (1, 2, 3, 4)]
    held = [locks.hold_run(folders_of[at]) for at in (0, 2)]
    run(["status", "--json"])
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["id"], each["verdict"]) for each in shown] == [
        ("r1", "running"),
        ("r3", "running"),
        ("r4", "unfinished"),
    ]
    run(["status", "--run", "r1", "--json"])
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["r1"]
    for lock in held:
        lock.release()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("why", "its ranks have not started yet"),
        ("logs", "its ranks have not started yet"),
        ("explain", "r2 is starting: it has no logs yet"),
        ("resume", "r2 is starting now"),
        ("status", "r2   starting"),
        ("down", "r2 is starting, and has no nodes yet: muster stop --run r2"),
    ],
)
def test_a_run_that_is_starting_is_the_latest_before_it_has_a_record(task, words, runs, capsys, monkeypatch):
    """For minutes, while packages were installed, commands answered for the run before."""
    monkeypatch.setattr(explain, "_is_piped", lambda: False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{runs}/no-engine")
    (started(runs, "r1", "processes", 1.0) / "outcome.json").write_text('{"verdict": "done"}')
    begun = record.new_folder("r2", ("train.py",), script=True)
    with programs.started([sys.executable, "-c", HELD, str(begun / ".lock")], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        run([task])
        assert words in "".join(capsys.readouterr())
        other.kill()
    assert record.latest().name == "r1", "its command was killed"
    run(["attach", "--run", "r2"])
    assert "r2: it has no record: its command was killed before its nodes started" in capsys.readouterr().err
