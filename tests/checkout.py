"""A separate checkout for tests that drive `fab`: their runs neither meet nor leave anything in the real one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local import processes
from lab.waiting import events, until

HOME = Path(__file__).resolve().parents[1]
FAB = Path(sys.executable).with_name("fab")
_CODE = (
    "deploy",
    "trainer",
    "muster",
    "images",
    "requirements",
    "fabfile.py",
    "Dockerfile",
    ".dockerignore",
    "docker-compose.yml",
    "docker-compose.gpu.yml",
)


class Checkout:
    """A copy of the code, so that a test's runs neither meet nor leave anything in the real checkout."""

    def __init__(self, home):
        self.home, self.runs = home, home / "runs"
        home.mkdir(exist_ok=True)
        for name in _CODE:
            if (HOME / name).is_dir():
                shutil.copytree(HOME / name, home / name, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
            else:
                shutil.copy(HOME / name, home)
        self.runs.mkdir()

    def start(self, *options, backend="processes"):
        """Start `muster up` in the background."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_"))}
        return subprocess.Popen(
            [FAB, "up", f"--backend={backend}", *options],
            cwd=self.home,
            env={**variables, "PYTHONPATH": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def up(self, *options, backend="processes"):
        """Run `muster up` to its end; returns exit code, standard output and standard error."""
        started = self.start(*options, backend=backend)
        out, err = started.communicate(timeout=150)
        return started.returncode, out, err

    def folders(self):
        """The run folders, oldest first."""
        return sorted(path for path in self.runs.glob("*") if not path.is_symlink() and path.is_dir())

    def left(self):
        """The processes that any run of this checkout has left."""
        return processes.runs_alive(self.runs)

    def training(self, step=1):
        """Wait until the newest run has trained `step` steps; returns its folder."""
        until(lambda: self.folders() and any(e["step"] >= step for e in events(self.folders()[-1], 0, "step")), "steps")
        return self.folders()[-1]
