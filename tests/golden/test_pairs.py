"""Options that exclude or need each other: what a user sees who types two of them, or has one in cluster.toml."""

import shlex

import pytest

from deploy.commands import main
from deploy.run.files import folders
from tests.golden.held import hold
from tests.typed import NOWHERE, Said

HOSTS = f"-H {NOWHERE},b.invalid,c.invalid"
FILE = '[[hosts]]\nname = "nowhere.invalid"\n[[hosts]]\nname = "b.invalid"\n[[hosts]]\nname = "c.invalid"\n[job]\n'
# The lines of the cluster.toml in the folder, and the commands that are typed there.
TYPED = {
    "": (
        # Slurm, or hosts
        f"deploy --slurm login {HOSTS} train.py",
        "deploy --slurm login --min-nodes 2 train.py",
        "deploy --slurm login --secret A train.py",
        "deploy --slurm login --role a=1:train.py train.py",
        "deploy --slurm login --mount /a:/b train.py",
        "deploy --slurm login --image a:1 train.py",
        "deploy --slurm login --container pyxis train.py",
        "deploy --slurm login --container podman --image a:1 train.py",
        "deploy --slurm login --resume latest --run a train.py",
        "deploy --slurm login --resume latest --shared /a train.py",
        "deploy --slurm login --restarts 3 --args '--steps 1'",
        "deploy --slurm login --restart-with=--resume --args '--steps 1'",
        f"deploy {HOSTS} --nodes 2 train.py",
        "deploy --nodes 2 train.py",
        f"deploy {HOSTS} --setup x train.py",
        # what runs
        f"deploy {HOSTS} --each 'bash a.sh' --script train.py",
        f"deploy {HOSTS} --args '--steps 1' --script train.py",
        f"deploy {HOSTS} --args '--steps 1' --each 'bash a.sh'",
        f"deploy {HOSTS} --script train.py -- train.py",
        f"deploy {HOSTS} --resume latest --run a train.py",
        f"deploy {HOSTS} --image a:1 --dockerfile Dockerfile train.py",
        f"push {HOSTS} --image a:1 --dockerfile Dockerfile",
        f"deploy {HOSTS} --restarts 3 --args '--steps 1'",
        f"deploy {HOSTS} --style slurm --args '--steps 1'",
        f"deploy {HOSTS} --restart-with=--resume --args '--steps 1'",
        f"deploy {HOSTS} --requirements no --args '--steps 1'",
        # a lost host
        f"deploy {HOSTS} --spare d.invalid train.py",
        f"deploy {HOSTS} --arbiter d.invalid train.py",
        f"deploy {HOSTS} --min-nodes 2 --wait train.py",
        f"deploy {HOSTS} --min-nodes 2 --on-end true train.py",
        f"deploy {HOSTS} --min-nodes 2 --restart-with=--resume train.py",
        f"deploy {HOSTS} --overlay --wait train.py",
        f"deploy {HOSTS} --overlay --on-end true train.py",
        f"deploy {HOSTS} --overlay --min-nodes 2 train.py",
        # several roles
        f"deploy {HOSTS} --role a=1:train.py --min-nodes 2 train.py",
        f"deploy {HOSTS} --role a=1:train.py --spare d.invalid train.py",
        f"deploy {HOSTS} --role a=1:train.py --arbiter d.invalid train.py",
        f"deploy {HOSTS} --role a=1:train.py --wait train.py",
        f"deploy {HOSTS} --role a=1:train.py --on-end true train.py",
        f"deploy {HOSTS} --role a=1:train.py --args '--steps 1'",
        "up --role a=1:train.py --workers 2 train.py",
        "up --role a=1:train.py --min-nodes 2 train.py",
        # this machine
        "up --each 'bash a.sh' --script train.py",
        "up --args '--steps 1' --script train.py",
        "up --resume latest --run a train.py",
        "up --min-nodes 2 --workers 2 --restart-with=--resume train.py",
        "up --backend docker --gpus 2 train.py",
        "up --backend processes --keep /a train.py",
        "up --backend processes --secret-file A=x.env train.py",
        "up --backend docker --min-nodes 2 --workers 2 train.py",
        "up --backend docker --role a=1:train.py",
        *(
            f"up --args '--steps 1' {option}"
            for option in (
                *("--restarts 3", "--restart-with=--resume", "--style slurm", "--separate", "--keep /a", "--nproc 2"),
                *(
                    "--include x.env",
                    "--requirements no",
                    "--folder-limit 1g",
                    "--no-cache",
                    "--no-observe",
                    "--folder .",
                ),
                *("--gpus 2", "--secret A", "--env-file x.env", "--secret-file A=x.env", "--data d:/d", "-e A=1"),
            )
        ),
        # a node of another launcher, and a run as a file
        "agent --restarts 3 --args '--steps 1'",
        "agent --restart-with=--resume --args '--steps 1'",
        "agent --each 'bash a.sh' --script train.py",
        "export --restarts 3 --args '--steps 1'",
        "export --container pyxis train.py",
        "export --image a:1 train.py",
        "export --container podman --image a:1 train.py",
        "export --mount /a:/b train.py",
        "export --secret A=B train.py",
        "export --shared a train.py",
        "export --role a=1:train.py train.py",
        "export --cluster other.toml train.py",
        "export --to jobset --image a:1 --slurm=-t1 train.py",
        "export --to trainjob --image a:1 --setup x train.py",
        "export --to jobset --image a:1 --container pyxis train.py",
        "export --to jobset --image a:1 --max-hours 2 train.py",
        "export --to jobset train.py",
        "export --to jobset --image a:1 --role a=1:train.py --nodes 2",
        "export --to nomad --image a:1 train.py",
        # preflight
        f"preflight {HOSTS} --python python3",
        f"preflight {HOSTS} --backend processes",
        f"preflight {HOSTS} --workers 2",
        "preflight --backend processes --cluster other.toml",
        "preflight --backend processes --image a:1",
        "preflight --backend processes --endpoint 10.0.0.1",
        "preflight --backend processes --style torchrun",
        "preflight --backend processes --style torchrun --python python3",
        "preflight --backend processes --bandwidth",
        "preflight --backend processes --size 1m",
        f"preflight {HOSTS} --size 1m --quick",
        # what is removed
        "down --delete",
        f"clean {HOSTS} --older 30d",
        # what would do nothing
        f"deploy {HOSTS} --separate --args '--steps 1'",
        f"deploy {HOSTS} --include x.env --args '--steps 1'",
        f"push {HOSTS} --requirements no",
        f"deploy {HOSTS} -e HOME=1 --secret HOME train.py",
        "up -e HOME=1 --secret HOME train.py",
        "deploy --slurm login --container pyxis --image a:1 --mount /a:/b:create train.py",
        "stop --run ''",
        "deploy --slurm login --sbatch=-p=a --sbatch=-t=9 train.py",
    ),
    "min_nodes = 2": ("deploy --wait train.py", "deploy --overlay train.py", "deploy --role a=1:train.py train.py"),
    "overlay = true": ("deploy --wait train.py", "deploy --min-nodes 2 train.py"),
    'on_end = "true"': ("deploy --overlay train.py", "ray"),
    'min_nodes = 2\nrestart_with = "--resume"': ("deploy train.py",),
    'image = "a:1"\ndockerfile = "Dockerfile"': ("deploy train.py", "deploy --image b:1 train.py"),
    '[[role]]\nname = "a"\nnodes = 1\ncommand = "train.py"': (
        "deploy --wait",
        "deploy --slurm login",
        "up --workers 2",
        "export",
    ),
}


