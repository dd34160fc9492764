"""The report's pure functions: slow ranks, drawings, thinning, numbers in words."""

from __future__ import annotations

import math

import pytest

from deploy.core import text
from deploy.report import text as lines
from deploy.report.page import charts, steps
from deploy.run.state.ranks import StepTime


def mean(data, compute, wait):
    return StepTime(40, 40, data, compute, wait, data + compute + wait)


@pytest.mark.parametrize(
    ("waits", "slow"),
    [
        ([10.0], []),
        ([5.0, 5.0, 5.0], []),
        ([1.0, 12.0], [0]),
        ([12.0, 12.0, 1.0], [2]),
        ([1.0, 1.1] + [12.0] * 6, [0, 1]),
        ([0.1, 0.5, 0.5], []),
        ([8.0, 12.0, 12.0], []),
    ],
)
def test_a_rank_that_works_longer_than_the_others_is_slow(waits, slow):
    means = {rank: mean(1.0, 20.0 - wait, wait) for rank, wait in enumerate(waits)}
    assert [*steps.slow_ranks(means, {})] == slow


def test_a_rank_that_is_slow_at_loading_data_is_distinguished():
    means = {0: mean(1.0, 10.0, 9.0), 1: mean(9.5, 10.0, 0.5)}
    sentence = "n1 (rank 1) is slow: it waits for its data for 20 ms of each of its 40 steps, the others for 11 ms."
    assert steps.slow_ranks(means, {1: "n1"}) == {1: sentence}


def test_means_weigh_lines_by_the_steps_they_cover():
    rows = [StepTime(10, 9, 1.0, 1.0, 1.0, 3.0), StepTime(11, 1, 11.0, 1.0, 1.0, 13.0)]
    assert steps.mean(rows).data == pytest.approx(2.0)


@pytest.mark.parametrize("values", [(0, 600), (5, 5), (0, 0), (-1e99, 1e99), (1e-300, 1e-300), (1e15, 2e15)])
def test_a_plain_drawing_stays_within_its_frame_for_any_numbers(values):
    drawing = charts.draw(charts.Chart("loss", "", [charts.Series("loss", [*enumerate(values)])]))
    ((path, _),) = drawing["paths"]
    corners = [float(number) for corner in path[1:].removesuffix("h.01").split("L") for number in corner.split()]
    assert all(0 <= number <= charts.SIDE for number in corners)


def test_thinning_is_bounded_and_keeps_order_ends_and_extremes():
    points = [(float(i), math.sin(i)) for i in range(100_000)]
    points[31_234] = (31_234.0, -50.0)
    thinned = charts.thin(points, columns=100)
    assert len(thinned) <= 400
    assert thinned == sorted(thinned)
    assert set(thinned) <= set(points)
    assert {points[0], points[-1], points[31_234]} <= set(thinned)


@pytest.mark.parametrize(
    ("shown", "meant"),
    [
        (text.percent(0.98888), "98.9 %"),
        (text.percent(0.9999), "99.9 %"),
        (text.percent(1), "100.0 %"),
        (text.figure(0.08123), "0.0812"),
        (text.figure(5410), "5,410"),
        (text.figure(1.2e-7), "1.20e-07"),
        (text.clock(7.31, tenths=True), "0:07.3"),
        (text.clock(59.99, tenths=True), "1:00.0"),
        (text.clock(183_632), "2 d 3:00:32"),
        (text.duration(185), "3 min 05 s"),
        (text.duration(21.42), "21.4 s"),
        (text.duration(59.99), "60.0 s"),
        (text.amount(1_234_567), "1.2 MB"),
        (text.amount(999), "999 B"),
        (text.ranks_in_words([0, 1, 2, 5]), "ranks 0-2, 5"),
    ],
)
def test_numbers_in_words(shown, meant):
    assert shown.replace("\u00a0", " ") == meant


def test_the_headline_names_host_and_rank_even_if_the_traceback_names_the_host():
    run = {"verdict": "failed", "node": "rack-3", "rank": 2}
    traceback = 'train.py ended with code 1: ValueError\n  File "rack-3:~/.muster/runs/r1/work/train.py", line 1'
    assert lines.culprit({**run, "message": traceback}) == "rack-3 (rank 2)"
    assert lines.culprit({**run, "message": "rack-3 (rank 2) was killed by SIGKILL"}) == ""
