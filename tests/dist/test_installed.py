"""The installed wheel trains, looks and explains: from an empty folder, and from one full of modules of its names."""

import pytest

from lab.waiting import events
from tests import installed

NAMES = ("deploy", "trainer", "muster", "torch", "random")


@pytest.fixture(scope="module")
def muster(tmp_path_factory):
    """The installed command; torch and the other libraries are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    return installed.install_beside(installed.wheel(folder), folder / "venv")


@pytest.fixture(params=["empty", "modules of the same names"])
def folder(request, tmp_path):
    """A user's folder."""
    if request.param != "empty":
        for name in NAMES:
            (tmp_path / f"{name}.py").write_text(f'raise SystemExit("the user\'s {name}.py was imported")\n')
    return tmp_path


def typed(muster, folder, *words):
    """A command as typed in `folder`: what it did, which must be without fault."""
    done = installed.run(str(muster), *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


def test_up_trains_in_the_users_folder(muster, folder):
    typed(muster, folder, "up", "--backend=processes", "--workers=1", "--args=--steps 5")
    run = (folder / "runs/latest").resolve()
    assert run.parent == folder / "runs"
    for rank in (0, 1):
        assert events(run, rank, "started")
    assert (run / "checkpoints/step-00000005/manifest.json").exists()
    assert (run / "report.html").stat().st_size > 10_000


def test_a_recipe_of_the_users_folder_imports_what_lies_beside_it(muster, folder, recipe_file):
    (folder / "width.py").write_text("OF = 4\n")
    recipe_file("import width\nassert width.OF == 4")
    typed(muster, folder, "up", "--backend=processes", "--workers=1", "--args=--recipe mine.py --steps 2")


def test_preflight_looks_at_this_machine(muster, folder):
    assert "ready" in typed(muster, folder, "preflight", "--backend=processes", "--workers=1").stdout


def test_explain_reads_a_log(muster, folder):
    (folder / "rank-0.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert "memory" in typed(muster, folder, "explain", "rank-0.log").stdout
