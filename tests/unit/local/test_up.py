"""What `muster up` makes of its options, before anything starts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job.again import words_again
from deploy.job.options import Options
from deploy.local import up
from deploy.run import environment


def test_ranks_of_a_script_train_alone_only_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    options = Options(script="train.py", folder=str(tmp_path))
    assert environment.SEPARATE not in up._read(options)[1].own.own
    separate = up.replace(options, separate=True)
    read, asked = up._read(separate)
    assert asked.own.own[environment.SEPARATE] == "1"
    assert "--separate" in shlex.join(words_again(read))
    with pytest.raises(UsageError, match="--separate"):
        up._read(Options(separate=True))
