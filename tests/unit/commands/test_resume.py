"""`muster resume` starts a run as it was last started; what is typed now takes precedence."""

import pytest

from deploy.commands import start
from deploy.core.errors import UsageError
from deploy.hosts.start import deploy
from deploy.hosts.start.resume import resume_fields
from deploy.job.options import Options
from deploy.local import up
from deploy.report.console import Console
from deploy.run.files import folders, record

GIVEN = Options(image="team/train:1", env=("LR=3",), nproc="2", min_nodes="2")


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Returns a function: record a run started with options, and return the options that its resume asks for."""
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    asked = []
    for module, name in ((deploy, "deploy"), (up, "up")):
        monkeypatch.setattr(module, name, lambda options, console: asked.append(options) or 0)

    def resumed(backend, again, typed, hosts=()):
        folder = tmp_path / "runs" / "r1"
        folder.mkdir(parents=True)
        fields = {"script": True, "hosts": list(hosts), **resume_fields(again)}
        record.open_start(folder, record.Choice(None, ("train.py",)), backend, "why", ["a"], 1.0, fields)
        start.resume.work(typed, Console())
        return asked[0]

    return resumed


def test_a_run_on_hosts_has_the_options_of_its_last_start(started):
    asked = started(record.HOSTS, GIVEN, Options(detach=True), "abc")
    assert asked.hosts == "a,b,c"
    assert asked.resume == "r1"
    assert asked.detach
    assert (asked.image, asked.env, asked.nproc, asked.min_nodes) == ("team/train:1", ("LR=3",), "2", "2")


def test_a_resume_on_fewer_hosts_drops_min_nodes(started):
    asked = started(record.HOSTS, GIVEN, Options(hosts="a,c"), "abc")
    assert (asked.hosts, asked.image, asked.min_nodes) == ("a,c", "team/train:1", "")


def test_what_is_typed_takes_precedence_over_the_record(started, monkeypatch):
    monkeypatch.setenv("NEW", "sesame-4711")
    asked = started(record.HOSTS, Options(secret=("OLD",), env=("LR=3",)), Options(secret=("NEW",)), "a")
    assert (asked.secret, asked.env) == (("NEW",), ("LR=3",))


def test_a_local_run_has_the_options_of_its_last_start_too(started):
    asked = started("processes", Options(env=("LR=3",), nproc="2"), Options())
    assert (asked.resume, asked.env, asked.nproc) == ("r1", ("LR=3",), "2")


def test_a_resume_uses_what_the_cluster_file_says_about_its_hosts(started, allowed, tmp_path):
    """The record has the hosts' destinations; the file has more hosts, and a jump host for this one."""
    rows = ('name = "gpu-a"\naddress = "10.0.0.1"\ngateway = "jump"', 'name = "gpu-b"\naddress = "10.0.0.2"')
    (tmp_path / "cluster.toml").write_text("".join(f"[[hosts]]\n{row}\n" for row in rows))
    asked = started(record.HOSTS, Options(), Options(), ["10.0.0.1"])
    (host,) = start.load_cluster(asked).hosts
    assert (host.name, host.gateway) == ("gpu-a", "jump")


def test_a_word_that_names_no_run_is_reported_as_both_run_and_host(started):
    """`muster resume sweep2`, a typing error, once got an answer about --hosts, which nobody had typed."""
    with pytest.raises(
        UsageError, match=r"^sweep2: no run of that name is here; --hosts: r1 is not a run on hosts"
    ) as refused:
        started("processes", Options(), Options(hosts="sweep2"))
    assert "`muster runs` lists the runs" in refused.value.hint
