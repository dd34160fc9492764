"""`muster up` in containers: the same run and record as elsewhere, and nothing left behind whatever happens."""

import json
import shlex
import signal
import subprocess

import pytest

from lab.waiting import events, lines, until
from muster.checkpoint import store
from tests.checkout import FAB, Checkout

LONG = "--steps 20000 --checkpoint-every 20 --eval-every 0"


@pytest.fixture
def checkout(image, tmp_path):
    made = Checkout(tmp_path)
    yield made
    for folder in made.folders():
        if ids := containers(folder.name):
            subprocess.run(["docker", "rm", "-f", *ids], check=True)


def docker(*words):
    """What a docker command prints, as a list of words."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.split()


def containers(run_id, *options):
    """The ids of a run's containers."""
    return docker("ps", "--all", "--quiet", "--filter", f"label=muster.run={run_id}", *options)


def nothing_left(run_id):
    """Whether the run has no containers and no networks left."""
    return not containers(run_id) and not docker("network", "ls", "-q", "--filter", f"label=muster.run={run_id}")


def node(run_id, service, number=1):
    """The container of one node."""
    (container,) = containers(
        run_id,
        "--filter",
        f"label=com.docker.compose.service={service}",
        "--filter",
        f"label=com.docker.compose.container-number={number}",
    )
    return container


def listens(container):
    """The addresses, as numbers, on which a container's processes listen; 0 means every address."""
    sockets = docker("exec", container, "awk", '$4 == "0A" { print $2 }', "/proc/net/tcp", "/proc/net/tcp6")
    return {int(address.partition(":")[0], 16) for address in sockets}


def test_containers_train_to_the_end_with_rank_0_on_the_master(checkout):
    code, _, err = checkout.up("--args=--steps 60", backend="docker")
    assert code == 0, err
    (folder,) = checkout.folders()
    places = {rank: events(folder, rank, "started")[0]["node"] for rank in range(3)}
    assert places == {0: "master", 1: "worker-1", 2: "worker-2"}
    assert json.loads((folder / "outcome.json").read_text())["verdict"] == "done"
    for name in ("master", "worker-1", "worker-2"):
        assert (folder / f"logs/{name}.log").is_file()
    assert (folder / "report.html").is_file()
    assert nothing_left(folder.name)


def test_two_runs_started_in_the_same_minute_have_separate_containers(checkout, tmp_path):
    other = Checkout(tmp_path / "other")
    started = []
    for name, each in (("first", checkout), ("second", other)):
        (each.home / "project").mkdir()
        (each.home / "project/train.py").write_text(f"print('this is {name}')\n")
        started.append(each.start("--workers=0", "--folder=project", "--script=train.py", backend="docker"))
    for name, process in zip(("first", "second"), started, strict=True):
        out, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
        assert f"this is {name}" in out
    assert all(nothing_left(folder.name) for folder in (*checkout.folders(), *other.folders()))


ALONE = """
import torch
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
optimizer.step()
"""


@pytest.mark.parametrize(("options", "code"), [(["--separate"], 0), ([], 1)])
def test_nodes_in_containers_train_separately_only_if_asked(checkout, options, code):
    (checkout.home / "project").mkdir()
    (checkout.home / "project/train.py").write_text(ALONE)
    wanted = ("--workers=1", "--folder=project", "--script=train.py", *options)
    ended, _, err = checkout.up(*wanted, backend="docker")
    assert ended == code, err
    assert ("trained alone" in err) == bool(code)


def test_ctrl_c_stops_containers_with_a_checkpoint_and_resume_continues_with_more_nodes(checkout):
    run = checkout.start("--workers=1", f"--args={LONG}", backend="docker")
    folder = checkout.training(step=40)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 75, err
    assert nothing_left(folder.name)
    at = store.newest_usable(folder / "checkpoints")[0].manifest.step
    code, _, err = checkout.up("--workers=2", "--resume=latest", f"--args=--steps {at + 20}", backend="docker")
    assert code == 0, err
    resumed = events(folder, 0, "resumed")[-1]
    assert resumed["step"] == at
    assert "world size 2 -> 3" in resumed["changes"][0]
    assert nothing_left(folder.name)


@pytest.mark.parametrize("service", ["worker", "master"])
def test_a_killed_container_restarts_and_the_run_succeeds(checkout, service):
    run = checkout.start("--workers=1", "--args=--steps 400 --checkpoint-every 20 --eval-every 0", backend="docker")
    folder = checkout.training(step=40)
    # Kill all of the node, as a crash would. The engine was not asked to stop it, so the engine restarts it.
    pid = docker("inspect", "--format", "{{.State.Pid}}", node(folder.name, service))[0]
    subprocess.run(["kill", "-9", pid], check=True)
    _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert service in err
    assert len(events(folder, 0, "started")) >= 2
    assert lines(folder / "metrics.jsonl")[-1]["step"] == 400
    assert nothing_left(folder.name)


