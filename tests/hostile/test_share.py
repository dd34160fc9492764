"""Files that only other hosts of a run have, copied between hosts, also where one means harm."""

import os
import tarfile

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import RunId
from deploy.door.session import open_all
from deploy.hosts import share
from deploy.job.cluster import from_flag
from deploy.report.console import Console
from tests.hostile.server import Answer, look
from tests.hostile.test_fetch import archive, listed, member


@pytest.fixture
def rig(hostile):
    made = hostile({"look": look(runs=["R"])}, other={"look": look(runs=["R"])})
    made.run, made.target = (made.servers[name].home / ".muster/runs/R" for name in ("evil", "other"))
    (made.run / "work").mkdir(parents=True)
    (made.run / "work/ckpt.pt").write_bytes(os.urandom(300_000))
    (made.run / "work/log.txt").write_text("evil's")
    return made


def shared(rig):
    with open_all(from_flag("evil,other").hosts) as opened:
        share.share(list(opened.all().values()), RunId("R"), Console())
    assert rig.harm() == []


def test_what_one_host_lacks_comes_to_it_in_one_file_for_its_node(rig, capsys):
    (rig.target / "work").mkdir(parents=True)
    (rig.target / "work/log.txt").write_text("the other's")
    shared(rig)
    with tarfile.open(rig.target / ".others-evil.tar") as tar:
        names = [entry.name for entry in tar if entry.isreg()]
        assert tar.extractfile(names[0]).read() == (rig.run / "work/ckpt.pt").read_bytes()
    assert names == ["./work/ckpt.pt"]
    assert not (rig.run / ".others-good.tar").exists()
    assert "each host keeps its own work/log.txt" in capsys.readouterr().err


def test_two_hosts_that_each_lack_a_file_of_the_other_swap_them(rig):
    (rig.target / "work").mkdir(parents=True)
    (rig.target / "work/other.txt").write_text("the other's")
    shared(rig)
    for place, source, names in (
        (rig.target, "evil", ["./work/ckpt.pt", "./work/log.txt"]),
        (rig.run, "other", ["./work/other.txt"]),
    ):
        with tarfile.open(place / f".others-{source}.tar") as tar:
            assert sorted(entry.name for entry in tar if entry.isreg()) == names


def test_a_host_that_has_nothing_of_the_run_yet_gets_all(rig):
    shared(rig)
    with tarfile.open(rig.target / ".others-evil.tar") as tar:
        assert sorted(entry.name for entry in tar if entry.isreg()) == ["./work/ckpt.pt", "./work/log.txt"]


@pytest.mark.holds("shared-inside")
def test_a_host_that_sends_more_than_it_listed_is_cut_off(rig):
    rig.servers["evil"].answers["list-files"] = listed(("work/ckpt.pt", 1000))
    endless = (member("work/ckpt.pt", b"x" * 50_000) for _ in range(10_000))
    rig.servers["evil"].answers["take-home"] = lambda asked: Answer(endless)
    with pytest.raises(DeployError, match="it sends more of R than it listed"):
        shared(rig)


@pytest.mark.holds("shared-inside")
def test_a_run_folder_that_is_a_link_on_the_other_host_gets_nothing(rig):
    (rig.target.parent).mkdir(parents=True)
    (rig.servers["other"].home / "project").mkdir()
    rig.target.symlink_to(rig.servers["other"].home / "project")
    with pytest.raises(DeployError):
        shared(rig)
    assert not list((rig.servers["other"].home / "project").iterdir())


def test_a_host_that_stops_taking_ends_it(rig):
    rig.servers["other"].answers["take-in"] = Answer(b"", b"No space left on device\n", 1)
    rig.servers["evil"].answers["take-home"] = lambda asked: Answer(archive(member("work/ckpt.pt", b"x" * 300_000)))
    with pytest.raises(DeployError, match="other"):
        shared(rig)