@pytest.fixture
def type_here(tmp_path, monkeypatch, capsys):
    """Returns a function: type a line in the folder, in this process; it returns exit code, error and hint."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")

    def type_it(line):
        code = main.run(shlex.split(line))
        said = Said(code, capsys.readouterr().err)
        return [f"  {code}  {said.error or '(it goes on)'}", *([f"  {said.hint}"] if said.hint else [])]

    return type_it


def test_the_refusals_of_conflicting_options_are_unchanged(tmp_path, monkeypatch, type_here):
    lines = []
    for number, (file, typed) in enumerate(TYPED.items()):
        folder = tmp_path / str(number)
        (folder / "d").mkdir(parents=True)
        for name in ("train.py", "x.env", "Dockerfile", "a.sh", "d/x"):
            (folder / name).write_text("FROM x\n" if name == "Dockerfile" else "")
        (folder / "other.toml").write_text(FILE)
        if file:
            (folder / "cluster.toml").write_text(f"{FILE}{file}\n")
            lines.append(f"== cluster.toml: {file}".replace("\n", "; "))
        monkeypatch.chdir(folder)
        for line in typed:
            task = line.split()[0]
            lines += [f"muster {line}", *type_here(line.replace(task, f"{task} --allow-folder", 1) if file else line)]
    hold("pairs.txt", "\n".join(lines).replace(str(tmp_path), "/folder"))
