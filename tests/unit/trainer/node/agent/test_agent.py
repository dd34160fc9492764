"""The agent gives torchrun addresses that put rank 0 on the master, whatever the addresses are."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.ports import free_port
from muster.errors import DONE, STOPPED, Refused, TrainError
from muster.reserve import JOURNAL, note
from tests.started import started
from trainer.node.agent import node
from trainer.node.agent.agent import observe_stop, torchrun_command, torchrun_environment
from trainer.node.agent.diary import Diary
from trainer.node.agent.limit import Limit
from trainer.node.ending.rank_lives import Life
from trainer.node.membership import all_nodes, meeting
from trainer.node.membership.meeting import resolve
from trainer.node.notes import Journal

HOME = Path(__file__).resolve().parents[5]
MASTER = {"PET_RDZV_CONF": "is_host=1,last_call_timeout=1", "PET_NODE_RANK": "0"}


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_rank_0_is_on_the_master_whatever_its_address(address):
    endpoint = {"PET_RDZV_ENDPOINT": f"{address}:{free_port()}", "PET_NNODES": "300"}
    numbers = (1, 2, 9, 10, 200)
    master = torchrun_environment({**MASTER, **endpoint}, "master")
    workers = [torchrun_environment({**endpoint, "PET_NODE_RANK": str(n)}, f"worker-{n}") for n in numbers]
    assert [node["PET_NODE_RANK"] for node in (master, *workers)] == ["0", *map(str, numbers)]
    assert {node["PET_LOCAL_ADDR"] for node in (master, *workers)} == {address.strip("[]")}, "each listens there alone"


def test_torchs_own_torchrun_sorts_the_nodes_by_their_addresses_as_text():
    shared = {"PET_RDZV_ENDPOINT": "127.0.0.1:1", "PET_NNODES": "300", "MUSTER_PLAIN_TORCHRUN": "1"}
    made = [torchrun_environment({**shared, "PET_NODE_RANK": str(n)}, f"host-{n}") for n in (0, 1, 9, 10, 200)]
    order = [node["PET_LOCAL_ADDR"] for node in made]
    assert sorted(order) == order, "every IP literal comes before `node-`"


def test_a_scaled_workers_number_comes_from_its_name():
    shared = {"PET_RDZV_ENDPOINT": "127.0.0.1:1", "PET_NNODES": "8", "PET_RDZV_CONF": "is_host=0"}
    assert torchrun_environment(shared, "worker-7")["PET_NODE_RANK"] == "7"
    with pytest.raises(Refused, match="worker-8: there is no node 8 among 8 nodes"):
        torchrun_environment(shared, "worker-8")


def test_nodes_without_numbers_get_their_places_from_the_node_that_can_listen():
    shared = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "PET_NNODES": "3", "PET_RDZV_ID": "job"}
    assert "PET_NODE_RANK" not in torchrun_environment(shared, "pod-1")
    nodes = [all_nodes.join(shared) for _ in range(3)]
    try:
        assert [each._place for each in nodes] == [0, None, None]
    finally:
        nodes[0].close()


def test_a_name_becomes_an_ip_literal():
    port = free_port()
    made = torchrun_environment({**MASTER, "PET_RDZV_ENDPOINT": f"localhost:{port}"}, "master")
    assert made["PET_RDZV_ENDPOINT"] == f"127.0.0.1:{port}"


def test_an_address_that_the_user_set_is_kept():
    given = {"PET_RDZV_ENDPOINT": "127.0.0.1:1", "PET_LOCAL_ADDR": "10.0.0.7", "PET_NNODES": "2"}
    assert torchrun_environment(given, "worker-1")["PET_LOCAL_ADDR"] == "10.0.0.7"


def test_a_busy_rendezvous_port_is_refused_by_the_master():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=str(port)):
            all_nodes.join({**MASTER, "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_NNODES": "2"})


def test_a_host_without_an_address_is_named():
    with pytest.raises(TrainError, match="no-such-host"):
        resolve("no-such-host.invalid", 0.2)


@pytest.mark.torch
@pytest.mark.parametrize("kind", [[], ["-m"], ["--no-python"]])
def test_torchrun_takes_no_argument_of_the_script_for_its_own(tmp_path, monkeypatch, kind):
    """`--run` abbreviates torchrun's --run-path and --run_path: argparse calls it ambiguous, even after the script."""
    from torch.distributed.run import parse_args

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    words = ["--run=dummy", "--n", "3", "-t", "--", "-m", "x"]
    read = parse_args(torchrun_command(["--script", *kind, "train.py", *words])[5:])
    assert (read.training_script, read.training_script_args) == ("train.py", words)
    assert (read.module, read.no_python) == (kind == ["-m"], kind == ["--no-python"])


@pytest.mark.parametrize("script", [[], ["gone.py", "--lr", "1"]])
def test_a_missing_script_is_refused_before_torchrun_starts(script):
    with pytest.raises(Refused, match="script"):
        torchrun_command(["--script", *script])


def test_a_process_is_waited_for_on_a_kernel_without_pidfd_open(monkeypatch):
    def refused(pid):
        raise OSError(errno.ENOSYS, "not in this kernel")

    monkeypatch.setattr(os, "pidfd_open", refused)
    with started([sys.executable, "-c", ""]) as ended:
        node._wait(ended, 30.0)
        assert ended.returncode == 0


