"""What a node is told: who it is and where the rendezvous is; nothing that two nodes or two starts may not share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job.load import value_of
from deploy.job.options import Options
from deploy.run.environment import (
    BARE_RANK,
    PACKAGES,
    Packages,
    RunSpec,
    Script,
    local_spec,
    memory_limit,
    mounted,
    mounts_file,
    node_names,
    recipe_name,
    script_name,
)


def spec(start: int = 1, workers: int = 2, cores: int = 8, system: str = "Linux") -> RunSpec:
    return local_spec(Path("/runs/r1"), start, workers, ["--steps", "3"], 29501, cores, system)


def test_nodes_are_the_master_and_numbered_workers() -> None:
    assert node_names(0) == ("master",)
    assert spec().names == ("master", "worker-1", "worker-2")
    assert [node.environment["MUSTER_NODE"] for node in spec().nodes] == list(spec().names)
    assert [node.environment["PET_NODE_RANK"] for node in spec().nodes] == ["0", "1", "2"]


def test_exactly_the_master_hosts_the_rendezvous() -> None:
    hosts = [node.name for node in spec().nodes if "is_host=1" in node.environment["PET_RDZV_CONF"]]
    assert hosts == ["master"]
    assert all(node.environment["PET_RDZV_ENDPOINT"] == "127.0.0.1:29501" for node in spec().nodes)


def test_nodes_differ_only_in_name_place_and_host_role() -> None:
    master, worker, _ = (node.environment for node in spec().nodes)
    assert {key for key in master if master[key] != worker[key]} == {"MUSTER_NODE", "PET_NODE_RANK", "PET_RDZV_CONF"}
    assert master.keys() == worker.keys()


def test_a_resumed_run_has_a_new_rendezvous_id() -> None:
    first, second = spec(start=1).nodes[0].environment, spec(start=2).nodes[0].environment
    assert first["PET_RDZV_ID"] != second["PET_RDZV_ID"]
    assert first["MUSTER_RUN_ID"] == second["MUSTER_RUN_ID"] == "r1"


@pytest.mark.parametrize(("cores", "workers", "threads"), [(8, 2, "2"), (2, 2, "1"), (1, 7, "1"), (16, 0, "16")])
def test_cores_are_divided_among_ranks(cores: int, workers: int, threads: str) -> None:
    environment = spec(cores=cores, workers=workers).nodes[0].environment
    assert environment["OMP_NUM_THREADS"] == threads
    assert environment["PET_NNODES"] == str(workers + 1)


@pytest.mark.parametrize(("system", "interface"), [("Linux", "lo"), ("Darwin", "lo0")])
def test_gloo_and_nccl_get_one_exact_interface(system: str, interface: str) -> None:
    environment = spec(system=system).nodes[0].environment
    assert environment["GLOO_SOCKET_IFNAME"] == interface
    assert environment["NCCL_SOCKET_IFNAME"] == f"={interface}"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "digits"),
        (["--recipe", "text"], "text"),
        (["--recipe=lib/my_recipe.py", "--steps", "3"], "my_recipe"),
        (["--recipe", "text", "--recipe", "digits"], "digits"),
        (["--recipe", "a b/c d.py"], "c-d"),
        (["--recipe"], "digits"),
        (["--recipe="], "digits"),
    ],
)
def test_the_recipe_names_the_run_folder(arguments: list[str], name: str) -> None:
    assert recipe_name(arguments) == name


def test_paths_in_the_arguments_are_mounted_at_their_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "text").mkdir()
    given = ["--recipe", "my.py", "--data=corpus", "--steps", "5", "--lr=nowhere"]
    made, paths = mounted(given, tmp_path)
    assert made == ["--recipe", f"{tmp_path}/my.py", f"--data={tmp_path}/corpus", "--steps", "5", "--lr=nowhere"]
    assert paths == [tmp_path / "corpus", tmp_path / "my.py"]
    volumes = mounts_file(paths, spec())["services"]["worker"]["volumes"]
    assert [volume["source"] for volume in volumes] == [volume["target"] for volume in volumes]
    assert all(volume["read_only"] for volume in volumes)


def test_kept_paths_are_folders_of_the_run_that_containers_cannot_replace() -> None:
    kept = local_spec(Path("/runs/r1"), 1, 1, ["train.py"], 29501, 2, "Linux", Script("/sent", keep=("/data/out",)))
    volumes = mounts_file((), kept)["services"]["master"]["volumes"]
    assert [(one["source"], one["target"], one["read_only"]) for one in volumes] == [
        ("/runs/r1/keep", "/muster/runs/r1/keep", True),
        ("/runs/r1/keep/data/out", "/data/out", False),
    ]


def test_secret_files_are_in_the_containers_memory_and_the_cache_is_a_folder_of_this_machine() -> None:
    made = Script("/sent", secrets={"a.json": "x"}, secret_files=("a.json",), cache="/cache", own={"HF_HOME": "/hf"})
    run = local_spec(Path("/runs/r1"), 1, 0, ["train.py"], 29501, 2, "Linux", made)
    node = mounts_file((), run, "7:8")["services"]["master"]
    assert node["volumes"] == [{"type": "bind", "source": "/cache", "target": "/muster/cache", "read_only": False}]
    (folder,) = node["tmpfs"]
    assert folder.startswith("/run/secrets:mode=0700,uid=7,gid=8,")
    assert run.nodes[0].environment["HF_HOME"] == "/hf"


def test_a_users_python_path_comes_after_the_path_of_the_agent() -> None:
    made = Script("/sent", own={"PYTHONPATH": "src"})
    run = local_spec(Path("/runs/r1"), 1, 0, ["train.py"], 29501, 2, "Linux", made)
    assert mounts_file((), run)["services"]["master"]["environment"]["PYTHONPATH"] == "/muster:src"


def test_a_path_with_an_equals_sign_is_mounted_and_the_end_of_its_name_is_not(tmp_path: Path) -> None:
    """Folders of a sweep have such names: with `--data=lr=0.1` the container got a path that it does not have."""
    (tmp_path / "lr=0.1").mkdir()
    (tmp_path / "0.1").mkdir()
    for given in (["--data=lr=0.1"], ["--data", "lr=0.1"]):
        words, paths = mounted(given, tmp_path)
        assert ("=".join(words), paths) == (f"--data={tmp_path}/lr=0.1", [tmp_path / "lr=0.1"])


def test_a_projects_packages_are_a_volume_that_containers_only_read() -> None:
    made = Script("/sent", own={"A": "1"}, packages=Packages("muster-packages-x", {"PATH": f"{PACKAGES}/bin"}))
    run = local_spec(Path("/runs/r1"), 1, 1, ["train.py"], 29501, 2, "Linux", made)
    file = mounts_file((), run)
    for node in file["services"].values():
        assert node["volumes"] == [{"type": "volume", "source": "packages", "target": PACKAGES, "read_only": True}]
        assert node["environment"] == {"A": "1", "PATH": f"{PACKAGES}/bin"}
    assert file["volumes"] == {"packages": {"external": True, "name": "muster-packages-x"}}


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        (Script("/sent", nodes=2), [None, None]),  # no GPU here: the variable of the user stays
        (Script("/sent", gpus=4, nodes=2), ["0,1", "2,3"]),
        (Script("/sent", gpus=3, nodes=2), ["0", "1"]),
        (Script("/sent", gpus=1, nodes=2), ["", ""]),
        (Script("/sent", gpus=2, nodes=1), [None]),  # all of them
        (Script("/sent", gpus=2, nodes=1, uuids=("GPU-b", "GPU-c")), ["GPU-b,GPU-c"]),
    ],
)
def test_nodes_of_one_machine_never_share_a_gpu(script: Script, seen: list[str | None]) -> None:
    run = local_spec(Path("/runs/r1"), 1, script.nodes - 1, ["train.py"], 29501, 2, "Linux", script)
    assert [node.environment.get("CUDA_VISIBLE_DEVICES") for node in run.nodes] == seen


@pytest.mark.parametrize(
    ("script", "alone"),
    [
        (Script("/sent", bare=True), True),
        (Script("/sent"), False),
        (Script("/sent", bare=True, asked=2), False),
        (Script("/sent", bare=True, nodes=2), False),
    ],
)
def test_only_a_single_rank_of_a_command_without_torchrun_runs_as_without_it(script: Script, alone: bool) -> None:
    run = local_spec(Path("/runs/r1"), 1, script.nodes - 1, ["train.py"], 29501, 2, "Linux", script)
    assert [BARE_RANK in node.environment for node in run.nodes] == [alone] * script.nodes


@pytest.mark.parametrize(("total", "left"), [(1, 0.5), (8, 7), (20, 19), (100, 95), (320, 304), (1024, 1008)])
def test_a_container_leaves_memory_for_its_machine(total: int, left: float) -> None:
    assert memory_limit(total << 30) == int(left * (1 << 30))


@pytest.mark.parametrize("given", [["--recipe", "text"], ["--recipe=text"]])
def test_a_built_in_recipe_is_not_taken_for_a_folder_with_its_name(given: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    assert mounted(given, tmp_path) == (given, [])


def test_restarts_are_a_number() -> None:
    assert (value_of(Options(), "restarts"), value_of(Options(restarts="0"), "restarts")) == (None, 0)
    for text in ("-1", "many"):
        with pytest.raises(UsageError, match="--restarts"):
            value_of(Options(restarts=text), "restarts")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("train.py --lr 3", "train.py"),
        ("-m pkg.train", "pkg.train"),
        ("--per-node accelerate launch --num_processes 2 train.py --x a.py", "train.py"),
        ("--per-node bash run.sh", "run.sh"),
        ("--per-node bash tools/job.sbatch", "tools/job.sbatch"),
        ("--per-node accelerate launch -m pkg.train", "accelerate"),
        ("--per-node nanochat train.py", "nanochat"),
    ],
)
def test_a_run_is_named_after_the_script_and_not_its_launcher(words: str, name: str) -> None:
    assert script_name(words.split()) == name
