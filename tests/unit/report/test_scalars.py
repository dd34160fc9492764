"""The numbers in a script's own files, on its page and in the live view; malformed lines are left out."""

from __future__ import annotations

import re

import pytest

from deploy.core.errors import BadAnswer
from deploy.report import text
from deploy.report.page import run, scalars
from deploy.run import events
from deploy.run.follower import Follower
from deploy.run.progress import State
from tests.unit.report.test_page import HOSTILE, START, Page, write_lines
from tests.unit.report.test_script_page import plain_run

CSV = "work/lightning_logs/version_0/metrics.csv"


def line(file=CSV, node="master", **tags):
    """A line of scalars/<node>.jsonl."""
    return {"t": START, "node": node, "file": file, "tags": tags}


def section(*lines):
    """The page's section about these lines."""
    by_node = {}
    for one in lines:
        by_node.setdefault(one["node"], []).append(events.of_scalars(one, 0.0))
    return scalars.section(by_node)


def test_the_page_has_a_chart_for_each_name_and_says_from_which_file(tmp_path):
    plain_run(tmp_path)
    write_lines(
        tmp_path / "scalars/master.jsonl",
        [line(accuracy=[[1, 0.5], [2, 0.75]]), line(train_loss=[[1, 3.0]]), line(train_loss=[[2, 2.0]], size=[[0, 9]])],
    )
    page = run.build(tmp_path)
    Page(page)
    shown = page[page.index("What it measured") :]
    assert re.findall(r"<b>(\w+)</b>", shown[: shown.index("</section>")]) == ["train_loss", "accuracy"]
    assert f"Read from {CSV}." in shown
    assert "<dt>size</dt><dd>9.00</dd>" in shown


def test_if_no_file_has_numbers_there_is_no_section(tmp_path):
    plain_run(tmp_path)
    assert "What it measured" not in run.build(tmp_path)


def test_one_name_from_several_files_shares_a_chart():
    files = [f"work/runs/{name}/events.out.tfevents.1.host.0" for name in "abcdef"]
    found = section(*(line(file, loss=[[1, 1.0], [2, index]]) for index, file in enumerate(files)))
    (chart,) = found["charts"]
    assert [key.name for key in chart["chart"].series] == ["runs/a", "runs/b", "runs/c", "runs/d"]
    assert chart["chart"].note == "and 2 more"


def test_event_files_of_one_folder_are_one_curve_as_in_tensorboard():
    files = [f"work/runs/a/events.out.tfevents.{start}.host.0" for start in (1, 2)]
    (chart,) = section(line(files[0], loss=[[1, 1.0]]), line(files[1], loss=[[2, 0.5]]))["charts"]
    (series,) = chart["chart"].series
    assert series.points == [(1, 1.0), (2, 0.5)]


def test_checkpoints_of_one_trainer_are_one_curve():
    files = [f"work/out/checkpoint-{step}/trainer_state.json" for step in (5, 10)]
    found = section(line(files[0], loss=[[5, 1.0]]), line(files[1], loss=[[10, 0.5]]))
    assert len(found["charts"]) == 1
    assert found["files"] == ["work/out/checkpoint-*/trainer_state.json"]


def test_a_copy_on_another_host_is_not_a_second_curve():
    whole = {"loss": [[1, 1.0], [2, 0.5]]}
    (chart,) = section(line(node="a", **whole), line(node="b", loss=[[1, 1.0]]))["charts"]
    assert len(chart["chart"].series) == 1
    (chart,) = section(line(node="a", **whole), line(node="b", loss=[[1, 1.5], [2, 0.5]]))["charts"]
    assert [key.name.rpartition(" ")[2] for key in chart["chart"].series] == ["a", "b"]


def test_values_that_are_not_finite_are_not_drawn():
    found = section(line(loss=[[1, float("nan")], [2, 1.0], [3, float("inf")]]), line(gone=[[1, float("nan")]]))
    assert found["charts"] == []
    assert found["facts"] == [("loss", "1.00")]


def test_hostile_names_are_escaped(tmp_path):
    plain_run(tmp_path)
    write_lines(tmp_path / "scalars/master.jsonl", [line(file=HOSTILE, **{HOSTILE: [[1, 1.0], [2, 2.0]]})])
    Page(run.build(tmp_path))


@pytest.mark.parametrize(
    "odd",
    [
        {"tags": []},
        {"tags": {"loss": [[1]]}},
        {"tags": {"loss": [["1", 1.0]]}},
        {"tags": {"loss": [[-1, 1.0]]}},
        {"tags": {"loss": [[1, 1.0]] * 1001}},
        {"tags": {"x" * 101: [[1, 1.0]]}},
        {"file": 3},
        {"file": "x" * 301},
        {"node": "../x"},
    ],
)
def test_a_malformed_line_is_left_out_everywhere(tmp_path, odd):
    with pytest.raises(BadAnswer):
        events.of_scalars({**line(loss=[[1, 1.0]]), **odd}, 0.0)
    plain_run(tmp_path)
    write_lines(tmp_path / "scalars/master.jsonl", [{**line(loss=[[1, 1.0], [2, 1.0]]), **odd}])
    assert "What it measured" not in run.build(tmp_path)


def test_the_view_has_the_newest_evaluation(tmp_path):
    write_lines(
        tmp_path / "scalars/master.jsonl",
        [
            line(
                val_loss=[[1, 0.9], [2, 0.81]],
                lr=[[2, 1e-4]],
                eval_runtime=[[2, 3.0]],
                **{"eval_acc": [[2, 0.5]], "eval/acc": [[2, 0.5]]},
            )
        ],
    )
    state = State(("master",), script=True)
    for event in Follower(tmp_path, from_start=True).read():
        state.apply(event)
    assert text.metric_line(state, 80) == "val_loss 0.810    eval/acc 0.500"
    assert "val_loss 0.81" in text.progress_line(state)


def test_a_loss_from_a_file_is_shown_if_the_watcher_sees_none():
    state = State(("master",), script=True)
    state.apply(events.of_scalars(line(**{"train/loss": [[5, 0.25]]}), 0.0))
    assert text.metric_line(state, 80) == "train/loss 0.250"
    state.training.losses.append((5, 0.5))
    assert "train/loss" not in text.metric_line(state, 80)


def test_logged_numbers_are_shown_next_to_the_loss_that_the_watcher_sees():
    state = State(("master",), script=True)
    logged = line("work/training/metrics.jsonl", loss=[[5, 0.25]], perplexity=[[5, 1.3]])
    state.apply(events.of_scalars(logged, 0.0))
    assert text.metric_line(state, 80) == "loss 0.250    perplexity 1.30"
    state.apply({"kind": "step", "t": 1.0, "rank": 0, "node": "master", "step": 5})
    state.training.losses.append((5, 0.5))
    assert text.progress_line(state).endswith("loss 0.500   perplexity 1.30")
