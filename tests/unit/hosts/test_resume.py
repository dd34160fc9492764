"""Which run a resume on real hosts means, when it is refused, and the command that the user is told."""

import dataclasses

import pytest

from deploy.causes.end_causes import Cause
from deploy.core.errors import USAGE, DeployError, UsageError
from deploy.host.facts import Container
from deploy.host.reached import ReachedHosts
from deploy.hosts.node import container
from deploy.hosts.start import resume
from deploy.hosts.start.resume import result_on_hosts, resume_fields, with_resume_hint
from deploy.job import consent
from deploy.job.cluster import Cluster
from deploy.job.inventory import Host
from deploy.job.load import fill_from_file, load_cluster
from deploy.job.options import Options
from deploy.job.script import read
from deploy.report.console import Console
from deploy.run.files import folders, record, resumable
from deploy.run.outcome import Result
from tests.hosts import FACTS


def reached(**facts):
    """Hosts with these facts, reached as another user on another port."""
    return ReachedHosts(Cluster(tuple(Host(name, name, 2222, "me") for name in facts)), (), facts)


@pytest.mark.parametrize(
    ("options", "lost", "command"),
    [
        (Options(), [], "muster deploy --hosts a,b,c --resume r"),
        (Options(image="my:1", env=("A=x y",)), [], "--resume r --image my:1 --env 'A=x y'"),
        (Options(mount=("/a:/b", "/c:/d:ro")), [], "--resume r --mount /a:/b --mount /c:/d:ro"),
        (Options(cluster="lab.toml"), [], "muster deploy --cluster lab.toml --resume r"),
        (Options(), ["b"], "muster deploy --hosts a,c --resume r"),
        (Options(), ["a"], "muster deploy --hosts a,b,c --resume r"),
    ],
)
def test_the_hint_names_the_command_that_resumes_the_run(options, lost, command, tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": False, **resume_fields(options)})
    result = with_resume_hint(
        Result("stopped", from_ranks=True, hint="`muster deploy --resume r` continues from here"), run_dir, True, lost
    )
    assert command in result.hint
    assert ("its checkpoints are on a" in result.hint) == ("a" in lost)
    assert "`muster deploy --resume r`" not in result.hint


def test_the_run_can_continue_without_the_first_host_if_another_has_the_checkpoints(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": False, **resume_fields(Options())})
    result = with_resume_hint(Result("failed"), run_dir, True, ["a"], copied=True)
    assert "muster deploy --hosts b,c --resume r" in result.hint
    assert "when that host is back" in with_resume_hint(Result("failed"), run_dir, True, ["a", "b", "c"], True).hint


def test_the_hint_repeats_min_nodes_if_enough_hosts_are_left(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    fields = resume_fields(Options(min_nodes="2"))
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": True, **fields})
    for lost, command in (
        ((), "muster deploy --hosts a,b,c --resume r --min-nodes 2"),
        (("a",), "muster deploy --hosts a,b,c --resume r --min-nodes 2"),
        (("b",), "muster deploy --hosts a,c --resume r"),
    ):
        result = with_resume_hint(Result("failed"), run_dir, True, lost)
        assert result.hint.endswith(command)


def test_the_hint_says_to_free_a_full_disk_before_resuming(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b"], "script": True, **resume_fields(Options())})
    full = Result("failed", hint="logs/rank-1.log has all", node="b", rank=1, cause=Cause.DISK_FULL)
    hint = with_resume_hint(full, run_dir, True).hint
    assert hint.index("free some space on b") < hint.index("--resume r")
    assert "free some space" not in with_resume_hint(dataclasses.replace(full, cause=Cause.KILLED), run_dir, True).hint


def test_a_users_script_gets_no_such_hint(tmp_path):
    record.write_json(tmp_path / "record.json", {"hosts": ["a"], "script": True})
    assert with_resume_hint(Result("stopped"), tmp_path, True).hint == ""


def test_a_checkpoint_path_is_on_the_first_host_and_a_log_path_on_its_ranks_host():
    hint = "the traceback is in /muster/run/logs/rank-1.log; last good checkpoint: /muster/run/checkpoints/step-9"
    result = Result("failed", hint=hint, node="n2")
    for everywhere, has_checkpoint in ((False, "a"), (True, "b")):
        command = result_on_hosts(result, "r", "a", {"a": "n1", "b": "n2"}, everywhere).hint
        assert "b:~/.muster/runs/r/logs/rank-1.log" in command
        assert f"{has_checkpoint}:~/.muster/runs/r/checkpoints/step-9" in command


def test_a_node_knows_the_resume_command_as_known_at_the_start():
    options = Options(hosts="gpu-a,gpu-b", folder="proj", script="train.py", restarts="3", on_end="sh end.sh")
    where, again = resume.resume_words(options, load_cluster(options))
    command = container.resume_command("r1", where, again)
    assert command == ("muster deploy --hosts gpu-a,gpu-b --resume r1 --folder proj --restarts 3 --on-end 'sh end.sh'")
    assert container.resume_command("r1", where, "--env 'A=1\n2'") == "muster deploy --resume r1"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """This folder's runs: of train.py, then of other.py, both on host a."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for second, command in enumerate(("python train.py --lr 1", "other.py")):
        recorded(tmp_path / "runs" / f"r{second}", command, 1.7e9 + second)
    return tmp_path / "runs"


def recorded(run_dir, command, t):
    run_dir.mkdir(parents=True)
    words = read(command, None)
    choice = record.Choice(None, words.words, bare=words.bare)
    record.open_start(run_dir, choice, record.HOSTS, "1 host", ["a"], t)
    more = {"hosts": ["a"], "script": True, "sent_from": resumable.sent_from("", run_dir.parent)}
    record.write_record(run_dir, {**record.facts(run_dir), **more})


def test_latest_on_hosts_is_the_newest_run_of_the_script_in_the_command_or_the_file(runs):
    for options in (
        Options("a", resume="latest", script="train.py"),
        Options("a", resume="latest", script="torchrun train.py --lr 2"),
    ):
        found, run = resume.run_to_continue(options)
        assert (run, found.script) == ("r0", options.script)
    (runs.parent / "cluster.toml").write_text('[[hosts]]\nname = "a"\n[job]\nscript = "train.py --lr 9"\n')
    with consent.asking(consent.ConsentGate(Console, True, "")):
        found, run = resume.run_to_continue(fill_from_file(Options(cluster="cluster.toml", resume="latest")))
    assert (run, found.script) == ("r0", "python train.py --lr 1"), "what it was given is as it was recorded"
    (runs.parent / "cluster.toml").unlink()
    found, run = resume.run_to_continue(Options("a", resume="latest"))
    assert (run, found.script) == ("r1", "other.py")


def test_latest_on_hosts_of_a_script_that_never_ran_here_is_refused_before_a_host_is_asked(runs):
    with pytest.raises(UsageError) as refused:
        resume.run_to_continue(Options("a", resume="latest", script="third.py"))
    assert "r1 (other.py)" in refused.value.hint


def test_a_local_run_is_not_resumed_on_hosts(runs):
    record.write_record(runs / "r0", {**record.facts(runs / "r0"), "backend": "processes"})
    with pytest.raises(UsageError, match="this machine") as refused:
        resume.run_to_continue(Options("a", resume="r0", script="train.py"))
    assert refused.value.hint.endswith("up --resume r0")


def test_a_resume_is_refused_if_no_host_has_files_of_the_run(runs):
    for run, words in (("r0", "deploy --hosts a --resume r0"), ("r9", "the newest runs here: --resume r1 (other.py)")):
        with pytest.raises(UsageError) as refused:
            resume.next_start(run, reached(b=FACTS), True, pytest.fail)
        assert refused.value.code == USAGE
        assert words in refused.value.hint
    recorded(runs / "r2", "train.py --lr 3", 1.7e9 + 9)
    with pytest.raises(UsageError) as refused:  # the run was recorded but never started on that host
        resume.next_start("r2", reached(a=dataclasses.replace(FACTS, runs=frozenset({"r0"}))), True, pytest.fail)
    assert refused.value.hint.startswith("leave out --resume")
    asked = ReachedHosts(Cluster((Host("first", "a"),)), (), {"first": FACTS})
    with pytest.raises(UsageError) as refused:  # nor on the host, to which cluster.toml gives another name
        resume.next_start("r2", asked, True, pytest.fail)
    assert refused.value.hint.startswith("leave out --resume")
    told = []
    assert resume.next_start("r0", reached(b=FACTS), False, told.append) == 2
    assert "none of its files" in told[0], "--run once more may begin on new hosts"
    known = dataclasses.replace(FACTS, runs=frozenset({"r9"}))
    assert resume.next_start("r9", reached(b=known), True, pytest.fail) == 2, "another machine started it"


def test_the_hint_for_a_running_run_follows_it_with_its_hosts_as_typed(runs):
    going = Container("r0", "b", 0, 1, "muster-r0", "running", None, 29500)
    with pytest.raises(DeployError, match="it is still running on b") as refused:
        resume.next_start("r0", reached(b=dataclasses.replace(FACTS, containers=(going,))), True, pytest.fail)
    assert refused.value.hint == "follow it: muster attach --hosts me@b:2222 --run r0"


def test_an_unclosed_quote_in_the_files_arguments_is_refused_in_words(runs):
    (runs.parent / "cluster.toml").write_text('hosts = ["a"]\n[job]\nargs = "--x \'a"\n')
    with (
        consent.asking(consent.ConsentGate(Console, True, "")),
        pytest.raises(UsageError, match=r"--args.*No closing quotation"),
    ):
        resume.run_to_continue(Options(cluster="cluster.toml", resume="latest"))


def test_a_run_of_the_trainer_resumes_with_the_recorded_and_the_new_arguments(runs):
    (folder := runs / "t").mkdir()
    choice = record.Choice(None, ("--recipe", "digits"))
    record.open_start(folder, choice, record.HOSTS, "1 host", ["a"], 1.8e9)
    record.write_record(folder, {**record.facts(folder), "hosts": ["a"]})
    for asked in ("t", "latest"):
        found, run = resume.run_to_continue(Options("a", resume=asked, args="--steps 9"))
        assert (run, found.args, found.resume) == ("t", "--recipe digits --steps 9", "")
    with pytest.raises(UsageError, match="this run has no script"):
        resume.run_to_continue(Options("a", resume="t", script="train.py"))


def test_a_run_started_elsewhere_resumes_only_with_what_is_typed_here(runs):
    (runs / "theirs").mkdir()
    (runs / "theirs/record.json").write_text('{"id": "theirs", "backend": "hosts", "arguments": ["--recipe", "x.py"]}')
    with pytest.raises(UsageError, match="never runs what others recorded"):
        resume.run_to_continue(Options("a", resume="theirs"))
    found, run = resume.run_to_continue(Options("a", resume="theirs", args="--recipe text"))
    assert (run, found.args) == ("theirs", "--recipe text")
