"""A hint has a command: typed exactly as shown, it gets further than the error that the hint answers."""

import pytest

from tests.typed import NOWHERE, Typist

HOST = f"--hosts {NOWHERE}"
PYPROJECT = '[project]\nname = "demo"\nversion = "1"\ndependencies = []\n[project.scripts]\nmytrain = "demo:main"\n'
FILES = {"train.py": "print(1)\n", "run.sh": "python train.py\n", "key.txt": "x",
         "sub/other.py": "", "sub/Dockerfile": "FROM x\n", "pyproject.toml": PYPROJECT,
         "pkg/train.py": "", "pkg/__init__.py": ""}  # fmt: skip
TYPED = [
    f"delpoy {HOST} -- train.py",
    f"statsu {HOST}",
    "run train.py --backend docker",
    "list",
    f"ps {HOST}",
    f"deploy --host {NOWHERE} -- train.py",
    f"deploy {HOST} --epoch 3 -- train.py",
    f"deploy {HOST} --nnodes 2 -- train.py",
    f"deploy {HOST} --node_rank=1 -- train.py",
    f"deploy {HOST} --file train.py",
    f"deploy {HOST} --epoch=3 -- train.py",
    f"deploy --slurm {NOWHERE} --nnodes=2 --nproc 2 -- train.py",
    "up --file=train.py --backend docker",
    f"deploy --hosts '{NOWHERE} other.invalid' -- train.py",
    "deploy -- train.py",
    f"deploy {HOST} -- trian.py",
    f"deploy {HOST} --nproc 0 -- train.py",
    f"deploy {HOST} --max-hours -1 -- train.py",
    f"deploy {HOST} --restarts many -- train.py",
    f"deploy {HOST} --style mpii -- train.py",
    f"deploy {HOST} --folder nope -- train.py",
    f"deploy {HOST} --folder train.py -- train.py",
    f"deploy {HOST} --folder sub/other.py -- other.py",
    f"deploy {HOST} --folder sbu -- other.py",
    f"deploy {HOST} --dockerfile Nope -- train.py",
    f"deploy {HOST} --dockerfile sub -- train.py",
    f"deploy {HOST} --dockerfile sub/Dockerfil -- train.py",
    f"deploy {HOST} --dockerfile sub/Dockerfile --image x -- train.py",
    f"deploy {HOST} --env-file .env -- train.py",
    f"deploy {HOST} --env-file sub -- train.py",
    f"deploy {HOST} --mount data -- train.py",
    f"deploy {HOST} --include ../x -- train.py",
    f"deploy {HOST} --keep out -- train.py",
    f"deploy {HOST} --gpus two -- train.py",
    f"deploy {HOST} --wait-lost soon -- train.py",
    f"deploy {HOST} --folder-limit much -- train.py",
    f"deploy {HOST} --min-nodes 5 -- train.py",
    f"deploy {HOST} --min-nodes 1 -- train.py",
    f"deploy {HOST} --requirements nope.txt -- train.py",
    f"deploy {HOST} --env LOG -- train.py",
    f"deploy {HOST} --secret HF_TOKEN -- train.py",
    f"deploy {HOST} --secret HF_TOKEN=x -- train.py",
    f"deploy {HOST} --cluster nope.toml -- train.py",
    f"deploy {HOST} -- CUDA_VISIBLE_DEVICES=0,1 python train.py",
    f"deploy {HOST} -- HF_TOKEN=x LR=1 python train.py",
    f"deploy {HOST} -- env LR=1 python train.py",
    f"deploy {HOST} -- python -O train.py",
    f"deploy {HOST} -- python -W ignore train.py",
    f"deploy {HOST} -- uv run python train.py",
    f"deploy {HOST} -- srun -n 2 python train.py",
    f"deploy {HOST} -- nohup python train.py",
    f"deploy {HOST} -- 'python train.py --lr 3'",
    f"deploy {HOST} -- torchrun --nnodes 2:4 train.py",
    f"deploy {HOST} -- torchrun --nnodes=2 --nproc_per_node=2 train.py",
    f"deploy {HOST} -- torchrun --log-dir x train.py",
    f"deploy {HOST} -- accelerate launch --num_machines 2 train.py",
    f"deploy {HOST} -- -m pkg.trian",
    f"deploy {HOST} -- mytrian",
    f"deploy {HOST} --",
    f"deploy {HOST} --script train.py -- train.py",
    f"deploy {HOST} --nproc 2 -- torchrun --nproc-per-node 4 train.py",
    "up --backend docker -- CUDA_VISIBLE_DEVICES=0,1 python train.py",
    "up --backend docker -- HF_TOKEN=x python train.py",
    "up --backend docker -- env LR=1 python train.py",
    "up --backend docker -- python -O train.py",
    "up --backend docker --env LR -- train.py",
    "up --backend docker --env=1A=2 -- train.py",
    "up --backend docker -- trian.py",
    "up --backend docker --env-file .env -- train.py",
    "up --backend docker --folder train.py -- train.py",
    "up --backend docker --nproc x -- train.py",
    "up --backend dokcer -- train.py",
    "up --backend docker --workers abc -- train.py",
    "up --backend docker --requirements nope.txt -- train.py",
    f"exec {HOST}",
    f"status {HOST} --wacth",
    f"stop {HOST} --run 'a b/c'",
    "deploy --help=hosts",
    "compare",
    "compare a b",
    "attach --run 2026-99",
    "explain nope.log",
    "logs",
    "logs --grep '('",
    "exec",
    "stop --run nope",
    "down --run nope",
    "report --run nope",
    "tensorboard",
    "preflight",
    f"preflight {HOST} --style mpii",
    f"preflight {HOST} --collectives ncc",
    f"preflight {HOST} --port abc",
    f"preflight {HOST} --bandwidth --size lots",
    f"clean {HOST} --older soon",
    "export --to nope -- train.py",
    "export --to sbatch",
    "export --to sbatch --container pyxis -- train.py",
    "completion --shell fish",
    f"deploy {HOST} --nodes 2 -- train.py",
    f"deploy --slurm {NOWHERE} --nodes 2 --gpus 0,3 -- train.py",
    f"deploy {HOST} --secret-file key.txt -- train.py",
    f"deploy {HOST} --secret-file k=ky.txt -- train.py",
    f"deploy {HOST} --run a --resume b -- train.py",
    f"deploy {HOST} --resume latest -- train.py",
    f"deploy {HOST} --ground docker -- train.py",
    f"deploy {HOST} --name x -- train.py",
    f"deploy {HOST} --gpus 0,0 -- train.py",
    f"deploy {HOST} --gpus -1 -- train.py",
    f"deploy {HOST} --max-hours soon -- train.py",
    f"deploy {HOST} --rank x -- train.py",
    f"deploy {HOST} --env 1A=2 -- train.py",
    f"deploy {HOST} --secret 'A B' -- train.py",
    f"deploy {HOST} --arbiter other.invalid -- train.py",
    f"deploy --hosts {NOWHERE}:99999 -- train.py",
    f"deploy {HOST}",
    f"deploy train.py --lr 3 {HOST}",
    f"deploy {NOWHERE},other.invalid train.py --lr 3",
    f"deploy --hosts {NOWHERE}, other.invalid train.py",
    f"deploy {HOST} --lr 3 train.py --batch 4",
    f"deploy {HOST} trian.py --lr 3",
    f"deploy {HOST} python -O train.py --lr 3",
    "up --backend docker python -O train.py",
    "up --backend docker CUDA_VISIBLE_DEVICES=0,1 python train.py",
    f"deploy {HOST} --nproc-per-node 2 -- train.py",
    f"deploy {HOST} --gpu 2 -- train.py",
    f"deploy {HOST} --volume /a:/b -- train.py",
    f"deploy {HOST} -- sub/othr.py",
    f"deploy {HOST} -- bash rn.sh",
    f"deploy {HOST} -- torchrun",
    f"deploy {HOST} -- torchrun --nproc-per-node x train.py",
    f"deploy {HOST} -- mpirun -n 2 python train.py",
    f"deploy {HOST} -- conda run -n x python train.py",
    f"deploy {HOST} -- sudo python train.py",
    f"deploy {HOST} -- time python train.py",
    f"deploy {HOST} -- 'python train.py | tee x'",
    f"deploy {HOST} -- 'cd sub && python other.py'",
    "up --backend docker --keep work -- train.py",
    "up --backend docker --resume nope -- train.py",
    "up --backend docker --nproc 0 -- train.py",
    "up --backend docker --rank x -- train.py",
    "up --backend docker --restarts many -- train.py",
    "up --backend docker --folder-limit much -- train.py",
    f"kill {HOST}",
    f"pull {HOST}",
    f"push {HOST} --nodes 9",
]


@pytest.fixture(scope="module")
def typist():
    """The Typist, which types commands and those of their hints."""
    typist = Typist()
    yield typist
    typist.close()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's folder, without variables of the user who runs the tests."""
    for name in ("HF_TOKEN", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("line", TYPED)
def test_each_command_of_a_hint_is_read_and_gets_further_than_the_error_that_it_answers(typist, project, line):
    answer = typist(f"muster {line}", project)
    assert answer.code == 2, answer.text
    done = typist.follow(f"muster {line}", answer, project)
    assert done, f"no command in: {answer.hint}"
    for command, said in done.items():
        assert said.is_read, f"{answer.text}\n$ {command}\n{said.text}"
