"""A wheel in the folder is installed unchanged, by its hash."""

import pytest

from deploy.core.errors import UsageError
from deploy.send.packages import requirements, resolve

WHEEL = "mine-1.0-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL).write_bytes(b"a wheel")
    (tmp_path / "requirements.txt").write_text(f"./wheels/{WHEEL}\n")
    return tmp_path


def test_other_content_of_the_wheel_gives_another_key(folder):
    sent = {"requirements.txt", f"wheels/{WHEEL}"}
    before = requirements.read(folder, "requirements.txt", sent).key()
    (folder / "wheels" / WHEEL).write_bytes(b"another wheel")
    assert requirements.read(folder, "requirements.txt", sent).key() != before


def test_a_wheel_that_is_not_sent_is_refused_with_the_option_that_sends_it(folder):
    with pytest.raises(UsageError) as refused:
        requirements.read(folder, "requirements.txt", {"requirements.txt"})
    assert f"--include wheels/{WHEEL}" in refused.value.hint


def test_a_torchvision_for_another_torch_is_noticed_before_it_fails_in_the_ranks():
    cpu, cuda = {"torch": "2.13.0+cpu"}, {"torch": "2.13.0+cu126"}
    assert "torchvision==0.28.0 of the index" in resolve.other_torch({"torchvision==0.28.0", "tqdm==1.0"}, cpu)
    assert "torchaudio==2.11.0 of the index" in resolve.other_torch({"torchaudio==2.11.0"}, cpu)
    assert not resolve.other_torch({"torchvision==0.28.0+cpu"}, cpu)
    assert not resolve.other_torch({"torchvision==0.28.0"}, cuda)
    assert not resolve.other_torch({"tqdm==1.0", "torchvision-extra==1"}, cpu)
    assert not resolve.other_torch({"torchvision==0.28.0"}, {**cpu, "torchvision": "0.28.0+cpu"})


def test_an_empty_wheel_is_refused_by_its_path(folder):
    (folder / "wheels" / WHEEL).write_bytes(b"")
    with pytest.raises(UsageError, match=f"wheels/{WHEEL}: it is empty"):
        requirements.read(folder, "requirements.txt", {"requirements.txt", f"wheels/{WHEEL}"})
