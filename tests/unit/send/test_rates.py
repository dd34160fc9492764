"""Small content is sent directly if the measured rate makes that faster than a road."""

from __future__ import annotations

import pytest

from deploy.send.road.rates import MAKING_S, SMALL, Rates

MB = 1 << 20


@pytest.fixture
def rates(tmp_path):
    made = Rates(tmp_path)
    made.record(["a", "b"], 2 * MB, 0.5)  # 4 MB a second
    return made


def test_copies_go_directly_if_that_is_faster_than_making_a_road(rates):
    most = int(MAKING_S * 4 * MB)
    assert rates.is_faster_directly("a", most // 8 - 1, 8)
    assert not rates.is_faster_directly("a", most // 8 + 8, 8)
    assert not rates.is_faster_directly("a", SMALL + 1, 1), "a cut push goes on from what arrived"
    assert not rates.is_faster_directly("c", MB, 2), "nobody knows"


def test_a_rate_is_kept_for_the_next_push_and_forgotten_if_it_no_longer_holds(rates, tmp_path):
    rates.save()
    again = Rates(tmp_path)
    assert again.is_faster_directly("b", MB, 4)
    again.check("b", MAKING_S)
    assert again.is_faster_directly("b", MB, 4)
    again.check("b", 3 * MAKING_S)
    assert not again.is_faster_directly("b", MB, 4)
    assert again.is_faster_directly("a", MB, 4)


def test_a_small_transfer_does_not_count_as_a_rate(rates):
    rates.record(["a"], 1000, 10.0)
    assert rates.is_faster_directly("a", MB, 4)


@pytest.mark.parametrize(
    "text", [b"", b"a 1", b'{"a": "x"}', b'{"a": -1}', b"\xff\xff", b'{"a": 1e99}', b"[1]", b'{"a": 1']
)
def test_garbage_in_the_file_is_not_a_rate(tmp_path, text):
    (tmp_path / "rates").write_bytes(text)
    assert not Rates(tmp_path).is_faster_directly("a", 10 * MB, 8)
