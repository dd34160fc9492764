"""The numbers that a user sees while a run trains: the time left, the losses, a script's own scalars."""

from itertools import pairwise

import pytest

from deploy.run.state.training import Training


def steps(*of, rank=0):
    return [{"kind": "step", "rank": rank, "t": t, "step": step} for t, step in of]


def training(*events, starts_again=False):
    made = Training()
    for event in events:
        made.apply(event, starts_again and event is events[-1])
    return made


def members(*now):
    return {"kind": "members", "members": list(now), "before": ["a", "b"]}


def continues(step, rank=0, t=50.0, **more):
    return {"kind": "continues", "rank": rank, "t": t, "step": step, "known": not more, **more}


def test_the_time_left_is_derived_from_the_pace_of_the_first_rank():
    of = training(*steps((10.0, 100), (20.0, 120)), *steps((21.0, 500), rank=1))
    assert of.seconds_left(200) == 40.0
    assert of.seconds_left(0) is None, "nobody has said how many steps there are"
    assert training(*steps((10.0, 100))).seconds_left(200) is None
    assert training(*steps((10.0, 100), (20.0, 100))).seconds_left(200) is None, "it makes no step"
    recent = training(*steps((0.0, 0), *((1_000.0 + n, n) for n in range(1, 31))))
    assert recent.seconds_left(40) == pytest.approx(10.0), "a slow beginning is forgotten"


@pytest.mark.parametrize("change", [members("a"), members("a", "c"), continues(100)])
def test_the_pace_of_other_nodes_or_of_an_earlier_start_no_longer_counts(change):
    before = steps((10.0, 100), (20.0, 120))
    assert training(*before, change).seconds_left(200) is None
    assert training(*before, members("b", "a")).seconds_left(200) is not None, "the same nodes, and the same pace"
    assert training(*before, *steps((30.0, 130)), starts_again=True).seconds_left(200) is None


def test_losses_of_repeated_steps_are_replaced_by_those_of_the_repetition():
    metrics = [{"kind": "metrics", "step": step, "loss": loss} for step, loss in ((1, 3.0), (2, 2.0), (3, 1.0))]
    assert training(*metrics, continues(2)).losses == [(1, 3.0), (2, 2.0)]
    assert training(*metrics, continues(2, rank=1)).losses == [(1, 3.0), (2, 2.0), (3, 1.0)]
    another = continues(0, known=False, another=True)
    assert training(*metrics, *steps((10.0, 3)), another).losses == []
    assert len(training(*metrics, *steps((60.0, 1)), another).losses) == 3, "it has made steps since: this word is late"


def test_a_scripts_newest_scalars_are_shown_and_the_number_of_names_is_limited():
    def scalars(tags, file="events.1"):
        return {"kind": "scalars", "file": file, "tags": tags}

    many = scalars({f"tag-{number}": [[1, 0.5]] for number in range(1000)})
    of = training(scalars({"acc": [[1, 0.1], [2, 0.2]], "none": []}), many, scalars({"acc": [[9, 0.9]]}, "events.2"))
    assert of.scalars["acc"] == (9, 0.9, "events.2")
    assert "none" not in of.scalars
    assert len(of.scalars) == 300


def test_the_rates_the_last_checkpoint_and_the_last_evaluation_are_kept():
    checkpoints = [{"kind": "checkpoint", "step": step} for step in (5, 6)]
    of = training({"kind": "metrics", "samples_per_s": 7.0}, *checkpoints, {"kind": "evaluated", "step": 4})
    assert (of.rates, of.losses) == ([7.0], [])
    assert (of.checkpoint["step"], of.evaluated["step"]) == (6, 4)


def test_the_losses_of_weeks_are_as_quick_to_draw_as_those_of_a_minute():
    """Each redraw of the view once went through every loss so far: with 600,000 of them it took a third of a second."""
    made = Training()
    for step in range(100_000):
        made.apply({"kind": "metrics", "step": step, "loss": float(step), "samples_per_s": 1.0 + step}, False)
    steps = [step for step, _ in made.losses]
    assert max(len(made.losses), len(made.rates)) <= 4096
    assert (steps[0], steps[-1]) == (0, 99_999)
    gaps = [after - before for before, after in pairwise(steps[:-1])]
    assert max(gaps) <= 2 * min(gaps), "at even distances"
    made.apply(continues(50_000), False)
    assert made.losses[-1][0] <= 50_000
    made.apply({"kind": "metrics", "step": 50_001, "loss": 7.0}, False)
    assert made.losses[-1] == (50_001, 7.0)
