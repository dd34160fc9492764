"""One host answers oddly. Muster names that host and the field, and handles the other hosts as usual. No traceback."""

from __future__ import annotations

import json

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import RunId
from deploy.door import session
from deploy.hosts import nodes
from deploy.hosts.act import delete
from deploy.job.inventory import Host
from tests.hostile.engine import FakeEngine, answered, number_as_id
from tests.hostile.fuzz import samples
from tests.hostile.server import Answer

HELD = (samples.ANSWERS / "held.txt").read_text()
DEEP = '{"a":' * 100_000
STATUS = ("time x", "time ²", f"time {'9' * 5000}", "time 1e999")
RUNS = ("folder r1 yesterday", f"folder r1 {'9' * 5000} 1 1", "folder r1 1 ² 1")
GPUS = (f"container {'a' * 64} --rm r1", "container x muster-r1 r1", f"container {'a' * 64} muster-r1 ../../r1")
LOOK = tuple(
    samples.LOOK.replace(old, new)
    for old, new in (
        ("time 1795238476.219120949", "time x"), ("cores 32", "cores ²"), ("memory 131072000", "memory " + "9" * 5000),
        ("ids 1000 1000", "ids root wheel"), ('"prefixlen": 24', '"prefixlen": 99'), (":1F90", ":ZZZZ"),
        ('"local": "10.0.0.4"', '"local": "$(id)"'), ('"ExitCode": 0', '"ExitCode": ' + "9" * 5000),
        ("addresses [", "addresses " + "[" * 100_000), ('"Server":{', '"Server":[{'), ("home /home/ops", "home ../x"),
    )
)  # fmt: skip
NAMES = (('"r1"', '"/home/x/.ssh"'), ('"a"', '"../a"'))
WRONG = (*NAMES, ('"29500"', '"²"'), ('"ExitCode": 0', '"ExitCode": 1e999'))
# What no real engine answers: to a request for the list, or for one container.
LISTS = (
    DEEP,
    "7",
    '[{"Id": 7}]',
    '[{"Id": "../x", "Names": [], "State": "running"}]',
    "[" + "[],[]," * 200_000 + "[]]",
)


def at_home(answer, server):
    """The answer, with the server's own home in it."""
    return answer.replace("/home/ops", str(server.home)).encode()


def has(server, wrong=("", ""), **more):
    """Let the host's engine have a container, a part of which may be wrong."""
    text = at_home(samples.container(**more).replace(*wrong), server)
    server.engine = FakeEngine([{**json.loads(text), "variables": ["PET_NPROC_PER_NODE=1"]}])


@pytest.mark.parametrize(
    ("task", "key", "odd", "well"),
    [
        *(("status", "status", odd, samples.STATUS) for odd in STATUS),
        *(("runs", "runs", odd, samples.RUNS) for odd in RUNS),
        *(("gpus", "gpus", f"gpu 0, GPU-1, 5000, 81559, 9, H100\n{odd}", HELD) for odd in GPUS),
    ],
    ids=lambda text: ascii(text[-24:]),
)
def test_the_other_host_is_shown(hostile, task, key, odd, well) -> None:
    rig = hostile({key: odd.encode()}, good={key: well.encode()})
    has(rig.servers["good"])
    done = rig.task(task, "--hosts", "evil,good")
    assert done.code == 1, done.output
    assert "evil" in done.output
    assert "expected" in done.output, "the field, and what came instead"
    assert any(word in done.out for word in ("r1", "H100")), "what the other host has"
    assert rig.harm() == []
    shown = rig.task(task, "--hosts", "evil,good", "--json")
    values = [json.loads(line) for line in shown.out.splitlines()]
    assert [value["host"] for value in values if "error" in value] == ["evil"]


@pytest.mark.parametrize(
    ("words", "key", "odd", "well"),
    [(("deploy", "--dry-run", "--args", "--steps 1"), "look", odd, samples.LOOK) for odd in LOOK],
    ids=lambda text: ascii(text[-24:]) if isinstance(text, str) else text[0],
)
def test_a_command_that_needs_all_hosts_names_the_odd_one(hostile, words, key, odd, well) -> None:
    rig = hostile({}, good={})
    for name, answer in (("evil", odd), ("good", well)):
        rig.servers[name].answers = {key: at_home(answer, rig.servers[name]), "send-run-folder": b""}
    done = rig.task(*words, "--hosts", "evil,good")
    assert done.code, done.output
    assert "evil: " in done.err, done.output
    assert "expected" in done.err
    assert rig.harm("r1", "2026-11-21-0214-digits") == []


@pytest.mark.parametrize("name", ["../../x", "-rf", "r" * 5000, "r1\x1b[2J"])
def test_a_fetch_accepts_no_odd_run_name_from_a_host(hostile, name) -> None:
    rig = hostile({}, good={})
    for host, answer in (("evil", f"{samples.LOOK}\nrun {name}\n"), ("good", samples.LOOK)):
        rig.servers[host].answers = {"look": at_home(answer, rig.servers[host])}
    done = rig.task("fetch", "--hosts", "evil,good")
    assert "which run?" in done.err
    assert name[:100] not in done.output
    assert rig.harm("r1", "2026-11-21-0214-digits") == []


