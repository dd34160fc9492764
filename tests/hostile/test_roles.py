"""Attacks on a run of several roles, on `muster ray`, and on what `muster export` writes: none does harm.

The attackers: another user on a host, a program of the run itself, a host that lies, the author of a folder.
"""

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.hosts.node import roles as planned
from deploy.hosts.node.container import Meeting, Work
from deploy.job.inventory import Host
from deploy.job.options import Job, Options
from deploy.job.roles.role import read
from deploy.run import environment
from deploy.run import roles as plan
from deploy.slurm import export, pods
from muster.errors import TrainError
from tests import pods as cluster
from tests.hosts import FACTS
from trainer.node.agent.pods import variables
from trainer.node.membership import peers
from trainer.node.roles import role_node
from trainer.node.roles.plan import read as read_plan

HOME = Path(__file__).resolve().parents[2]
HOSTS = (Host("a", "10.0.0.1"), Host("b", "10.0.0.2"))


def of_hosts(*texts, **facts):
    acted = plan.read(Options(role=texts, script="x.py"), [host.name for host in HOSTS])
    work = Work("r1", "app", ("x.py",), token="7f", share_key="k" * 32, roles=acted)
    met = Meeting("10.0.0.1", 29500, ("eth0", "eth0"))
    return planned.node_containers(HOSTS, [replace(FACTS, **facts)] * 2, Job(), work, met, ["10.0.0.1", "10.0.0.2"])


# Attacks by a program of the run


def secret_of(key, monkeypatch):
    given = {role_node.PLAN: json.dumps({"key": key, "roles": []})}
    monkeypatch.setattr(role_node, "RoleNode", lambda *_: None)
    role_node.join(given, "a", Path("/none"), 0)
    return given


@pytest.mark.holds("programs-secret")
def test_a_program_cannot_act_as_an_agent_with_the_secret_it_has(monkeypatch):
    given = secret_of("k" * 32, monkeypatch)
    heard = []
    server = peers.serve("127.0.0.1", 0, "k" * 32, lambda question: heard.append(question) or {"phase": "ready"})
    with server:
        port = server.getsockname()[1]
        assert peers.ask("127.0.0.1", port, given[role_node.SECRET], {"node": "a", "phase": "ended", "code": 1}) is None
        assert peers.ask("127.0.0.1", port, "k" * 32, {"node": "a"}) == {"phase": "ready"}
    assert heard == [{"node": "a"}]


def test_a_programs_secret_is_unique_to_its_run_and_does_not_reveal_the_key(monkeypatch):
    one, other = secret_of("k" * 32, monkeypatch), secret_of("l" * 32, monkeypatch)
    assert one[role_node.SECRET] != other[role_node.SECRET]
    assert re.fullmatch(r"[0-9a-f]{64}", one[role_node.SECRET])
    assert role_node.PLAN not in one
    assert "k" * 8 not in one[role_node.SECRET]


@pytest.mark.holds("programs-secret")
def test_no_container_shows_the_programs_secret_to_whoever_may_inspect_it():
    for node in of_hosts("head=1,port=free,ends:python -m muster.ray head", "worker=1:python -m muster.ray worker"):
        assert role_node.SECRET not in node.environment
        assert "RAY_AUTH" not in " ".join(node.argv)


# Attacks by a host that lies, and by its other users


def test_a_host_that_reports_every_port_in_use_is_refused():
    with pytest.raises(DeployError, match="all in use"):
        of_hosts("head=1,port=free,ends:h.py", "worker=1:w.py", listening=frozenset(range(65536)))


def test_a_roles_free_port_is_no_system_port_and_used_by_no_other_part():
    made = of_hosts("head=1,port=free,ends:h.py", "worker=1,port=free:w.py")[0].environment
    nodes = [node for role in read_plan(made["MUSTER_ROLES"]).roles for node in role.nodes.values()]
    ports, questions = {node.service for node in nodes}, {node.port for node in nodes}
    assert len(ports) == 2
    assert min(ports) >= 1024
    assert not ports & {29500, *questions}


