"""The table of options: what its rows promise holds for each of them, and a flag is spelled nowhere else."""

from __future__ import annotations

import ast
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest

from deploy.cli import command
from deploy.core.errors import UsageError
from deploy.job.again import read_again, words_again
from deploy.job.load import refuse_on_slurm
from deploy.job.options import Options, flag_of, row_of

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ROWS = [pytest.param(each, id=each.name) for each in fields(Options)]


def given(each):
    """The options with this one alone, as something odd that a user may type."""
    odd = "--x 'a b', $HOME"
    kinds = {False: True, (): ("a b", odd), "": odd}
    return replace(Options(), **{each.name: kinds[each.default]})


@pytest.mark.parametrize("each", ROWS)
def test_a_resume_repeats_an_option_as_it_was_typed_or_not_at_all(each):
    words = shlex.split(shlex.join(words_again(given(each))))
    assert read_again(words) == (given(each) if row_of(each).again else Options())


def test_what_earlier_versions_recorded_is_read_and_an_option_that_is_no_more_is_passed_over():
    text = "--image my:1 --env 'A=x y' --env B=2 --overlay --gone --min-nodes 2 '--sbatch=-p a'"
    read = Options(image="my:1", env=("A=x y", "B=2"), overlay=True, min_nodes="2", sbatch="-p a")
    assert read_again(shlex.split(text)) == read
    assert read_again(["--image"]) == Options()


@pytest.mark.parametrize("each", [each for each in fields(Options) if row_of(each).slurm], ids=lambda each: each.name)
def test_an_option_that_a_job_does_not_have_is_refused_by_name_with_what_does_the_same(each):
    with pytest.raises(UsageError, match=f"^{flag_of(each.name)}: ") as refused:
        refuse_on_slurm(given(each))
    assert refused.value.hint


def test_texts_are_kept_whole_but_where_commas_separate_them():
    read = command._read({"include": ["a,b", "c"], "env": ["A=1,B=2"], "keep": None, "run": "", "wait": False})
    assert read == Options(include=("a", "b", "c"), env=("A=1,B=2",))


@pytest.mark.parametrize("each", ROWS)
def test_every_option_is_of_a_command_and_says_what_it_means_there(each):
    assert row_of(each).helps
    assert all(text and not text.endswith(".") for text in row_of(each).helps.values())


# Flags that are words of other programs as well (docker, ip, sbatch), or that a refusal still names. It only shrinks.
ELSEWHERE = {
    *("--detach", "--env-file", "--force", "--gpus", "--mount", "--nodes", "--wait"),
    *("--args", "--arbiter", "--backend", "--cluster", "--each", "--env", "--hosts", "--include"),
    *("--min-nodes", "--on-end", "--resume", "--run", "--sbatch", "--script", "--slurm", "--spare", "--workers"),
}


def test_the_flag_of_an_option_is_a_word_of_the_table_alone():
    """A list of flags elsewhere is a second place for who adds an option."""
    flags = {flag_of(each.name) for each in fields(Options)}
    spelled = {
        node.value
        for path in sorted(DEPLOY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in flags
    }
    assert spelled == ELSEWHERE


def test_no_module_but_the_table_has_what_an_option_means():
    texts = {text for each in fields(Options) for text in row_of(each).helps.values() if len(text) > 40}
    places = {
        str(path.relative_to(DEPLOY))
        for path in sorted(DEPLOY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in texts
    }
    assert places == {"job/options.py"}
