"""Every mesh trains as one process does: the same losses, every sample once, a graceful stop."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from lab.ports import free_port
from lab.waiting import events, lines, losses
from muster.data import StreamSampler
from tests.dist.conftest import HOME, OURS, environment
from trainer.mesh import parse

RECIPE, SEQUENCE = HOME / "tests/dist/mesh_recipe.py", HOME / "tests/dist/sequence_recipe.py"


def start(world, *cases):
    """Start `world` ranks, which run the cases in turn; each case has a folder and the trainer's options."""
    listed = [{**case, "arguments": ["--recipe", str(RECIPE), *map(str, case["arguments"])]} for case in cases]
    command = [sys.executable, "-m", OURS, f"--nproc-per-node={world}"]
    command += [f"--master-port={free_port()}", "-m", "tests.dist.mesh_runs", json.dumps(listed)]
    return subprocess.Popen(
        command, cwd=HOME, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


def case(folder, *arguments, **more):
    return {"folder": str(folder), "arguments": arguments, **more}


MESHES = ["dp_shard=4", "dp_replicate=2,dp_shard=2", "dp_replicate=4", "tp=4", "dp_shard=2,tp=2", "dp_replicate=2,tp=2"]
# Further options with which each mesh must have the losses of one process.
WAYS = {"accumulated": ("--micro-batch", 2), "recomputed": ("--recompute",)}
CUT = ["dp_shard=4", "tp=4", "dp_shard=2,tp=2"]
KINDS = ["dp_replicate=4", *CUT]


def on(name, meshes, root, *arguments, **more):
    """The same case for each mesh."""
    return [case(root / f"{name} {mesh}", "--mesh", mesh, *arguments, **more) for mesh in meshes]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run folders of each mesh and of one process, all with the same steps."""
    root = tmp_path_factory.mktemp("meshes")
    laid = layouts(root)
    kept = {name: keeps_a_tensor(root, name, how) for name, how in KEPT.items()}
    tied = shares_a_weight(root)
    one = start(
        1,
        case(root / "one"),
        case(root / "channels-last one", "--recipe", laid),
        *(case(root / f"{name} one", "--recipe", path) for name, path in kept.items()),
        case(root / "shared one", "--recipe", tied),
    )
    four = start(
        4,
        *(case(root / mesh, "--mesh", mesh) for mesh in MESHES),
        case(root / "sequence", "--mesh", "dp_shard=2,tp=2", "--recipe", SEQUENCE),
        *(run for name, options in WAYS.items() for run in on(name, KINDS, root, *options)),
        *on("bf16", KINDS, root, "--precision", "bf16"),
        *on("fp16", ("dp_replicate=4", "dp_shard=4", "tp=4"), root, "--precision", "fp16"),
        *on("channels-last", ("dp_replicate=4", "dp_shard=4", "tp=4"), root, "--recipe", laid),
        *(case(root / f"{name} {mesh}", "--mesh", mesh, "--recipe", kept[name]) for name in kept for mesh in CUT),
        *on("shared", CUT, root, "--recipe", tied),
        case(root / "uneven", "--mesh", "dp_shard=4", "--batch", 13, "--micro-batch", 1),
        *on("stopped", KINDS, root, "--steps", 500, stop_after=3),
        *on("exploded", KINDS, root, "--lr", "3e37"),
        case(root / "too-many", "--mesh", "dp_shard=8"),
        *on("compiled", CUT, root, "--compile"),
        case(root / "compiled recomputed", "--compile", "--recompute"),
        case(root / "no-blocks", "--recompute", "--recipe", laid),
        case(root / "text", "--mesh", "dp_shard=2,tp=2", "--recipe", "text", "--batch", 4, stop_after=0),
    )
    for process in (one, four):
        finish(process)
    return root


def layouts(folder):
    """Write a recipe of a convolution whose weights are stored channels-last."""
    path = folder / "pictures.py"
    path.write_text(
        RECIPE.read_text()
        + """
from torch.distributed.tensor import Replicate

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(64, 31)

    def forward(self, words):
        x = words.float().unflatten(1, (1, 2, 4)) / 31
        return self.last(torch.relu(self.first(x)).flatten(1))[:, None].expand(-1, 8, -1)

def model():
    return Net().to(memory_format=torch.channels_last)

def tensor_plan(model):
    return {"last": RowwiseParallel(input_layouts=Replicate())}
"""
    )
    return str(path)


# What a model may keep in addition to its weights. It must have its values even if the weights get their memory only
# after the model is sharded.
KEPT = {
    "buffer": "self.register_buffer('moved', shift, persistent=False)",
    "attribute": "self.parts = {'moved': [shift]}",
}


def keeps_a_tensor(folder, name, how):
    """Write a recipe whose model keeps a random tensor in this way; each rank records the device of its build."""
    path = folder / f"{name}.py"
    path.write_text(
        RECIPE.read_text()
        + f"""
class Shifted(Model):
    def __init__(self):
        super().__init__()
        shift = torch.rand(31)
        with open(f"{{os.environ['SEEN']}}/built-{{os.environ['RANK']}}", "a") as file:
            file.write(shift.device.type + " ")
        {how}

    def forward(self, words):
        return super().forward(words) + (self.moved if hasattr(self, "moved") else self.parts["moved"][0])

def model():
    return Shifted()
"""
    )
    return str(path)


def shares_a_weight(folder):
    """Write a recipe whose embedding is also its last layer: two modules with one weight."""
    path = folder / "shared.py"
    path.write_text(
        RECIPE.read_text()
        + """
class Tied(Model):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(WIDTH, 31, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words):
        x = self.table(words)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x) * self.scale)

