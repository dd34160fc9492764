"""The table of options: each row's promises hold, and no other module spells a flag."""

from __future__ import annotations

import ast
import re
import shlex
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path

import pytest

from deploy.commands import command
from deploy.core.errors import UsageError
from deploy.job.cluster import Cluster
from deploy.job.load import folder_to_send, job_of, load_cluster
from deploy.job.option_words import read_again, words_again
from deploy.job.options import KEYS, Job, Options, flag_of, row_of
from tests.sources import nodes

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ROWS = [pytest.param(each, id=each.name) for each in fields(Options)]


def given(each):
    """Options in which only this one is set, to an odd value that a user may type."""
    odd = "--x 'a b', $HOME"
    kinds = {False: True, (): ("a b", odd), "": odd}
    return replace(Options(), **{each.name: kinds[each.default]})


@pytest.mark.parametrize("each", ROWS)
def test_a_resume_repeats_an_option_as_it_was_typed_or_not_at_all(each):
    assert read_again(shlex.join(words_again(given(each)))) == (given(each) if row_of(each).again else Options())


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"env": ("HOME=1",), "secret": ("HOME",)}, "--env HOME: this variable is also given as a secret"),
        ({"on_end": "a\nb"}, "the command must fit on one line"),
    ],
)
def test_settings_that_no_run_can_have_are_refused_for_every_backend(typed, words):
    with pytest.raises(UsageError, match=words):
        job_of(Options(**typed), Job())


@pytest.mark.parametrize("typed", [{"include": ("a",)}, {"folder_limit": "1g"}, {"requirements": "no"}])
def test_options_about_the_folder_need_a_folder(typed, tmp_path):
    with pytest.raises(UsageError, match="no folder is sent"):
        folder_to_send(Options(**typed), Cluster(()))
    assert folder_to_send(Options(**typed), Cluster((), Job(folder=tmp_path))) == tmp_path


def test_options_recorded_by_earlier_versions_are_read_and_removed_options_ignored():
    text = "--image my:1 --env 'A=x y' --env B=2 --overlay --gone --min-nodes 2 '--sbatch=-p a'"
    read = Options(image="my:1", env=("A=x y", "B=2"), overlay=True, min_nodes="2", sbatch="-p a")
    assert read_again(text) == read
    assert read_again("--image") == Options()


def test_commas_separate_the_values_of_some_options_only():
    read = command.read_options({"include": ["a,b", "c"], "env": ["A=1,B=2"], "keep": None, "run": "", "wait": False})
    assert read == Options(include=("a", "b", "c"), env=("A=1,B=2",))


@pytest.mark.parametrize("each", ROWS)
def test_every_option_belongs_to_a_command_or_a_key_and_has_a_help_text(each):
    assert row_of(each).helps or row_of(each).key
    assert all(text and not text.endswith(".") for text in (row_of(each).help, *row_of(each).helps.values()))


def test_each_key_of_the_file_is_a_field_of_the_job():
    names = [key.name for key in KEYS.values()]
    assert {*names, "spares", "arbiter", "roles", "data"} == {each.name for each in fields(Job)}
    assert len(names) == len({*names})


@pytest.mark.parametrize(
    ("line", "typed", "field", "both"),
    [
        ('include = ["a"]', Options(include=("b",)), "include", ("a", "b")),
        ('keep = ["/a"]', Options(keep=("/a", "/b/")), "keep", ("/a", "/b")),
        ("processes = 2", Options(nproc="3"), "processes", 3),
        ("gpus = [0, 1]", Options(gpus="3,"), "gpus", (3,)),
        ("max_hours = 2.5", Options(max_hours="0.50"), "max_hours", "0.50"),
        ('on_end = "a"', Options(on_end="b"), "on_end", "b"),
        ("cache = true", Options(no_cache=True), "cache", False),
        ("overlay = true", Options(), "overlay", True),
        ('image = "a"', Options(image="b"), "image", "b"),
    ],
)
def test_a_typed_option_wins_over_the_file_or_extends_its_list(tmp_path, allowed, line, typed, field, both):
    file = tmp_path / "cluster.toml"
    file.write_text(f'[[hosts]]\nname = "a"\n[job]\n{line}\n')
    assert getattr(load_cluster(replace(typed, cluster=str(file))).job, field) == both