@pytest.mark.holds("meeting-address-alone")
def test_when_the_control_side_is_killed_down_cleans_up(checkout):
    run = checkout.start("--workers=1", f"--args={LONG}", backend="docker")
    folder = checkout.training()
    addresses = [listens(container) for container in containers(folder.name, "--filter", "status=running")]
    assert len(addresses) == 2
    assert all(addresses)
    assert not any(0 in ports for ports in addresses)
    run.kill()
    run.communicate()
    assert containers(folder.name)
    down = subprocess.run([FAB, "down"], cwd=checkout.home, capture_output=True, text=True, timeout=90)
    assert down.returncode == 0, down.stderr
    until(lambda: nothing_left(folder.name), "nothing to be left", 10)
    assert store.newest_usable(folder / "checkpoints")[0]


def test_a_recipe_of_the_users_own_trains_in_containers(checkout):
    recipe = checkout.home / "mine.py"
    recipe.write_text(
        "import torch\nfrom torch import nn\nfrom torch.utils.data import TensorDataset\n"
        "def model(): return nn.Linear(3, 1)\n"
        "def datasets(data):\n"
        "    x = torch.ones(40, 3)\n"
        "    return TensorDataset(x, x.sum(1, keepdim=True)), TensorDataset(x, x.sum(1, keepdim=True))\n"
        "def loss(model, batch): return (model(batch[0]) - batch[1]).square().mean()\n"
    )
    code, _, err = checkout.up("--workers=1", "--args=--recipe mine.py --steps 20 --batch 8", backend="docker")
    assert code == 0, err


KEEPS = """
import os
run = os.environ["MUSTER_RUN_DIR"]
try:
    os.symlink("/etc", run + "/keep/planted")
except OSError as fault:
    print("refused", fault.errno, flush=True)
again = os.path.exists("/data/out/first")
account, cache = "/run/secrets/account.json", os.environ["HF_HOME"]
print("file:", oct(os.stat(account).st_mode), open(account).read(), flush=True)
os.makedirs(cache, exist_ok=True)
open(cache + "/weights", "a").write("x")
open("/data/out/" + ("second" if again else "first"), "w").write("kept")
if not again:
    raise ValueError("bad sample 7")
"""


def test_dollar_signs_in_options_are_not_expanded_by_compose(checkout, monkeypatch):
    """compose expands `$NAME` in its files: in a value or folder name, that would insert a variable of this shell."""
    monkeypatch.setenv("TOKEN", "sesame-4718")
    data = checkout.home / "of $TOKEN"
    (project := checkout.home / "project").mkdir()
    data.mkdir()
    (data / "file").touch()
    (project / "train.py").write_text("import os; print(os.environ['A'], os.environ['B'], os.listdir('/data'))")
    given = ("--env=A=$TOKEN", "--env=B=a$${X", f"--data={data}:/data")
    code, out, err = checkout.up("--script=train.py", "--folder=project", *given, backend="docker")
    assert code == 0, err
    assert "$TOKEN a$${X ['file']" in out


def test_a_script_in_a_container_keeps_a_path_and_a_cache_and_restarts_as_asked(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    (tmp_path / "account.json").write_text("sesame-4718-account")
    project = checkout.home / "project"
    project.mkdir()
    (project / "train.py").write_text(KEEPS)
    options = ("--script=train.py", "--folder=project", "--run=kept", "--keep=/data/out", "--restarts=1")
    secret = f"--secret-file=account.json={tmp_path}/account.json"
    code, out, err = checkout.up(*options, secret, backend="docker")
    assert code == 0, err
    assert out.count("file: 0o100400 ***") == 2
    assert (tmp_path / "caches/muster/containers/huggingface/weights").read_text() == "xx"
    assert subprocess.run(["grep", "-rlF", "sesame-4718", checkout.runs], capture_output=True, text=True).stdout == ""
    folder = checkout.runs / "kept"
    assert {path.name for path in (folder / "keep/data/out").iterdir()} == {"first", "second"}
    assert "refused 30" in out, "the folder of what is kept is read-only"
    assert "the script starts again (restart 1): master (rank 0) ended with code 1: ValueError: bad sample 7" in err
    again = shlex.split(json.loads((folder / "record.json").read_text())["again"])
    asked = {"--restarts": "1", "--secret-file": f"account.json={tmp_path}/account.json", "--keep": "/data/out"}
    assert dict(zip(again[::2], again[1::2], strict=True)) == {"--folder": "project", **asked}