@pytest.mark.parametrize("wrong", [*WRONG, ('"running"', '"Running!"'), ('"muster.place": "0"', '"muster.place": "²"')])
@pytest.mark.parametrize("task", ["attach", "logs", "status"])
def test_an_odd_container_of_a_run_is_blamed_on_its_host(hostile, task, wrong) -> None:
    if (task == "status" and wrong in WRONG[2:]) or (task == "logs" and wrong in (WRONG[1], WRONG[2])):
        return  # these commands do not read that field
    rig = hostile({}, good={})
    has(rig.servers["evil"], wrong)
    has(rig.servers["good"])
    done = rig.task(task, "--hosts", "evil,good")
    assert done.code, done.output
    assert "evil" in done.output, done.output
    assert "expected" in done.output, "the field, and what came instead"
    assert rig.harm("r1") == []


@pytest.mark.parametrize("answer", LISTS, ids=lambda text: text[-24:])
@pytest.mark.parametrize("task", ["status", "runs", "logs", "attach"])
def test_an_odd_engine_answer_is_blamed_on_its_host(hostile, task, answer) -> None:
    rig = hostile({}, good={})
    rig.servers["evil"].engine = FakeEngine(odd={"/containers/json": answered(answer.encode())})
    has(rig.servers["good"])
    done = rig.task(task, "--hosts", "evil,good")
    assert "expected" in done.output, done.output
    assert "evil" in done.output
    assert task not in ("status", "runs") or "r1" in done.out, "what the other host has"
    assert rig.harm("r1") == []


def test_a_stop_continues_with_the_hosts_that_answer(hostile) -> None:
    rig = hostile({}, good={"last-words": b"", "forget": b""})
    has(rig.servers["evil"], WRONG[0])
    has(rig.servers["good"], status="exited", code=0)
    done = rig.task("stop", "--hosts", "evil,good", "--run", "r1")
    assert done.code == 0, done.output
    assert "evil: " in done.err
    assert "could not ask its node to stop" in done.err


@pytest.mark.parametrize(
    "answer", ['{"hostname": ["x"]}', "7", DEEP, "x" * 100, '{"hostname": "a", "names": 1}'], ids=len
)
def test_preflight_names_the_host_whose_probe_answers_oddly(hostile, answer) -> None:
    look = samples.LOOK.encode()
    rig = hostile({"look": look, "muster-probe": Answer(f"{answer}\n".encode(), code=None)}, good={"look": look})
    done = rig.task("preflight", "--hosts", "good,evil", "--json", within_s=90)
    assert done.code, done.output
    (first, *_) = json.loads(done.out.splitlines()[-1])["findings"]
    assert first["hosts"] == ["evil"]
    assert "expected" in first["text"]


# Folders that are not the folder of this user's run r1.
THEIRS = ("/home/bob/.muster/runs/r1", "{home}/.muster/runs/r2", "{home}/.muster/runs/r1/x", "")


def theirs_of(own, folder, server):
    """A container with the labels of this user's run, but another run folder."""
    mounts = [{"Destination": "/muster/run", "Source": folder.replace("{home}", str(server.home))}] if folder else []
    return {**own, "Name": "/theirs", "Mounts": mounts}


@pytest.mark.holds("own-start-only")
@pytest.mark.parametrize("folder", THEIRS)
def test_only_containers_with_their_run_folder_in_our_home_get_a_signal(hostile, folder) -> None:
    """Another user's run may have the same id, and an image may have any label."""
    rig = hostile({})
    server = rig.servers["evil"]
    own = json.loads(at_home(samples.container(), server))
    server.engine = FakeEngine([theirs_of(own, folder, server), own])
    with session.open_all([Host("evil", "127.0.0.1", server.port)]) as opened:
        nodes.signal(list(opened.all().values()), "r1", "SIGKILL").all()
    killed = [asked for asked in server.engine.asked if asked.startswith("POST")]
    assert killed == [f"POST /containers/{number_as_id(1)}/kill?signal=SIGKILL"]


@pytest.mark.holds("ours-only")
@pytest.mark.parametrize("folder", THEIRS)
def test_only_a_run_with_its_folder_in_our_home_is_removed(hostile, folder) -> None:
    """Muster does not remove another user's run, and that run does not block the removal of the user's own run."""
    server = hostile({"forget": b"", "audit": b""}).servers["evil"]
    own = json.loads(at_home(samples.container(), server))
    server.engine = FakeEngine([theirs_of(own, folder, server), own])
    with session.open_all([Host("evil", "127.0.0.1", server.port)]) as opened:
        (removed,) = nodes.remove(list(opened.all().values()), "r1").all().values()
    gone = [asked for asked in server.engine.asked if asked.startswith("DELETE")]
    assert gone == [f"DELETE /containers/{number_as_id(1)}?force=1&v=1"]
    assert removed == nodes.Removed(1, (("r1", "another user"),))


@pytest.mark.holds("deletes-own-run")
@pytest.mark.parametrize(
    ("folder", "deleted"), [*((folder, True) for folder in THEIRS), ("{home}/.muster/runs/r1", False)]
)
def test_a_run_that_still_has_its_own_container_is_not_deleted(hostile, folder, deleted) -> None:
    server = hostile({"delete": b"deleted 3 4\n", "audit": b""}).servers["evil"]
    own = json.loads(at_home(samples.container(), server))
    server.engine = FakeEngine([theirs_of(own, folder, server)])
    with session.open_all([Host("evil", "127.0.0.1", server.port)]) as opened:
        (evil,) = opened.all().values()
        if deleted:
            assert delete.delete_folder(evil, RunId("r1")) == delete.Deleted(3, 4096)
        else:
            with pytest.raises(DeployError, match="nothing was deleted"):
                delete.delete_folder(evil, RunId("r1"))
