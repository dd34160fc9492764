"""The installed wheel trains, checks and explains, in an empty folder and in one with modules of the same names."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.ports import free_port
from lab.waiting import events
from tests import installed

TRAIN = """
import torch
from torch.distributed import all_reduce, destroy_process_group, get_rank, get_world_size, init_process_group
init_process_group("gloo")
number = torch.tensor([1.0 + get_rank()])
all_reduce(number)
print("rank", get_rank(), "of", get_world_size(), "sum", number.item())
destroy_process_group()
"""
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}
LAUNCHERS = {
    "srun": {
        **STEP,
        "SLURM_STEP_NODELIST": "localhost,127.0.0.1",
        "SLURM_NODEID": "{place}",
        "SLURMD_NODENAME": "n{place}",
    },
    "Kubeflow's TrainJob": {"PET_NODE_RANK": "{place}", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29811"},
    "Kubeflow's PyTorchJob": {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "127.0.0.1:29812", "PET_RDZV_ID": "job"},
}
NAMES = ("deploy", "trainer", "muster", "torch", "random")


@pytest.fixture(scope="module")
def muster(tmp_path_factory):
    """The installed command; torch and the other libraries come from this environment."""
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
    """Run a command in `folder`; it must succeed."""
    done = installed.run(str(muster), *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_up_trains_in_the_users_folder(muster, folder):
    typed(muster, folder, "up", "--backend=processes", "--workers=1", "--args=--steps 5")
    run = (folder / "runs/latest").resolve()
    assert run.parent == folder / "runs"
    for rank in (0, 1):
        assert events(run, rank, "started")
    assert (run / "checkpoints/step-00000005/manifest.json").exists()
    assert (run / "report.html").stat().st_size > 10_000


def test_a_recipe_imports_a_module_next_to_it_in_the_users_folder(muster, folder, recipe_file):
    (folder / "width.py").write_text("OF = 4\n")
    recipe_file("import width\nassert width.OF == 4")
    typed(muster, folder, "up", "--backend=processes", "--workers=1", "--args=--recipe mine.py --steps 2")


def test_preflight_looks_at_this_machine(muster, folder):
    # Runs of other tests begin and end at the same time, and may take a port that was free when it was chosen.
    words = ("preflight", "--backend=processes", "--workers=1", f"--port={free_port()}")
    assert "ready" in typed(muster, folder, *words).stdout


def test_explain_reads_a_log(muster, folder):
    (folder / "rank-0.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert "memory" in typed(muster, folder, "explain", "rank-0.log").stdout


def test_an_agent_below_another_launcher_joins_the_others_through_its_variables(muster, tmp_path):
    """Each launcher starts one `muster agent` per node, and tells it in its own way where the nodes meet."""
    (tmp_path / "train.py").write_text(TRAIN)

    def node(launcher, place):
        given = {name: value.format(place=place) for name, value in LAUNCHERS[launcher].items()}
        given |= {} if launcher == "srun" else {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1"}
        return launcher, installed.run(str(muster), "agent", "--", "train.py", cwd=tmp_path, **given)

    with ThreadPoolExecutor(2 * len(LAUNCHERS)) as threads:
        ended = list(threads.map(node, [*LAUNCHERS, *LAUNCHERS], [0] * len(LAUNCHERS) + [1] * len(LAUNCHERS)))
    for launcher in LAUNCHERS:
        said = "".join(done.stdout for name, done in ended if name == launcher)
        assert {"rank 0 of 2 sum 3.0", "rank 1 of 2 sum 3.0"} <= set(said.splitlines()), (launcher, ended)
    assert (tmp_path / "runs/slurm-7/nodes/n1.json").exists()