def test_a_typed_dockerfile_wins_over_the_image_of_the_file(tmp_path, allowed):
    (tmp_path / "Dockerfile").write_text("FROM x")
    file = tmp_path / "cluster.toml"
    file.write_text('[[hosts]]\nname = "a"\n[job]\nimage = "a"\n')
    job = load_cluster(Options(cluster=str(file), dockerfile=str(tmp_path / "Dockerfile"))).job
    assert (job.image, job.dockerfile) == (None, tmp_path / "Dockerfile")


# Files of deploy/ in which the flag of an option is a word of its own: there the flag belongs to another program, to a
# node's agent or to the trainer; or the file is in core/, which does not know the table and looks at the command line.
# This list only shrinks.
ELSEWHERE = {
    "--detach": {"engine/client.py", "hosts/node/docker_run.py"},
    "--env-file": {"hosts/node/docker_run.py", "hosts/start/probes.py", "hosts/start/rehearsal.py"},
    "--follow": {"host/commands.py"},
    "--force": {"send/packages/commands.py", "send/packages/places.py"},
    "--gpus": {"hosts/node/container.py", "run/sbatch_options.py"},
    "--role": {"job/launchers.py"},
    "--include": {"job/script.py"},
    "--mount": {
        "hosts/node/container.py",
        "hosts/node/sent_folders.py",
        "hosts/start/rehearsal.py",
        "local/packages.py",
    }
    | {"send/packages/commands.py"},
    "--nodes": {"job/launchers.py", "run/sbatch_options.py"},
    "--now": {"hosts/bootstrap.py"},
    "--port": {"hosts/look/port.py"},
    "--python": {
        *("send/packages/inside/build.py", "send/packages/inside/install.py", "send/packages/inside/tools.py"),
        "send/packages/resolve.py",
    },
    "--resume": {"run/files/resumable.py"},
    "--script": {"core/program.py", "run/environment.py"},
    "--since": {"host/commands.py"},
    "--wait": {"run/sbatch_options.py", "slurm/plan.py"},
}
# How many pairs there are of an option and a file in which a text spells that option. An error uses `FLAG.max_hours`,
# and `command_of` makes a hint's command, so this number only shrinks. The rows of causes do not count: they are text,
# and import nothing.
MOST_MENTIONS = 140


def texts_of(path):
    """The string literals of a file that are not docstrings."""
    written = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    found = (node for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in found if id(node) not in written]


def test_only_the_table_spells_the_flag_of_an_option():
    """A list of flags elsewhere would be a second place to edit for whoever adds an option."""
    flags = {flag_of(each.name) for each in fields(Options) if row_of(each).helps}
    words, mentions = defaultdict(set), defaultdict(set)
    for path in sorted(DEPLOY.rglob("*.py")):
        name = str(path.relative_to(DEPLOY))
        for text in texts_of(path) if name != "job/options.py" and not name.startswith("causes/rows/") else ():
            for flag in re.findall(r"--[a-z-]+", text):
                if flag in flags:
                    (words if flag == text else mentions)[flag].add(name)
    assert words == ELSEWHERE
    assert sum(map(len, mentions.values())) <= MOST_MENTIONS, {flag: len(files) for flag, files in mentions.items()}


def _name(called):
    return getattr(called, "attr", getattr(called, "id", ""))


def test_messages_name_existing_options_that_their_command_accepts():
    """Otherwise no test would notice a renamed option in a message that no test provokes."""
    names = {each.name for each in fields(Options)}
    strange, used = [], 0
    for path in sorted(DEPLOY.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "FLAG":
                used += 1
                strange += [f"{path.name}: FLAG.{node.attr}"] if node.attr not in names else []
            if isinstance(node, ast.Call) and _name(node.func).endswith("command_of") and node.args:
                task = node.args[0].value.split()[0] if isinstance(node.args[0], ast.Constant) else ""
                given = {word.arg for word in node.keywords} - {"more", "options", None}
                takes = {each.name for each in fields(Options) if task in row_of(each).helps} if task else names
                strange += [f"{path.name}: {task} {name}" for name in given - takes]
    assert used > 100
    assert not strange


def test_only_the_table_has_the_help_text_of_an_option():
    texts = {text for each in fields(Options) for text in row_of(each).helps.values() if len(text) > 40}
    places = {
        str(path.relative_to(DEPLOY))
        for path in sorted(DEPLOY.rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.Constant) and node.value in texts
    }
    assert places == {"job/options.py"}