def test_a_run_whose_ranks_stopped_as_asked_is_not_done_even_if_torchrun_ended_first(tmp_path):
    diary = SimpleNamespace(first_failure=float("inf"), lives=[])
    here = node.Node(["torchrun"], {"MUSTER_ALL_SIGNALLED": "1"}, tmp_path, diary, None, relay=True)
    here._ask(15)
    assert here._code(0) == 0, "they may have been done before they heard of it"
    (tmp_path / JOURNAL).write_bytes(b'\xff\n{"stops": {}, "listens": []}\n{"verdict": {"code": 7}, "by": 1}\n')
    assert here._code(0) == 0, "a script may write there"
    note(tmp_path, stops="0", stopped=True)
    assert here._code(0) == 75


def living(tmp_path, *lives):
    """Return the processes that a node with these lives asks to stop."""
    diary = SimpleNamespace(lives=lives, run_folder=None)
    return node.Node(["torchrun"], {}, tmp_path, diary, None, relay=True)._living()


def test_a_stop_reaches_a_listening_rank_and_no_later_process_with_its_number(tmp_path):
    words = "import muster.stop; muster.stop.Stop().listen(0); print(flush=True); input()"
    told = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started([sys.executable, "-c", words], env=told, cwd=HOME, **pipes) as rank:
        rank.stdout.readline()
        assert living(tmp_path) == [rank.pid]
        (row,) = Journal(tmp_path).read()
        rank.stdin.close()
    assert living(tmp_path) == []
    note(tmp_path, **{**row, "listens": os.getpid()})
    assert living(tmp_path) == [], "its number went to somebody else"


def test_a_rank_of_another_user_does_not_crash_the_agent(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refused)
    assert living(tmp_path, Life(0, 0, 0, 1, 4711, began=1.0)) == [4711]


def test_a_node_without_a_route_to_the_first_node_says_so(monkeypatch):
    def no_way(*_):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(meeting, "local_address", no_way)
    with pytest.raises(TrainError, match=r"worker-1 has no route to 10.0.0.1: Network is unreachable"):
        torchrun_environment({"PET_RDZV_ENDPOINT": "10.0.0.1:1", "PET_NNODES": "2"}, "worker-1")


@pytest.mark.parametrize(("given", "named"), [("gpu-a", "gpu-a:29500"), ("[fd00::1]", "[fd00::1]:29500")])
def test_a_rendezvous_endpoint_without_a_port_is_refused(given, named):
    with pytest.raises(TrainError, match="no port in PET_RDZV_ENDPOINT") as refused:
        torchrun_environment({"PET_RDZV_ENDPOINT": given, "PET_NNODES": "2"}, "worker-1")
    assert refused.value.hint == f"give one: {named}"


@pytest.mark.parametrize("asked", [True, False])
def test_a_stop_requested_before_this_node_listened_is_obeyed(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(node.signal, "signal", lambda *_: None)
    (outcome := tmp_path / "outcome").mkdir()
    if asked:
        (tmp_path / ".stop").touch()
    diary = Diary(tmp_path, "n1", outcome, lambda *_: 0, ())
    here = node.Node(
        ["sleep", "60" if asked else "1"],
        {"MUSTER_ALL_SIGNALLED": "1"},
        outcome,
        diary,
        Limit(tmp_path, "n1", {}),
        relay=True,
    )
    assert here.run() == (STOPPED if asked else DONE)


@pytest.mark.parametrize(("first", "errors"), [(0, {0: "OSError: no room"}), (1, {})])
def test_a_rank_that_fails_at_a_stop_is_blamed_only_if_its_peer_ended_well(tmp_path, first, errors):
    """If the peer failed, the rank may only have lost it. The agent may see the peer's end one look earlier."""
    for rank in (0, 1):
        note(tmp_path, local_rank=rank, rank=rank, attempt=0, world=2, pid=10 + rank, t=1.0)
    note(tmp_path, local_rank=1, code=first, t=10.0)
    note(tmp_path, local_rank=0, code=1, t=10.2)
    diary = Diary(None, "n1", tmp_path)
    diary.record_news(lambda local_rank: "" if local_rank else "OSError: no room\n")
    assert observe_stop(SimpleNamespace(diary=diary, asked_at=5.0, grace=20.0)).errors == errors


@pytest.mark.torch
@pytest.mark.long
def test_files_written_into_the_image_are_saved_though_the_clock_was_set_back(tmp_path):
    """The clock ran an hour ahead when the node began, so the file is older than the node's start."""
    image, clock = tmp_path / "image", tmp_path / "clock"
    image.mkdir()
    clock.mkdir()
    is_right = f"os.path.exists({str(image / 'model.txt')!r})"
    words = f"import os, time\nnow = time.time\ntime.time = lambda: now() + 3600 * (not {is_right})\n"
    (clock / "sitecustomize.py").write_text(words)
    (image / "train.py").write_text("open('model.txt', 'w').write('trained')\n")
    environment = {**os.environ, "PYTHONPATH": f"{HOME}:{clock}", "MUSTER_RUN_DIR": str(tmp_path / "run")}
    environment |= {"MUSTER_NODE": "here", "MUSTER_SAVE_CHANGES": "1", "PET_MASTER_PORT": "0"}
    line = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    subprocess.run(line, cwd=image, env=environment, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "run/work/model.txt").read_text() == "trained"


def test_a_script_name_with_a_trailing_slash_is_refused(tmp_path, monkeypatch):
    """Tab completion adds the slash for a folder of that name; the user got a traceback from torchrun's process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").touch()
    with pytest.raises(Refused, match=r"no such script: t\.py/"):
        torchrun_command(["--script", "t.py/"])
