"""Which of the files named by a failed rank a host has, asked with the same shell script that hosts run."""

import subprocess
from types import SimpleNamespace

from deploy.core.errors import DeployError
from deploy.hosts import nodes


class Session:
    """A host whose home is a local folder; if `home` is None, the host does not answer."""

    def __init__(self, name, home):
        self.name, self.host, self.home = name, SimpleNamespace(name=name), home

    def run(self, argv, **_):
        if self.home is None:
            raise DeployError("no answer")
        return SimpleNamespace(out=subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def test_a_host_reports_which_files_its_run_folder_has_and_a_silent_host_is_left_out(tmp_path):
    paths = ["work/a $(touch b).ckpt", "work/none.ckpt"]
    (tmp_path / "runs/r-1/work").mkdir(parents=True)
    (tmp_path / "runs/r-1" / paths[0]).write_text("x")
    sessions = [Session("a", str(tmp_path)), Session("b", str(tmp_path / "other")), Session("c", None)]
    assert nodes.existing_paths(sessions, "r-1", paths) == {"a": {paths[0]}, "b": frozenset()}
    assert nodes.existing_paths(sessions, "r-1", []) == {}