def model():
    return Tied()
"""
    )
    return str(path)


@pytest.mark.parametrize("mesh", CUT)
@pytest.mark.parametrize(("name", "built"), [("buffer", "meta "), ("attribute", "meta cpu ")])
def test_only_rank_0_builds_the_whole_model_if_the_others_do_not_need_it(trained, name, built, mesh):
    folder = trained / f"{name} {mesh}"
    assert losses(folder) == pytest.approx(losses(trained / f"{name} one"), rel=1e-5)
    assert losses(folder) != pytest.approx(losses(trained / "one"), rel=1e-2)
    assert (folder / "built-0").read_text() == "cpu "
    assert {(folder / f"built-{rank}").read_text() for rank in (1, 2, 3)} == {built}


@pytest.mark.parametrize("mesh", CUT)
def test_a_weight_of_two_modules_stays_one_weight(trained, mesh):
    assert losses(trained / f"shared {mesh}") == pytest.approx(losses(trained / "shared one"), rel=1e-5)


@pytest.mark.parametrize("name", [*MESHES, "sequence", *(f"{way} {mesh}" for way in WAYS for mesh in KINDS)])
def test_a_mesh_has_the_losses_and_the_norms_of_one_process(trained, name):
    assert len(losses(trained / name)) == 8
    assert losses(trained / name) == pytest.approx(losses(trained / "one"), rel=1e-5)
    expected = norms(trained / "one")
    assert min(expected) > 0.1  # each step is clipped
    assert norms(trained / name) == pytest.approx(expected, rel=1e-4)


def norms(folder):
    """The norm of the whole gradient at each step."""
    return [line["grad_norm"] for line in lines(folder / "metrics.jsonl") if "loss" in line]


@pytest.mark.parametrize("name", MESHES)
def test_every_sample_is_read_once_by_the_ranks_that_share_the_data(trained, name):
    taken = Counter()
    for rank in range(4):
        rows = (
            (trained / name / f"seen-{rank}").read_text().splitlines()[-8:]
        )  # earlier rows are from passes before the first step
        peers = 1 if "tp" not in name else int(name.rpartition("tp=")[2])  # these read the same samples
        if rank % peers == 0:
            taken.update(int(number) for row in rows for number in row.split())
    stream = StreamSampler(203, batch=12, world=1, rank=0)
    assert taken == Counter(stream.indices(0, 8 * 12))


@pytest.mark.parametrize("name", MESHES)
def test_every_held_out_sample_counts_once(trained, name):
    (evaluated,) = events(trained / name, 0, "evaluated")
    assert evaluated["samples"] == 37
    assert evaluated["values"]["number"] == pytest.approx(sum(range(37)) / 37)


@pytest.mark.parametrize(("precision", "mesh"), [*(("bf16", mesh) for mesh in KINDS), ("fp16", "dp_shard=4")])
def test_mixed_precision_is_the_same_on_a_mesh(trained, precision, mesh):
    ddp, other = (losses(trained / f"{precision} {each}") for each in ("dp_replicate=4", mesh))
    assert other == pytest.approx(ddp, rel=2e-3)
    assert other != losses(trained / mesh)


@pytest.mark.parametrize("mesh", ["dp_replicate=4", "dp_shard=4", "tp=4"])
def test_a_channels_last_model_trains_to_the_same_losses(trained, mesh):
    expected = losses(trained / "channels-last one")
    assert losses(trained / f"channels-last {mesh}") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("mesh", KINDS)
def test_a_graceful_stop_and_a_loss_that_is_not_finite_end_all_ranks_alike(trained, mesh):
    assert {(trained / f"stopped {mesh}" / f"end-{rank}").read_text() for rank in range(4)} == {"stopped 4"}
    words = {(trained / f"exploded {mesh}" / f"refused-{rank}").read_text() for rank in range(4)}
    assert all("the loss is" in text and "the optimizer did not take that step" in text for text in words)


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile on CPUs needs a C++ compiler")
def test_a_compiled_model_trains_to_the_losses_of_one_process(trained):
    finish(start(2, case(trained / "compiled", "--compile")))
    assert losses(trained / "compiled") == pytest.approx(losses(trained / "one"), rel=1e-5)


def test_options_that_a_mesh_does_not_support_are_refused_by_name(trained):
    assert "one of them would have an empty pass" in (trained / "uneven" / "refused-0").read_text()
    for mesh in CUT:
        assert f"--compile on mesh {mesh}" in (trained / f"compiled {mesh}" / "refused-0").read_text()
    assert "fp16 on mesh tp=4" in (trained / "fp16 tp=4" / "refused-0").read_text()
    assert "--compile" in (trained / "compiled recomputed" / "refused-0").read_text()
    assert "no blocks" in (trained / "no-blocks" / "refused-2").read_text()
    assert "dp_shard=8: 8 ranks, but the run has 4" in (trained / "too-many" / "refused-3").read_text()


def test_every_command_of_the_page_is_a_mesh_that_these_tests_run(trained):
    page = (HOME / "docs/how-to/which-mesh.md").read_text()
    named = {str(parse(text, 4)) for text in re.findall(r"-m muster.trainer --recipe text(?: --mesh (\S+))?`", page)}
    assert len(named) >= 5
    assert named <= {str(parse(mesh, 4)) for mesh in MESHES}
    assert (trained / "text" / "end-3").read_text() == "stopped 1"
