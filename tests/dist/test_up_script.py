"""`muster up --script`: a user's script runs here as processes; it is followed, its files are kept, it can resume."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lab import waiting
from tests import index

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
SCRIPT = """
import os, sys, time, torch
done = int(open("outputs/step").read()) if os.path.exists("outputs/step") else 0
print("begins at", done, flush=True)
os.makedirs("outputs", exist_ok=True)
open(os.path.expanduser("~/of-home"), "w").write("home")
for step in range(done, int(sys.argv[1])):
    open("outputs/step", "w").write(str(step + 1))
    print("step", step, flush=True)
    time.sleep(float(sys.argv[2]))
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""


@pytest.fixture
def project(tmp_path):
    """up(*words): run `muster up` in a folder with a script and a module named like one of Muster's."""
    (tmp_path / "train.py").write_text("import trainer\n" + SCRIPT)
    (tmp_path / "trainer.py").write_text("print('a module of the user')\n")
    environment = {**os.environ, "PYTHONPATH": str(HOME)}

    def command(*words):
        backend = () if "--backend" in words else ("--backend", "processes")
        return [str(FAB), "--search-root", str(HOME), "up", *backend, *words]

    def up(*words):
        return subprocess.run(
            command(*words), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
        )

    up.folder, up.runs, up.environment = tmp_path, tmp_path / "runs", environment
    up.start = lambda *words: subprocess.Popen(
        command(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return up


def test_a_script_is_followed_and_what_it_wrote_is_kept_and_named(project):
    done = project("--script", "train.py 3 0", "--run", "first")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["a module of the user", "begins at 0", "step 0"]
    assert "rank 0 of 1" in done.stdout
    assert "2 files" in done.stdout
    assert (project.runs / "first/work/outputs/step").read_text() == "3"
    assert (project.runs / "first/home/of-home").read_text() == "home"
    assert "begins at 0" in (project.runs / "first/logs/rank-0.log").read_text()
    assert json.loads((project.runs / "first/outcome.json").read_text())["kept"]["master"]["files"] == 2
    assert not (project.folder / "outputs").exists()


def test_an_on_end_url_gets_the_command_that_resumes_the_run(project):
    told = []

    class Page(BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{page.server_port}/"
        done = project("--script", "train.py wrong 0", "--run", "told", "--on-end", url)
        assert done.returncode == 1
        waiting.until(lambda: told, "the end to be told", 30)
        page.shutdown()
    assert (told[0]["end"], told[0]["resume_command"]) == ("failed", "muster resume told")


def test_a_clock_set_back_during_a_run_changes_neither_its_end_nor_its_duration(project):
    clock = project.folder / "clock" / "sitecustomize.py"
    clock.parent.mkdir()
    jump = f"os.path.exists({str(project.runs / 'back/work/outputs')!r})"
    clock.write_text(f"import os, time\nnow = time.time\ntime.time = lambda: now() - 3600 * {jump}\n")
    project.environment["PYTHONPATH"] += f":{clock.parent}"
    done = project("--script", "train.py 3 0.2", "--run", "back")
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads((project.runs / "back/outcome.json").read_text())["seconds"] < 600


def test_the_data_variable_names_the_folder_and_the_data_is_not_copied(project, tmp_path_factory):
    corpus = tmp_path_factory.mktemp("corpus")
    (corpus / "file").write_text("words")
    reads = "import os; print('read', open(os.environ['MUSTER_DATA'] + '/file').read())\n"
    (project.folder / "train.py").write_text(reads)
    done = project("--data", f"{corpus}:/data", "--run", "data", "--script", "train.py")
    assert done.returncode == 0, done.stderr
    assert "read words" in done.stdout
    assert f"without a container, /data is at {corpus}" in done.stderr
    assert not list((project.runs / "data").rglob("file")), "it was not copied"
    missing = project("--data", "none:/data", "--script", "train.py")
    assert missing.returncode == 2
    assert "there is no folder none" in missing.stderr


def test_variables_are_typed_as_for_a_deploy_and_a_resume_repeats_them(project):
    (project.folder / "train.py").write_text("import os; print(os.environ.get('A'), os.environ.get('B'))\n")
    typed = project("-e", "A=1", "-e", "B=two words", "--run", "vars", "--script", "train.py")
    assert typed.stdout.splitlines()[0] == "1 two words", typed.stderr
    again = json.loads((project.runs / "vars/record.json").read_text())["again"]
    assert project("--resume", "vars", *shlex.split(again)).stdout.splitlines()[0] == "1 two words"
    refused = project("-e", "WANDB_API_KEY=0123456789", "--script", "train.py")
    assert refused.returncode == 2
    assert "--secret WANDB_API_KEY" in refused.stderr


WATCHED = """
import os, torch, time
from tensorboardX import SummaryWriter
from torch.utils.data import DataLoader, TensorDataset
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
steps = torch.optim.SGD(model.parameters(), 0.01)
for x, in DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=4):
    steps.zero_grad()
    model(x).square().mean().backward()
    steps.step()
    time.sleep(0.1)
os.makedirs("tb", exist_ok=True)  # both ranks would make it
with SummaryWriter("tb") as writer:
    for epoch in range(3):
        writer.add_scalar("val/accuracy", epoch / 4, epoch)
torch.save(model.state_dict(), "model.pt")
print("<script>alert(1)</script>")
"""


def test_the_report_of_a_script_shows_what_was_seen_and_no_empty_section(project):
    (project.folder / "train.py").write_text(WATCHED)
    for words in (
        ("init", "-q"),
        ("add", "train.py"),
        ("-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", "-C", str(project.folder), *words], check=True)
    (project.folder / "train.py").write_text(WATCHED + "print('changed')\n")
    done = project("--script", "train.py", "--workers", "1", "--run", "seen")
    assert done.returncode == 0, done.stderr
    page = (project.runs / "seen/report.html").read_text()
    for heading in (
        "Training",
        "What it measured",
        "Where each step",
        "The machines",
        "Last lines",
        "What ran",
    ):
        assert f"<h2>{heading}" in page, heading
    assert "<summary>Environment" in page
    assert "Configuration" not in page
    assert "<b>Loss</b>" in page
    assert "<b>val/accuracy</b>" in page
    assert "Read from work/tb/events.out.tfevents." in page
    assert "+print(&#39;changed&#39;)" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "muster up --workers 1 --backend processes train.py" in page
    assert not [words for words in ("Nothing observed", "missing", "Incomplete") if words in page]
    packages = json.loads((project.runs / "seen/environment.json").read_text())["packages"]
    assert "torch" in packages


NO_NUMBER = """
import time, torch
model = torch.nn.Linear(4, 1)
steps = torch.optim.SGD(model.parameters(), 0.01)
for step in range(60):
    steps.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean() * (float("nan") if step >= 20 else 1)
    loss.backward()
    steps.step()
    time.sleep(0.1)
"""


def test_a_loss_that_is_no_number_is_reported_while_the_script_keeps_training(project):
    (project.folder / "train.py").write_text(NO_NUMBER)
    done = project("--script", "train.py")
    assert done.returncode == 0, done.stderr
    (since,) = re.findall(r"rank 0\): the loss is nan since step (\d+)", done.stderr)
    assert 21 <= int(since) <= 40, "the first that the watcher has looked at"


def test_a_resumed_script_continues_with_its_files_and_the_newest_code(project):
    project("--script", "train.py 2 0", "--run", "again")
    (project.folder / "train.py").write_text((project.folder / "train.py").read_text() + "print('new code')\n")
    done = project("--resume", "again", "--script", "train.py 4 0")
    assert done.returncode == 0, done.stderr
    assert "begins at 2" in done.stdout
    assert "new code" in done.stdout
    repeated = project("--resume", "again")  # this repeats the script as it was recorded
    assert "begins at 4" in repeated.stdout


def test_a_sent_file_that_the_script_has_changed_stays_and_the_report_names_it(project):
    (project.folder / "config.yaml").write_text("rate: 1")
    (project.folder / "train.py").write_text("open('config.yaml', 'a').write(' # seen')\n")
    project("--script", "train.py", "--run", "changed")
    (project.folder / "config.yaml").write_text("rate: 2")
    done = project("--script", "train.py", "--run", "changed")
    told = "master: the run had changed config.yaml: it keeps its own versions, and the ones that you sent are not used"
    assert told in done.stderr
    assert told in (project.runs / "changed/report.html").read_text()
    assert (project.runs / "changed/work/config.yaml").read_text() == "rate: 1 # seen # seen"


OWN_NAMES = """
import deploy, muster, trainer
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(5):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
print(deploy.WHOSE, muster.WHOSE, trainer.WHOSE, "trained", dist.get_world_size())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("place", ["", "sub/"], ids=["at the top", "in a folder below"])
def test_a_script_gets_its_own_modules_named_like_ours_and_is_told_which_library_it_imports(project, place):
    folder = project.folder / place
    (folder / "deploy").mkdir(parents=True)
    for name in ("deploy/__init__.py", "muster.py", "trainer.py"):
        (folder / name).write_text("WHOSE = 'mine'\n")
    (folder / "train.py").write_text(OWN_NAMES)
    done = project("--script", f"{place}train.py", "--workers", "1", "--run", "own", "--rank", "all")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank}  mine mine mine trained 2" in done.stdout for rank in range(2))
    told = f"`import muster` loads the script's own {place}muster.py, not Muster's library"
    assert done.stderr.count(told) == 1
    assert told in (project.runs / "own/timeline.jsonl").read_text()


def test_a_failure_from_the_scripts_own_muster_py_or_a_missing_mpi_variable_has_a_hint(project):
    (project.folder / "muster.py").touch()
    (project.folder / "lightning_one.py").write_text("from muster.lightning import OrderlyStop\n")
    (project.folder / "mpi.py").write_text("import os\nprint(os.environ['OMPI_COMM_WORLD_RANK'])\n")
    done = project("--script", "lightning_one.py", "--run", "own")
    assert done.returncode == 1
    assert "loaded the script's own muster.py, not Muster's library: rename it" in done.stderr
    done = project("--script", "mpi.py", "--run", "mpi")
    assert done.returncode == 1
    assert "--style mpi gives each rank OMPI_COMM_WORLD_RANK" in done.stderr


def test_a_mistyped_style_is_refused_with_the_nearest_and_the_command_in_use(project):
    done = project("--script", "train.py", "--style", "slrum")
    assert done.returncode == 2
    assert "up ... --style slurm -- train.py" in done.stderr


def test_several_nodes_of_a_script_train_on_one_machine(project):
    (project.folder / "train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo'); dist.barrier()\n"
        "print('rank', dist.get_rank(), 'of', dist.get_world_size())\ndist.destroy_process_group()\n"
    )
    done = project("--script", "train.py", "--workers", "1", "--run", "two", "--rank", "all")
    assert done.returncode == 0, done.stderr
    assert {"rank 0  rank 0 of 2", "rank 1  rank 1 of 2"} <= set(done.stdout.splitlines())


ALONE = """
import os, subprocess, sys, torch
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")
mine = [name for name in os.environ if name in names or name.startswith(("PET_", "TORCHELASTIC_", "GROUP_", "ROLE_"))]
print("sees", mine, flush=True)
model = torch.nn.Linear(4, 1)
steps = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(int(sys.argv[1])):
    model(torch.randn(8, 4)).square().mean().backward()
    steps.step()
if sys.argv[2:]:
    torch.distributed.init_process_group("gloo")
"""


def test_one_rank_typed_as_python_starts_as_plain_python_and_is_watched_and_resumed(project):
    (project.folder / "alone.py").write_text(ALONE)
    done = project("--run", "alone", "--script", "python alone.py 30")
    assert done.returncode == 0, done.stderr
    assert "sees []" in done.stdout
    assert json.loads((project.runs / "alone/outcome.json").read_text())["step"] == 30
    assert " python alone.py 30<" in (project.runs / "alone/report.html").read_text()
    again = project("--resume", "latest")
    assert "sees []" in again.stdout, "the script is typed as it was"


@pytest.mark.parametrize(
    "words", [("--script", "alone.py 1 join"), ("--nproc", "1", "--script", "python alone.py 1 join")]
)
def test_one_rank_has_torchruns_variables_if_they_are_requested(project, words):
    (project.folder / "alone.py").write_text(ALONE)
    done = project(*words)
    assert done.returncode == 0, done.stderr
    assert "'LOCAL_RANK'" in done.stdout


def test_a_script_that_joins_a_group_without_variables_fails_and_is_told_how_to_get_them(project):
    (project.folder / "alone.py").write_text(ALONE)
    done = project("--script", "python alone.py 1 join")
    assert done.returncode == 1
    assert "environment variable RANK expected" in done.stderr
    assert "--nproc 1" in done.stderr


def test_python_in_a_shell_script_of_one_node_is_no_rank_unless_ranks_are_requested(project):
    (project.folder / "solo.py").write_text("import os, torch\nprint('rank', os.environ.get('RANK'))\n")
    (project.folder / "run.sh").write_text("python solo.py\ntorchrun solo.py\n")
    assert "rank None\nrank 0\n" in project("--script", "bash run.sh").stdout
    assert "rank 0\nrank 0\n" in project("--nproc", "1", "--script", "bash run.sh").stdout


def test_ctrl_c_stops_a_script_and_says_how_to_continue(project):
    up = project.start("--script", "train.py 50 0.1", "--run", "stopped")
    waiting.until(lambda: (project.runs / "stopped/work/outputs/step").exists(), "the script to write", 60)
    up.send_signal(signal.SIGINT)
    words, _ = up.communicate(timeout=60)
    assert up.returncode == 75, words
    assert (project.runs / "stopped/work/outputs/step").exists()
    (command,) = re.findall(r"hint: continue with the files that it wrote: muster (.*)", words)
    again = subprocess.run(
        [FAB.with_name("muster"), *shlex.split(command)],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert again.returncode == 0, again.stderr
    assert re.search("begins at [1-9]", again.stdout)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--script", "no.py"), "no such file"),
        (("--script", "train.py", "--args", "--steps 1"), "--args"),
        (("--script", "train.py 'x"), "quotation"),
        (("--script", "train.py", "--folder", "nowhere"), "no such folder"),
        (("--script", "train.py", "--rank", "x"), "not a number"),
        (("--script", "train.py", "--keep", "/data/out"), "stays there anyway"),
        (("--script", "train.py", "--backend", "docker", "--keep", "data"), "absolute path"),
        (("--script", "train.py", "--restarts", "x"), "not a number"),
        (("--restarts", "3", "--args", "--steps 1"), "--restarts cannot be used without a script"),
        (("--workers", "2"), "did you mean `muster up --backend processes --workers 2 train.py`?"),
        (("--resume", "latest", "--script", "train.py"), "leave it out to start a new run"),
        (("--resume", "2026-nope", "--script", "train.py"), "no such run"),
        (("--args", "--recipe nope"), "built-in: digits, text"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(project, words, hint):
    done = project(*words)
    assert done.returncode == 2
    assert hint in done.stderr
    assert not list(project.runs.glob("*"))


def test_a_scripts_packages_are_installed_next_to_the_existing_torch(project, tmp_path_factory):
    """They come from an index on this machine, and the second time need none. The environment's launcher finds them."""
    folder = project.folder
    (folder / "train.py").write_text("import plain, sourced, asks, warns\nprint('has', plain.VALUE, sourced.VALUE)\n")
    (folder / "run.sh").write_text("torchrun train.py\n")
    (folder / "requirements.txt").write_text("plain\nsourced\nasks\nwarns\ntorch\n")
    version = "import importlib.metadata\nimportlib.metadata.version('torch')\n"
    own_words = "import importlib.util\nassert importlib.util.find_spec('torch'), 'PyTorch must be installed first'\n"
    files = [
        index.wheel("plain", "1", "VALUE = 'plain'"),
        index.source("sourced", "1", "VALUE = 'sourced'", before="import torch\n"),
        index.source("asks", "1", "", before=version),
        index.source("warns", "1", "", before=own_words),
    ]
    environment = project.environment
    environment["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    with index.serve("127.0.0.1", dict(files)) as url:
        environment["UV_DEFAULT_INDEX"] = url
        done = project("--script", "train.py")
        assert done.returncode == 0, done.stderr
        assert "has plain sourced" in done.stdout
    done = project("--script", "bash run.sh")
    assert done.returncode == 0, done.stderr
    assert "has plain sourced" in done.stdout
    done = project("--script", "train.py", "--requirements", "no")
    assert done.returncode == 1
    assert "No module named 'plain'" in done.stderr


@pytest.mark.parametrize("line", ["no-such-package==9", "torch==2.0.0", "broken==1"])
def test_packages_that_cannot_be_installed_stop_a_script_only_if_the_user_insists(project, line):
    """A repository may pin the versions that it was written with, although the user's environment can run it too."""
    (project.folder / "requirements.txt").write_text(f"{line}\n")
    broken = index.source("broken", "1", "", before="raise RuntimeError('needs another compiler')\n")
    with index.serve("127.0.0.1", dict([broken])) as url:
        project.environment["UV_DEFAULT_INDEX"] = url
        done = project("--script", "train.py 3 0")
        insists = project("--requirements", "requirements.txt", "--run", "asked", "train.py", "3", "0")
    assert done.returncode == 0, done.stderr
    (warning,) = [text for text in done.stderr.splitlines() if "nothing is installed" in text]
    named = line.partition("=")[0]
    assert named in warning
    assert "error:" not in done.stderr
    if named == "no-such-package":
        assert f"hint: correct requirements.txt:1 ({line}); or leave the packages out: --requirements no" in done.stderr
    python = re.search(r"the script uses the packages of (\S+) \(--requirements requirements\.txt insists", warning)
    assert python, warning
    # The two paths differ in a checkout whose .venv is a link.
    assert Path(python[1]).parent.samefile(Path(sys.executable).parent)
    assert insists.returncode != 0
    assert named in insists.stderr
    assert not (project.runs / "asked").exists()
