"""GPUs of this machine, between commands that want them. nvidia-smi is a named fake."""

import pytest

from deploy.core.errors import DeployError
from deploy.local import gpus
from tests import fake_gpus

# It starts programs.
pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def four(tmp_path, monkeypatch):
    """A machine with four GPUs that do not exist."""
    (tmp_path / "nvidia-smi").write_text(fake_gpus.smi())
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_what_one_command_holds_no_other_gets_until_it_is_given_back():
    first = gpus.take(2, "one.py")
    try:
        with pytest.raises(
            DeployError, match=r"2 free GPUs of 4, and 3 asked for: the deploy of one.py \(.+\) has GPU 0"
        ):
            gpus.take(3, "two.py")
        second = gpus.take(2, "two.py")
        assert [gpu.index for gpu in (*first.gpus, *second.gpus)] == [0, 1, 2, 3]
        second.release()
    finally:
        first.release()
    whole = gpus.take("auto", "three.py")
    assert len(whole.gpus) == 4
    whole.release()