def rays(tmp_path, *words, **variables):
    """Run `python -m muster.ray` in a folder with its own ray.py, where a package `ray` is also installed."""
    installed = tmp_path / "installed/ray"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ray.py").write_text("open('taken', 'w')")
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
    given["PYTHONPATH"] = os.pathsep.join([str(HOME), str(tmp_path / "installed")])
    done = subprocess.run(
        [sys.executable, "-m", "muster.ray", *words], cwd=folder, env=given, capture_output=True, text=True, timeout=60
    )
    return done, folder


RUN = {
    "MUSTER_ROLE_HOST": "127.0.0.1", "MUSTER_ROLE_PORT": "1", "MUSTER_ROLE_GPUS": "0",
    "MUSTER_HEAD_ADDRESSES": "127.0.0.1:1",
}  # fmt: skip


def test_a_ray_py_in_the_folder_is_not_imported_as_ray(tmp_path):
    done, folder = rays(tmp_path, "head", **RUN)
    assert done.returncode != 0
    assert not (folder / "taken").exists()


def test_a_link_in_place_of_rays_token_is_not_written_through(tmp_path):
    (tmp_path / ".ray").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".ray/auth_token").symlink_to(tmp_path / "precious")
    rays(tmp_path, "head", **RUN, MUSTER_ROLE_SECRET="5e5a")
    token = tmp_path / ".ray/auth_token"
    assert (tmp_path / "precious").read_text() == "kept"
    assert (token.read_text(), stat.S_IMODE(token.lstat().st_mode)) == ("5e5a", 0o600)


def test_a_heads_address_never_becomes_an_option_of_ray():
    from muster.ray import start_words

    words = start_words("worker", {**RUN, "MUSTER_HEAD_ADDRESSES": "--head,--x"}, 1 << 30, 1)
    assert words[-1] == "--address=--head"
    assert not {"--head", "--x"} & {*words}


# Attacks by a folder that somebody sent


def test_no_role_name_collides_with_a_variable_of_muster():
    plain = read_plan(of_hosts("a=1,port=1:x.py", "b=1:x.py")[0].environment["MUSTER_ROLES"]).variables("a")
    ours = {*environment.MUSTER_NAMES, plan.ROLES, plan.POD_KEY, role_node.SECRET}
    ours |= {name for name in plain if not name.startswith(("MUSTER_A_", "MUSTER_B_"))}
    for name in (each.removeprefix("MUSTER_").lower().replace("_", "-") for each in ours):
        for end in ("", "-hosts", "-port", "-addresses"):
            try:
                role = read(f"{name.removesuffix(end)}=1,port=1:x.py")
            except UsageError:
                continue
            made = {f"MUSTER_{role.name.upper().replace('-', '_')}_{kind}" for kind in ("HOSTS", "PORT", "ADDRESSES")}
            assert not made & ours


@pytest.mark.parametrize("port", ["free;rm", "-1", "0", "65536", "free free", "FREE", "1e3"])
def test_a_port_of_a_role_is_a_port_or_free_and_nothing_else(port):
    with pytest.raises(UsageError):
        read(f"a=1,port={port}:x.py")


# Text that a cluster reads

BREAKS = (
    'x"\nhostNetwork: true', "x\n---\nkind: Pod", "x # y", "*a", "&a b", "!!python/object:os.system", "{{a}}",
    "x\u2028hostPID: true", "x\x85y: z", "\x00", "'", "- x", "$(HF_TOKEN)", "$$(HF_TOKEN)", "${HF_TOKEN}",
)  # fmt: skip


@pytest.mark.holds("exports-are-text")
@pytest.mark.parametrize("kind", pods.KINDS)
@pytest.mark.parametrize("text", BREAKS)
def test_no_text_of_a_command_an_image_or_a_variable_becomes_a_field(kind, text):
    plain, harmful = (
        cluster.objects(
            pods.manifest(
                kind,
                pods.PodSet(
                    "train",
                    value,
                    (pods.Group(("--script", "t.py", value), 2),),
                    variables={"OWN": value},
                    secrets={"HF_TOKEN": "hf"},
                    made_by=f"muster export {value}",
                ),
            )
        )
        for value in ("plain", text)
    )
    assert shape(plain) == shape(harmful)


