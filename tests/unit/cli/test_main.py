"""Words of the `muster` command, as a user types them."""

import shlex

import pytest

from deploy.cli import main
from deploy.core.errors import UsageError
from deploy.report import text


def test_what_stands_after_the_dashes_is_the_script_whatever_it_looks_like():
    script = ["train.py", "--lr", "3e-4", "--name", "it's two words", "--", "--hosts"]
    words = main.with_script(["deploy", "--hosts", "a,b", "--", *script])
    assert words[:3] == ["deploy", "--hosts", "a,b"]
    assert len(words) == 4
    assert shlex.split(words[3].removeprefix("--run=")) == script


def test_words_without_dashes_stay_as_they_are():
    assert main.with_script(["deploy", "--hosts", "a", "--run", "x.py -v"]) == [
        "deploy",
        "--hosts",
        "a",
        "--run",
        "x.py -v",
    ]


@pytest.mark.parametrize(
    "words", ["status --hosts a -- train.py", "-- train.py", "deploy --hosts a --", "deploy --run x.py -- train.py"]
)
def test_a_script_where_none_makes_sense_is_refused(words):
    with pytest.raises(UsageError):
        main.with_script(words.split())


def test_fab_and_muster_have_the_same_tasks():
    import fabfile

    assert fabfile.namespace is main.namespace
    assert {"deploy", "up", "status", "fetch"} <= set(main.namespace.task_names)


def test_hints_name_the_command_that_the_user_types():
    hint = "`fab attach --hosts a`, then `make up RESUME=latest`; fabric and make image stay"
    assert text.as_typed(hint, "fab") == hint
    typed = "`muster attach --hosts a`, then `muster up --resume=latest`; fabric and make image stay"
    assert text.as_typed(hint, "muster") == typed
