"""Private names of torch: a new torch that moves one is told by that name, and all of it can be switched off."""

import pytest

from trainer.node import together, torch_names


@pytest.mark.torch
def test_this_torch_has_every_name_that_is_patched():
    assert torch_names.moved() == []


@pytest.mark.torch
def test_a_name_that_moved_is_told_with_what_is_lost(monkeypatch):
    for gone in ("torch.distributed:_gone", "torch._gone:name"):
        monkeypatch.setitem(torch_names.NAMES, gone, "speed")
    assert torch_names.moved() == ["torch.distributed:_gone (speed)", "torch._gone:name (speed)"]


def test_ranks_of_a_plain_torchrun_are_not_observed():
    assert "PYTHONPATH" in together.observed({})
    assert together.observed({torch_names.PLAIN: "1"}) == {torch_names.PLAIN: "1"}