def shape(value):
    """The fields of an object, with the types of their values instead of the values."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else type(value)


@pytest.mark.holds("exports-are-text")
@pytest.mark.parametrize("kind", pods.KINDS)
def test_a_secret_is_no_part_of_the_text_and_no_word_expands_to_it(kind):
    made = pods.PodSet(
        "train",
        "i",
        (pods.Group(("--script", "t.py", "$(HF_TOKEN)")),),
        variables={"OWN": "$(HF_TOKEN)"},
        secrets={"HF_TOKEN": "hf"},
    )
    ((_, _, command, env, _),) = cluster.pods(pods.manifest(kind, made), {"HF_TOKEN": "sesame-4711"})
    assert (command[-1], env["OWN"], env["HF_TOKEN"]) == ("$(HF_TOKEN)", "$(HF_TOKEN)", "sesame-4711")


@pytest.mark.parametrize("name", ["../x", "a: b", "a\nb", "", "A", "a/b", "x" * 300, "-x", "a}"])
def test_the_name_of_a_claim_or_a_secret_is_a_name(name):
    with pytest.raises(UsageError):
        pods.object_of("--shared", name)


@pytest.mark.parametrize("name", ["LD_PRELOAD x", "a-b", "MUSTER_RUN_DIR", "PET_NNODES", "1A", ""])
def test_a_secret_is_a_variable_that_a_user_may_set(name):
    with pytest.raises(UsageError):
        pods.secrets_of([f"{name}=hf"])


@pytest.mark.parametrize("number", ["", "-1", "1e9", "9" * 40, "two", "1\n"])
def test_a_pod_with_invalid_numbers_is_a_single_node(number):
    made = variables(
        {"PET_MASTER_ADDR": "x.y", "PET_NNODES": number, "PET_NODE_RANK": number}, ["--script", "t.py"], Path("/x")
    )
    assert "PET_RDZV_ENDPOINT" not in made
    assert made["PET_NPROC_PER_NODE"] == "1"


OF_ROLES = {"PET_MASTER_ADDR": "localhost", "MUSTER_ROLE": "reward", "MUSTER_ROLES_KEY": "k" * 32}
PLAN = {"roles": [{"name": "reward", "nodes": {"reward": ["localhost", 1, 2, 0, 0]}}]}


@pytest.mark.parametrize(
    "given",
    [
        {"MUSTER_ROLES": "{"},
        {"MUSTER_ROLES": "[]"},
        {"MUSTER_ROLES": "[" * 100_000},
        {"MUSTER_ROLES": json.dumps({**PLAN, "roles": 7})},
        {"MUSTER_ROLES": json.dumps({"roles": [{"name": "reward", "nodes": {"reward": []}}]})},
        {"MUSTER_ROLES": json.dumps(PLAN), "MUSTER_ROLE_INDEX": "1"},
        {"MUSTER_ROLES": json.dumps(PLAN), "MUSTER_ROLE": "trainer"},
        {"MUSTER_ROLES": json.dumps(PLAN), "MUSTER_ROLES_KEY": ""},
    ],
)
def test_a_pod_with_changed_roles_does_not_start(given):
    assert variables({**OF_ROLES, "MUSTER_ROLES": json.dumps(PLAN)}, ["--script", "t.py"], Path("/x"))
    with pytest.raises(TrainError):
        variables({**OF_ROLES, **given}, ["--script", "t.py"], Path("/x"))


def test_an_export_does_not_contain_the_runs_key(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").touch()
    options = Options(to="jobset", image="i", script="t.py", role=("reward=1,port=8000:python t.py",))
    export.export(options, None)
    text = capsys.readouterr().out
    export.export(options, None)
    assert capsys.readouterr().out == text  # the text contains nothing random
    assert 'secretKeyRef: {name: "t-py-roles", key: "MUSTER_ROLES_KEY"}' in text


def test_a_cloned_folders_roles_start_nothing_before_the_user_allows_them(tmp_path):
    (tmp_path / "cluster.toml").write_text(
        'hosts = ["a"]\n[[role]]\nname = "a"\ncommand = "python evil.py"\nends = true\n'
    )
    (tmp_path / "evil.py").write_text("")
    line = [Path(sys.executable).with_name("fab"), "--search-root", HOME, "up", "--backend", "processes"]
    given = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(line, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 2
    assert "asks for things that only you can allow" in done.stderr
    assert not (tmp_path / "runs").exists()
