"""What is sent to the cluster with a job while somebody keeps editing the folder that is sent."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.job.options import Options
from deploy.slurm.backend import SlurmBackend
from deploy.slurm.plan import JobRequest


class Login:
    """A login node that accepts what it is sent; `meanwhile` is called once everything has arrived."""

    def __init__(self, meanwhile):
        self.shared, self.host = "/home/u", SimpleNamespace(name="login")
        self.session, self.put_there, self._meanwhile = self, {}, meanwhile

    def run(self, _, input=(), **__):
        self.stream = b"".join(input)
        self._meanwhile()
        return SimpleNamespace(out="")

    def put(self, data, path, mode=0o600):
        self.put_there[path.rpartition("/")[2]] = data


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)\n")
    return tmp_path / "code"


def backend(folder, login):
    order = JobRequest(Options(slurm="login"), 1, ("muster", "agent", "--script=train.py"), folder=folder)
    return SlurmBackend(login, folder.parent / "r1", "", pytest.fail, order=order)


def test_the_list_of_sent_files_describes_the_bytes_that_were_sent(folder):
    """Earlier, the list was made after sending: the next edit was later fetched as a file written by the script."""
    login = Login(lambda: (folder / "train.py").write_text("print(2)\n"))
    backend(folder, login)._bring()
    digest, size, _ = json.loads(login.put_there["sent.json"])["train.py"]
    assert b"print(1)\n" in login.stream
    assert (digest, size) == (hashlib.sha256(b"print(1)\n").hexdigest(), 9)


def test_a_file_that_is_deleted_after_it_was_sent_is_no_fault(folder):
    """Earlier this gave a traceback, and the whole folder was removed again."""
    login = Login((folder / "train.py").unlink)
    backend(folder, login)._bring()
    assert "job.sbatch" in login.put_there


def test_a_file_that_is_deleted_before_it_is_sent_is_refused_in_words(folder, monkeypatch):
    from deploy.send.folder import folder_look

    look = folder_look.look_at

    def gone(*asked):
        found = look(*asked)
        (folder / "train.py").unlink()
        return found

    monkeypatch.setattr(folder_look, "look_at", gone)
    with pytest.raises(DeployError, match=r"train\.py"):
        backend(folder, Login(lambda: None))._bring()
