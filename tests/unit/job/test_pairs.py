"""Options that exclude or need each other: a user can meet each rule of the table, and rules do not collide."""

import re
from dataclasses import replace

import pytest

from deploy.commands import main
from deploy.core.errors import FAILED, USAGE, UsageError
from deploy.job.load import load_cluster
from deploy.job.option_words import words_of
from deploy.job.options import KEYS, ROWS, Job, Options, Rule, flag_of, rules_of
from deploy.job.together import refuse_pairs
from tests.typed import NOWHERE

TASKS = sorted({task for row in ROWS.values() for task in row.helps})


def typeable(task, rule):
    """Whether the command has the rule's other options; a rule of `up` may also concern settings in a run's record."""
    return all(task in ROWS[name].helps for term in rule.terms if not term.absent for name in term.names)


RULES = [
    pytest.param(task, name, rule, id=f"{task}-{name}-{rule.when}")
    for task in TASKS
    for name, rule in rules_of(task)
    if typeable(task, rule)
]


def asked(name, rule):
    """Options that a rule refuses: its own option, and those that it must not be combined with."""
    given = {name: ""} | {term.names[0]: "".join(term.texts[:1]) for term in rule.terms if not term.absent}
    values = {str: "x", tuple: ("x",), bool: True}
    return Options(**{each: text or values[type(getattr(Options(), each))] for each, text in given.items()})


@pytest.mark.parametrize(("task", "name", "rule"), RULES)
def test_each_rule_names_options_of_the_command_and_says_what_to_type(task, name, rule, monkeypatch):
    assert {each for term in rule.terms for each in term.names} <= ROWS.keys()
    assert rule.why
    assert not rule.why.endswith(".")
    monkeypatch.setattr("deploy.job.together.rules_of", lambda task: [(name, rule)])
    with pytest.raises(UsageError) as refused:
        refuse_pairs(task, asked(name, rule))
    what, _, why = refused.value.message.partition(" cannot be used with")
    assert what.split()[0] == flag_of(name)
    assert why.endswith(f": {rule.why}")
    assert refused.value.hint
    assert refused.value.code == USAGE
    refuse_pairs(task, Options(**{each: getattr(asked(name, rule), each) for each in ROWS if each != name}))


@pytest.mark.parametrize(("task", "name", "rule"), [each for each in RULES if not each.values[2].needs])
def test_a_command_refuses_conflicting_options_before_it_does_anything(task, name, rule, capsys):
    assert main.run([task, *words_of(asked(name, rule))]) == USAGE
    assert " cannot be used with" in capsys.readouterr().err


@pytest.mark.parametrize("task", TASKS)
def test_a_single_option_is_refused_only_for_an_option_that_it_needs(task):
    for name in ROWS:
        options = replace(Options(), **{name: getattr(asked(name, Rule("", "")), name)})
        needs = [rule for own, rule in rules_of(task) if own == name and all(term.absent for term in rule.terms)]
        if needs:
            with pytest.raises(UsageError, match=f"^{flag_of(name)} cannot be used without"):
                refuse_pairs(task, options)
        else:
            refuse_pairs(task, options)


def test_a_conflict_with_the_file_names_its_key_and_its_keys_may_lack_what_they_need():
    with pytest.raises(UsageError, match=r"^--wait cannot be used with `min_nodes` of cluster\.toml") as refused:
        refuse_pairs("deploy", Options(wait=True), Job(min_nodes="2"))
    assert refused.value.hint == "leave out --wait, or leave out `min_nodes` of cluster.toml"
    refuse_pairs("deploy", Options(args="--steps 1"), Job(restart_with="--resume", requirements="no"))
    refuse_pairs("deploy", Options(spare="b"), Job(min_nodes="2"))
    with pytest.raises(UsageError, match="--spare cannot be used without --min-nodes"):
        refuse_pairs("deploy", Options(spare="b"), Job())


@pytest.mark.parametrize(
    ("line", "name", "other"),
    [
        ('image = "a"\ndockerfile = "Dockerfile"', "dockerfile", "image"),
        ('script = "a.py"\nargs = "--steps 1"', "args", "script"),
        ("min_nodes = 2\noverlay = true", "overlay", "min_nodes"),
        ('min_nodes = 2\nrestart_with = "--resume"', "restart_with", "min_nodes"),
    ],
)
def test_two_keys_of_a_file_exclude_each_other_as_the_options_do(tmp_path, allowed, line, name, other):
    (tmp_path / "cluster.toml").write_text(f'hosts = ["a"]\n[job]\n{line}\n')
    with pytest.raises(UsageError, match=f"cluster.toml: job.{name}: cannot be used with {other}: ") as refused:
        load_cluster(Options(cluster=str(tmp_path / "cluster.toml")))
    assert refused.value.hint
    assert {name, other} <= KEYS.keys()


# Lines of cluster.toml that prevent a start, by the words of the refusal.
UNFIT = {
    "environment: PET_NNODES": "environment = { PET_NNODES = 3 }",
    "job.overlay: cannot be used with min_nodes": "min_nodes = 2\noverlay = true",
    "job.folder: there is no folder": 'folder = "gone"',
    ".env: line 1 is not NAME=VALUE": 'env_file = ".env"',
}


@pytest.fixture
def unfit(tmp_path, monkeypatch):
    """Returns a function: write files that prevent a start, and change into their folder."""

    def write(fault):
        (tmp_path / ".env").write_text("TOKEN 'of mine\n")
        (tmp_path / "cluster.toml").write_text(f'hosts = ["{NOWHERE}"]\n[job]\n{UNFIT[fault]}\n')
        monkeypatch.chdir(tmp_path)

    return write


GO_ON = ("stop", "status", "logs", "fetch", "attach", "down", "leave", "exec")


# `attach` passes the secrets of .env to nodes that wait for them, so it must read that file.
@pytest.mark.parametrize(
    ("task", "fault"), [(task, fault) for task in GO_ON for fault in UNFIT if task != "attach" or ".env" not in fault]
)
def test_a_file_that_prevents_a_start_does_not_block_commands_on_a_running_run(task, fault, unfit, capsys):
    """Somebody may edit the file during the run, and must still be able to stop the run."""
    unfit(fault)
    words = {"leave": ["-H", NOWHERE], "exec": ["true"]}.get(task, [])
    assert main.run([task, "--run", "r1", "--allow-folder", *words]) == FAILED
    shown = "".join(capsys.readouterr())
    assert re.search(rf"(?m)^(error: |warning: )?{NOWHERE}", shown), "it has asked the host"
    assert fault not in shown


@pytest.mark.parametrize("fault", UNFIT)
@pytest.mark.parametrize("starts", [["deploy", "--args", "--steps 1"], ["preflight"]], ids=lambda words: words[0])
def test_a_file_that_prevents_a_start_is_reported_before_a_start(starts, fault, unfit, capsys):
    unfit(fault)
    assert main.run([*starts, "--allow-folder"]) == USAGE
    assert fault in capsys.readouterr().err


def test_a_typed_image_wins_over_the_dockerfile_of_the_file(tmp_path, allowed):
    (tmp_path / "Dockerfile").write_text("FROM x")
    (tmp_path / "cluster.toml").write_text('hosts = ["a"]\n[job]\ndockerfile = "Dockerfile"\n')
    options = Options(cluster=str(tmp_path / "cluster.toml"), image="b")
    job = load_cluster(options).job
    assert (job.image, job.dockerfile) == ("b", None)
    refuse_pairs("deploy", options, job)
