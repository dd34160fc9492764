"""The Python API: what it imports, refuses and prints. tests/cluster/test_python_api.py runs it on hosts."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy import api
from deploy.core.errors import USAGE
from deploy.job.options import Options
from deploy.report.interrupts import Interrupts
from deploy.report.recorder import Recorder

HOME = Path(__file__).resolve().parents[2]


def python(code, **more):
    return subprocess.run([sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, timeout=60, **more)


LOADED = """
import sys, muster
print([name for name in ('deploy', 'rich', 'fabric', 'invoke', 'paramiko') if name in sys.modules])
muster.Cluster
print([name for name in ('fabric', 'torch') if name in sys.modules])
import muster.deploy.api
print(muster.Cluster is muster.deploy.api.Cluster)
muster.Nothing
"""


@pytest.mark.long
def test_import_muster_loads_none_of_deploy_and_its_api_neither_fabric_nor_torch():
    done = python(LOADED)
    assert done.stdout == "[]\n[]\nTrue\n"
    assert "AttributeError" in done.stderr


@pytest.mark.long
def test_the_control_side_is_found_next_to_a_users_package_named_deploy(tmp_path):
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__init__.py").write_text("OWNER = 'the user'")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(HOME)!r}]; import muster, deploy\n"
    done = python(code + "print(muster.Cluster.__module__, deploy.OWNER)")
    assert done.stdout == "muster.deploy.api the user\n", done.stderr


def test_without_the_control_side_its_names_raise_an_error_that_says_so(tmp_path):
    """The control side is missing, for example, in the ranks of a container."""
    shutil.copytree(HOME / "muster", tmp_path / "muster")
    done = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import muster; muster.Cluster")
    assert "ImportError: the control side of Muster is not installed here" in done.stderr


@pytest.mark.parametrize(
    "refused",
    [
        lambda cluster: cluster.deploy("nothing.py", folder=HOME),
        lambda cluster: cluster.deploy("python -O train.py", folder=HOME),
        lambda cluster: cluster.deploy("train.py", env={"A": "1,B=2"}),
        lambda cluster: cluster.deploy("train.py", env={"MUSTER_RUN_ID": "x"}),
        lambda cluster: cluster.deploy("train.py", colour="red"),
        lambda cluster: cluster.run("../x"),
        lambda cluster: cluster.run(""),
        # An unset variable; each of these once meant all of something.
        *(lambda cluster, run=run: cluster.down(run) for run in ("", " ", None, "latest")),
        *(lambda cluster, hosts=hosts: api.Cluster(hosts) for hosts in ("", " ", [], ["a", ""], ["a", None])),
        lambda cluster: api.Cluster(file=""),
        lambda cluster: api.Cluster(slurm=" "),
        *(lambda cluster, text=text: cluster.deploy(text) for text in ("", " ", [])),
        lambda cluster: cluster.deploy("train.py", image=" "),
        lambda cluster: cluster.deploy("train.py", secrets=[""]),
        lambda cluster: cluster.run("r").fetch(only=""),
        lambda cluster: cluster.run("r").logs(rank=""),
        lambda cluster: cluster.run("r").logs(since=" "),
    ],
)
def test_a_refusal_is_an_exception_with_a_hint_and_prints_nothing(refused, capfd):
    with pytest.raises(api.UsageError) as refusal:
        refused(api.Cluster("a,b"))
    assert refusal.value.code == USAGE
    assert refusal.value.hint
    assert capfd.readouterr() == ("", "")


def test_a_slurm_cluster_refuses_what_slurm_does_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster = api.Cluster(slurm="me@login:22")
    assert cluster.hosts == ("login",)
    for refused in (
        lambda: api.Cluster("a", slurm="login"),
        lambda: cluster.deploy("train.py", colour="red"),
        lambda: cluster.deploy("train.py", keep=["/data"]),
        lambda: cluster.deploy("train.py", force=True),
        lambda: cluster.deploy("train.py", secrets=["A"]),
        cluster.status,
        cluster.down,
        cluster.run("r1").wait,
        cluster.run("r1").logs,
        cluster.run("r1").delete,
    ):
        with pytest.raises(api.UsageError) as refusal:
            refused()
        assert refusal.value.hint


def test_hosts_are_given_as_text_as_a_list_or_in_the_file(tmp_path):
    (tmp_path / "mine.toml").write_text('[[hosts]]\nname = "x"\n')
    assert api.Cluster("a, me@b:22").hosts == api.Cluster(["a", "me@b:22"]).hosts == ("a", "b")
    with pytest.raises(api.UsageError, match="that only you can allow"):
        api.Cluster(file=tmp_path / "mine.toml")
    assert api.Cluster(file=tmp_path / "mine.toml", allow_folder=True).hosts == ("x",)
    assert api.Cluster(file=tmp_path / "mine.toml").hosts == ("x",), "the answer is kept"
    with pytest.raises(api.UsageError):
        api.Cluster("a,a")


def test_deploy_accepts_every_option_except_those_the_api_sets_itself():
    cluster = api.Cluster("a")
    read = cluster._deploy_options
    assert read({"keep": ["/data"], "no_observe": True}) == Options("a", keep=("/data",), no_observe=True)
    every = {"folder": Path("x"), "env": {"A": 1}, "secrets": ["S"], "mounts": ["/a:/a"], "nproc": 2, "force": True}
    as_typed = {"folder": "x", "env": ("A=1",), "secret": ("S",), "mount": ("/a:/a",), "nproc": "2", "force": True}
    assert read(every) == Options("a", **as_typed)
    assert read({"each": "spawn.py", "style": "mpi", "env": None}) == Options("a", each="spawn.py", style="mpi")
    assert read({"keep": "/data", "gpus": 2}) == Options("a", keep=("/data",), gpus="2")
    assert read({"env_files": ".env"}) == read({"env_file": [".env"]}), "as it was called before"
    assert read({"spare": ["b", "c"], "min_nodes": 2}) == Options("a", spare="b,c", min_nodes="2")
    for name in ("dry_run", "name", "hosts", "script", "no_such", "rank"):
        with pytest.raises(api.UsageError, match=f"deploy\\(\\) has no option {name}"):
            read({name: True})
    with pytest.raises(api.UsageError, match="--nodes cannot be used without --slurm"):
        read({"nodes": 2})


def test_one_pattern_of_a_fetch_may_be_a_text(monkeypatch):
    """Once, `only="work/*.pt"` became a pattern for each of its letters."""
    fetched = []
    monkeypatch.setattr(api.fetch, "fetch", lambda options, console: fetched.append(options.only))
    for only in ("work/*.pt", ["work/*.pt"], ()):
        api.Cluster("a").run("r").fetch(only)
    assert fetched == [("work/*.pt",), ("work/*.pt",), ()]


def test_a_notebook_shows_the_options_of_a_deploy():
    shown = inspect.signature(api.Cluster.deploy).parameters
    assert {"script", "show", "folder", "secrets", "max_hours", "nodes"} <= set(shown)
    assert not {"hosts", "detach", "secret", "options"} & set(shown)


def test_closing_a_stream_ends_its_work():
    over_seen = threading.Event()

    def work(tell, over):
        while not over():
            tell({"kind": "step"})
        over_seen.set()

    stream = api._streamed(work)
    assert next(stream) == {"kind": "step"}
    stream.close()
    assert over_seen.wait(10)


def test_a_fault_in_the_thread_of_a_stream_reaches_its_reader():
    def work(tell, over):
        tell({"kind": "step"})
        raise api.DeployError("lost", "look")

    stream = api._streamed(work)
    next(stream)
    with pytest.raises(api.DeployError, match="lost"):
        next(stream)


def test_warnings_go_to_the_logger_and_not_to_the_terminal(capfd, caplog):
    console = Recorder(lambda event: None)
    console.warn("the ranks may not train together")
    assert [(record.name, record.levelname) for record in caplog.records] == [("muster", "WARNING")]
    assert capfd.readouterr() == ("", "")


def test_in_a_thread_the_signal_handlers_are_left_alone():
    failed = []

    def work():
        try:
            with Interrupts(Recorder(lambda event: None), "working"):
                pass
        except ValueError as fault:
            failed.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
