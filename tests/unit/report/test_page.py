"""The report of a run: right numbers, nothing loaded from outside, and a page for any state of the folder."""

from __future__ import annotations

import json
import math
import random
import time
from html.parser import HTMLParser

import pytest

from deploy.core.budget import Budget
from deploy.report.page import head, run
from deploy.report.page.data import RunReader, load
from deploy.run.files import timeline
from deploy.run.follower import Follower
from deploy.run.state import story as run_story
from deploy.run.state.ranks import Ranks
from deploy.run.state.story import Happening
from lab import waiting

START = 1_780_000_000.0
NODES = ["master", "worker-1", "worker-2"]
HOSTILE = "</script><script>alert('x')</script><img src=http://evil.test/a>\ud800"


class Page(HTMLParser):
    """The page as a browser parses it: text by element, attributes, and scripts."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.texts, self.scripts = [], [], [], []
        self.pairs, self.cells = {}, []
        self.feed(source)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))
        if name in ("dt", "dd", "th", "td"):
            self.cells.append("")
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name
        if name in ("dd", "td"):
            self.pairs[plain(self.cells[-2])] = plain(self.cells[-1])
        if name not in ("b", "i", "em", "a", "code"):
            self.texts.append(" ")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif "style" not in self.open:
            self.texts.append(data)
            if {"dt", "dd", "th", "td"} & set(self.open):
                self.cells[-1] += data

    @property
    def text(self):
        return plain("".join(self.texts))

    def having(self, **wanted):
        return [a for _, a in self.tags if all(a.get(k.rstrip("_")) == v for k, v in wanted.items())]


def plain(text):
    """Text with single ordinary spaces."""
    return " ".join(text.replace("\u00a0", " ").split())


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


RECORD = {"id": "2026-05-28-2026-digits", "backend": "processes", "why": "local processes (no Docker engine answers)"}
CONFIG = {"recipe": "digits", "steps": 600, "batch": 96, "lr": 3e-3, "precision": "fp32", "checkpoint_every": 100}
ENVIRONMENT = {"python": "3.11.2", "torch": "2.13.0+cpu", "cpus": 2, "variables": {"OMP_NUM_THREADS": "1"}}
END = {"verdict": "done", "code": 0, "seconds": 29.8, "samples_per_s": 3187.0, "accuracy": 0.9889}
ARGUMENTS = ["--recipe", "digits", "--steps", "600"]


class Story:
    """Writes the events of three ranks and the trainer's metrics, for a run that one slow rank delays."""

    def __init__(self, steps, every, checkpoint_every):
        self.steps, self.every, self.checkpoint_every = steps, every, checkpoint_every
        self.chance, self.metrics, self.events = random.Random(7), [], ([], [], [])

    def event(self, rank, t, kind, **fields):
        self.events[rank].append({"t": round(START + t, 3), "kind": kind, "rank": rank, "node": NODES[rank], **fields})

    def start(self, t, attempt, step):
        for rank in range(3):
            self.event(rank, t, "started", attempt=attempt, host="gpu-a", world=3, device="cpu", backend="gloo")
        plan = {"recipe": "digits", "steps": self.steps, "start_step": step, "batch": 96, "samples": 1437}
        self.event(0, t + 0.2, "plan", **plan, precision="fp32")

    def train(self, first, last, begin):
        for step in range(first + self.every, last + 1, self.every):
            t = begin + 0.5 + (step - first) * 0.03
            self.logged(step, t)
            if step % self.checkpoint_every == 0:
                self.saved(step, t)

    def logged(self, step, t):
        uniform = self.chance.uniform
        loss = 2.3 * math.exp(-step / 110) * uniform(0.75, 1.3) + 0.02 if step < self.steps else 0.0312
        lr = 3e-3 * min(step / 50, 0.5 + 0.5 * math.cos(math.pi * step / self.steps))
        speed = 3200 * uniform(0.9, 1.06)
        self.metrics.append({"t": START + t, "step": step, "loss": loss, "lr": lr, "samples_per_s": speed})
        for rank in range(3):
            data, compute = uniform(0.8, 1.3), uniform(14, 16) + (9 if rank == 2 else 0)
            parts = {"data_ms": data, "compute_ms": compute, "wait_ms": 30 - data - compute, "step_ms": 30.0}
            self.event(rank, t, "step", step=step, steps=self.steps, count=self.every, **parts)

    def saved(self, step, t):
        accuracy = 0.9889 if step == self.steps else 0.991 - 0.9 * math.exp(-step / 100)
        values = {"loss": 0.0641 if step == self.steps else 2.1 * math.exp(-step / 120) + 0.05, "accuracy": accuracy}
        self.event(0, t + 0.01, "checkpoint", step=step, pause_ms=3.1, write_ms=41.0, bytes=612_000)
        self.event(0, t + 0.02, "evaluated", step=step, samples=360, values=values)
        self.metrics.append({"t": START + t, "step": step, "eval": values, "samples": 360})


def sample(folder, steps=600, every=5, checkpoint_every=100):
    """Make the folder of a run on three nodes that was killed at step 340 and resumed from step 300."""
    story = Story(steps, every, checkpoint_every)
    story.start(1.0, 0, 0)
    story.train(0, 340, 1.0)
    story.start(19.0, 1, 300)
    story.event(0, 19.3, "resumed", step=300, path="checkpoints/step-00000300", changes=["world size 3, as before"])
    story.train(300, steps, 19.0)
    for rank, node in enumerate(NODES):
        story.event(rank, 29.5, "outcome", verdict="done", code=0, step=steps, message="", hint="", culprit=rank)
        write_lines(folder / "ranks" / f"rank-{rank}.jsonl", story.events[rank])
        write(folder / "nodes" / f"{node}.json", {"node": node, "pid": 99, "host": "gpu-a", "t": START + 0.4})
        write(folder / "logs" / f"rank-{rank}.log", "hello")
    write_lines(folder / "metrics.jsonl", story.metrics)
    record = {**RECORD, "nodes": NODES, "workers": 2, "arguments": ARGUMENTS, "started": START}
    documents = {"record": record, "config": CONFIG, "environment": ENVIRONMENT, "outcome": END}
    for name, document in documents.items():
        write(folder / f"{name}.json", document)
    write(folder / "checkpoints" / "step-00000600" / "manifest.json", {})
    return folder


def without_outcomes(folder, *nodes):
    """Remove the outcome that a follower writes, and the outcome events of these nodes' ranks."""
    (folder / "outcome.json").unlink()
    for node in nodes:
        path = folder / f"ranks/rank-{NODES.index(node)}.jsonl"
        path.write_text("".join(line for line in path.read_text().splitlines(True) if '"outcome"' not in line))


def recorded(folder):
    """This machine's record of the run, as the page gets it."""
    return json.loads((folder / "record.json").read_text())


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return sample(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def shown(run_dir):
    return Page(run.build(run_dir, recorded(run_dir)))


def charts_of(shown):
    """The charts as page.js would read them."""
    return [json.loads(a["data-chart"]) for _, a in shown.tags if "data-chart" in a]


def series_of(shown, name):
    """The points of a series as page.js would read them."""
    every = [each for chart in charts_of(shown) for each in chart["series"]]
    return next(each["points"] for each in every if each["name"] == name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("held-out accuracy of 360 samples", "98.9 %"),
        ("held-out loss", "0.0641"),
        ("from the first rank to the end", "29.8 s"),
        ("samples per second", "3,187"),
        ("Nodes", "master, worker-1 and worker-2"),
        ("Backend", "local processes (no Docker engine answers)"),
        ("Recipe", "digits"),
        ("Started", "2026-05-28 20:26:40 UTC"),
    ],
)
def test_the_head_shows_the_values_in_the_folder(shown, name, value):
    assert shown.pairs[name] == value


@pytest.mark.parametrize("line", ['"torch": "2.13.0+cpu"', '"OMP_NUM_THREADS": "1"', '"checkpoint_every": 100'])
def test_the_json_documents_are_shown_unchanged(shown, line):
    assert line in shown.text


def test_the_page_shows_the_verdict_and_the_command_to_run_it_again(shown):
    assert "✓ Done" in shown.text
    assert shown.having(class_="verdict done")
    assert "Run again muster up --args='--recipe digits --steps 600' --workers 2 --backend processes" in shown.text


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({}, "muster deploy --hosts a,u@b:2222 --args='--steps 600'"),
        (
            {"script": True, "arguments": ["t.py", "--lr", "1"]},
            "muster deploy --hosts a,u@b:2222 t.py --lr 1",
        ),
        ({"cluster": "c.toml", "again": "--nproc 2", "arguments": []}, "muster deploy --cluster c.toml --nproc 2"),
    ],
)
def test_the_command_repeats_a_run_on_its_hosts(more, command):
    record = {"backend": "hosts", "hosts": ["a", "u@b:2222"], "arguments": ["--steps", "600"], "script": False}
    assert head.again({**record, **more}) == command


def test_charts_use_the_last_value_of_a_step(shown):
    training = series_of(shown, "training")
    steps = [step for step, _ in training]
    assert steps == sorted(set(steps)) == list(range(5, 601, 5))
    assert training[-1] == [600, 0.0312]
    assert series_of(shown, "held-out")[-1] == [600, 0.0641]
    assert series_of(shown, "accuracy")[-1] == [600, 98.89]


def test_each_step_has_its_own_point_even_if_steps_count_tokens(tmp_path):
    """Rounded to seven digits, three of these steps became one, in the table and in the CSV."""
    sample(tmp_path)
    steps = [12_345_678_901, 12_345_678_902, 12_345_678_950]
    write_lines(tmp_path / "metrics.jsonl", [{"t": START, "step": step, "loss": 1.0} for step in steps])
    shown = Page(run.build(tmp_path))
    assert series_of(shown, "training") == [[step, 1] for step in steps]


def test_resume_is_marked_on_every_chart_over_the_run(shown):
    assert [chart["marks"] for chart in charts_of(shown)] == [[[300, "resumed"]]] * 4
    assert "resumes from step 300" in shown.text
    assert "all ranks restart (restart 1)" in shown.text


def test_the_slow_rank_is_named_with_the_reason(shown):
    assert (
        "worker-2 (rank 2) is slow: it computes for 25 ms of each of its 600 steps, the others for 16 ms." in shown.text
    )


def test_a_run_without_a_follower_has_the_story_a_follower_would_have_seen(shown):
    times = [
        shown.text.index(words)
        for words in (
            "0:01.2 training digits: 1,437 samples",
            "step 200: held-out accuracy",
            "all ranks restart (restart 1)",
            "resumes from step 300",
            "step 600: held-out accuracy 98.9 %",
        )
    ]
    assert times == sorted(times)


def test_the_head_names_the_last_checkpoint_as_the_view_does(shown):
    assert shown.pairs["Checkpoint"] == "at step 600 (3.1 ms pause)"


def test_nothing_comes_from_outside(shown, run_dir):
    policy = shown.having(**{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    links = [
        a[name] for _, a in shown.tags for name in ("href", "src", "srcset", "data", "poster", "action") if name in a
    ]
    assert "logs/rank-0.log" in links
    for link in links:
        assert (run_dir / link).exists(), link
    assert not {"link", "img", "iframe", "object", "base"} & {name for name, _ in shown.tags}
    assert "url(" not in run.build(run_dir)
    assert "@import" not in run.build(run_dir)


def test_a_nodes_text_is_escaped(tmp_path):
    sample(tmp_path)
    write(
        tmp_path / "record.json",
        {"id": HOSTILE, "backend": HOSTILE, "why": HOSTILE, "nodes": [HOSTILE], "arguments": [HOSTILE]},
    )
    write(tmp_path / "config.json", {HOSTILE: HOSTILE, "recipe": HOSTILE})
    write(tmp_path / "outcome.json", {"verdict": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "node": HOSTILE})
    write(tmp_path / "nodes" / "x.json", {"node": HOSTILE, "t": START, "host": HOSTILE})
    event = {
        "t": START,
        "rank": 1,
        "node": "worker-1",
        "step": 5,
        "message": HOSTILE,
        "path": HOSTILE,
        "changes": [HOSTILE],
    }
    kinds = ("started", "plan", "resumed", "checkpoint_failed", "checkpoint_damaged", "stopping", "outcome", HOSTILE)
    evaluated = {**event, "kind": "evaluated", "values": {HOSTILE: 1.0}}
    timed = {**event, "kind": "step", "data_ms": 1, "compute_ms": 1, "wait_ms": 1, "step_ms": 3}
    write_lines(tmp_path / "ranks" / "rank-1.jsonl", [{**event, "kind": kind} for kind in kinds] + [evaluated, timed])
    write_lines(tmp_path / "ranks" / "rank-2.jsonl", [{**event, "kind": kind, "node": HOSTILE} for kind in kinds])
    (tmp_path / "logs" / "<script>.log").write_text("")
    lines = [{"t": START + n, "text": f"{HOSTILE}\n{n}", "grave": n > 2} for n in range(5)]
    write_lines(tmp_path / "timeline.jsonl", lines)
    source = run.build(tmp_path)
    shown = Page(source)
    assert shown.text.count("alert('x')") >= 12
    assert len(shown.scripts) == 1
    assert "alert" not in shown.scripts[0]
    assert not [name for name, _ in shown.tags if name == "img"]
    source.encode("utf-8")


def test_torn_lines_are_reported_and_the_rest_is_shown(tmp_path):
    sample(tmp_path)
    for name in ("metrics.jsonl", "ranks/rank-0.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write('{"t": 1780000030.1, "step": 605, "lo')
    shown = Page(run.build(tmp_path))
    assert "metrics.jsonl: its last line is incomplete and left out" in shown.text
    assert "rank-0.jsonl: its last line is incomplete and left out" in shown.text
    assert series_of(shown, "training")[-1] == [600, 0.0312]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\x00\xff\xfe",
        b"null",
        b"[1]",
        b'{"t": {}',
        b"[" * 100_000,
        b'{"t": "x", "step": true}',
        b'{"step": 5, "eval": {"loss": "a", "accuracy": 1e999}, "kind": "evaluated", "values": [1]}',
        b'{"step": 1e400, "loss": NaN, "t": 1e300, "kind": "outcome"}',
        b'{"step": -5, "loss": -1e308, "t": -1e300, "kind": "plan", "lr": 1e-320, "nodes": 5}',
        b'{"step": 1, "loss": 5e-324, "t": 1, "seconds": 5e-324}\n{"step": 2, "loss": 1, "t": 2}\n',
        b'{"node": "a", "t": 1, "gpus": [{"index": 0, "power_w": 0}]}\n'
        b'{"node": "a", "t": 2, "gpus": [{"index": 0, "power_w": 5e-324}]}\n',
        b'{"step": ' + b"9" * 400 + b', "kind": "started", "attempt": "x"}',
    ],
)
def test_rubbish_in_any_file_never_raises(tmp_path, rubbish):
    sample(tmp_path)
    write_lines(tmp_path / "telemetry/master.jsonl", [])
    files = [path for path in tmp_path.rglob("*.json*") if "checkpoints" not in path.parts]
    assert len(files) > 10
    for path in files:
        path.write_bytes(rubbish)
    Page(run.build(tmp_path))


@pytest.mark.parametrize("sources", [True, [1], "x" * 9, {"a": {"b": "c"}}, {"a": {"b": -1}}])
def test_a_malformed_field_of_a_record_is_left_out(tmp_path, sources):
    sample(tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    write(tmp_path / "record.json", {**record, "sources": sources, "starts": [[]], "arguments": 5, "nodes": {"a": 1}})
    assert "What was sent" not in Page(run.build(tmp_path)).text


@pytest.mark.parametrize("name", ["record.json", "config.json", "environment.json", "outcome.json", "metrics.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    sample(tmp_path)
    (tmp_path / name).unlink()
    shown = Page(run.build(tmp_path))
    assert f"{name}: missing" in shown.text
    assert "98.9 %" in shown.text or name == "metrics.jsonl"


def test_a_file_that_is_a_folder_and_an_empty_run(tmp_path):
    empty = Page(run.build(tmp_path))
    assert "No outcome was recorded" in empty.text
    assert "Where each step" not in empty.text
    assert not [name for name, _ in empty.tags if name == "section"]
    assert "metrics.jsonl: missing" in empty.text
    (tmp_path / "metrics.jsonl").mkdir()
    assert "metrics.jsonl: cannot be read" in Page(run.build(tmp_path)).text
    assert "there is no such folder" in Page(run.build(tmp_path / "gone")).text


def test_failure_names_the_culprit_and_the_hint_even_without_the_control_side(tmp_path):
    sample(tmp_path)
    (tmp_path / "outcome.json").unlink()
    end = {"t": START + 30, "verdict": "failed", "rank": 2, "node": "worker-2", "step": 340}
    write(tmp_path / "outcome/master-0.json", {**end, "message": "the loss is not finite", "hint": "lower --lr"})
    shown = Page(run.build(tmp_path, recorded(tmp_path)))
    assert "✕ Failed" in shown.text
    assert "worker-2 (rank 2) failed first: the loss is not finite" in shown.text
    assert "hint lower --lr" in shown.text


@pytest.mark.long
def test_a_long_run_has_its_verdict_and_its_checkpoint(tmp_path, monkeypatch):
    """Earlier, reading used up the time of the steps after it, so that no event was looked at."""

    def read(follower, untimed=None, real=Follower.read):
        spent = time.thread_time() + 0.9
        while time.thread_time() < spent:
            pass
        return real(follower, untimed)

    monkeypatch.setattr(Follower, "read", read)
    sample(tmp_path)
    (tmp_path / "outcome.json").unlink()
    write(tmp_path / "outcome/master-0.json", {"t": START + 30, "verdict": "failed", "node": "master"})
    shown = Page(run.build(tmp_path))
    assert "✕ Failed" in shown.text
    assert shown.pairs["Checkpoint"].startswith("at step 600")
    monkeypatch.setattr(Budget, "is_over", True)
    assert "events: reading all of them takes too long" in Page(run.build(tmp_path)).text


def test_an_event_that_raises_is_left_out_with_a_note(tmp_path, monkeypatch):
    sample(tmp_path)
    monkeypatch.setattr(Ranks, "_on_plan", lambda ranks, event, t: event["nothing"])
    assert "an event `plan`: 2 lines cannot be read and are left out" in Page(run.build(tmp_path)).text


def test_an_event_without_a_rank_belongs_to_the_rank_of_its_file(tmp_path):
    unseen = {"t": START, "kind": "unseen", "what": "loss", "message": "it prints none"}
    write_lines(tmp_path / "ranks/rank-3.jsonl", [unseen])
    assert "rank 3: it prints none" in Page(run.build(tmp_path)).text


@pytest.mark.parametrize("name", ["metrics.jsonl", "ranks/rank-0.jsonl", "nodes/master.json"])
def test_a_symlink_in_place_of_a_file_is_reported_once(tmp_path, name):
    folder = sample(tmp_path / "a")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    reader = RunReader(folder)
    for _ in range(2):
        notes = [note for note in load(folder, reader=reader).notes if (folder / name).name in note]
        assert [note.partition(":")[2].split(" be read")[0] for note in notes] in ([" cannot"], [" 1 line cannot"])


@pytest.mark.parametrize(("t", "state"), [(START + 18, "… Unfinished"), (START + 30, "✕ Failed"), (None, "✕ Failed")])
def test_only_a_verdict_of_the_last_start_counts(tmp_path, t, state):
    """Earlier, a run that had been restarted after a failure and was still going was shown as failed."""
    without_outcomes(sample(tmp_path), "worker-1")
    write(tmp_path / "outcome/worker-2-0.json", {"verdict": "failed", "node": "worker-2"} | ({"t": t} if t else {}))
    assert state in Page(run.build(tmp_path)).text


def test_without_an_outcome_file_the_verdict_in_a_ranks_events_counts(tmp_path):
    sample(tmp_path)
    (tmp_path / "outcome.json").unlink()
    assert "✓ Done" in Page(run.build(tmp_path)).text
    end = {"t": START + 30, "kind": "outcome", "verdict": "failed", "rank": 1, "node": "worker-1", "culprit": 2}
    with (tmp_path / "ranks/rank-1.jsonl").open("a") as file:
        file.write(json.dumps({**end, "culprit_node": "worker-2", "message": "the loss is nan"}) + "\n")
    assert "worker-2 (rank 2) failed first: the loss is nan" in Page(run.build(tmp_path)).text


def test_a_run_whose_ranks_never_began_has_a_start_and_a_duration(tmp_path):
    write(tmp_path / "nodes/master.json", {"node": "master", "t": START})
    why = {"kind": "waits", "why": "for a GPU", "rank": 0, "node": "master"}
    write_lines(tmp_path / "ranks/rank-0.jsonl", [{**why, "t": START + 3}, {**why, "t": START + 63}])
    shown = Page(run.build(tmp_path))
    assert shown.pairs["Started"] == "2026-05-28 20:26:40 UTC"
    assert shown.pairs["from the first rank to its last sign of life"] == "1 min 03 s"


def test_a_run_is_not_done_before_all_its_nodes_are(tmp_path):
    without_outcomes(sample(tmp_path), *NODES)
    for node in NODES:
        assert "No outcome was recorded" in Page(run.build(tmp_path)).text
        write(tmp_path / f"outcome/{node}-0.json", {"t": START + 30, "verdict": "done", "node": node})
    assert "✓ Done" in Page(run.build(tmp_path)).text


def story_of(*lines):
    story = run_story.Story()
    story.extend(lines)
    return story


def test_the_page_shows_the_recorded_story_lines_of_all_starts(tmp_path):
    sample(tmp_path)
    lost = "worker-1 (rank 1) was killed by SIGKILL at step 340"
    timeline.keep(
        tmp_path, story_of(Happening(START + 1, "training digits: 1,437 samples"), Happening(START + 15, lost, True))
    )
    timeline.keep(tmp_path, story_of(Happening(START + 75.5, "resumes from step 300")))
    shown = Page(run.build(tmp_path))
    assert f"0:01.0 training digits: 1,437 samples 0:15.0 {lost} 1:15.5 resumes from step 300" in shown.text
    assert "held-out accuracy 0" not in shown.text.partition("What happened")[2], "nothing that was not told"
    assert [item["class"] for item in shown.having(class_="warn")] == ["warn"], "what no reader must miss is marked"


def test_the_seconds_of_a_resumed_run_count_its_last_start(tmp_path):
    sample(tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    write(tmp_path / "record.json", {**record, "starts": [{}, {}]})
    assert Page(run.build(tmp_path)).pairs["in the last of 2 starts"] == "29.8 s"


@pytest.mark.parametrize(
    ("starts", "name", "shown"),
    [
        ([START - 86_400, START + 20], "in the last of 2 starts", "8.5 s"),
        ([START], "from the first rank to its last sign of life", "28.5 s"),
    ],
)
def test_without_an_end_the_seconds_count_from_the_last_start_to_the_last_sign_of_life(tmp_path, starts, name, shown):
    """The board's list counts alike; a pause of a day between two starts does not count."""
    sample(tmp_path)
    for path in [tmp_path / "outcome.json", *(tmp_path / "ranks").glob("*")]:
        lines = [line for line in path.read_text().splitlines(True) if '"outcome"' not in line]
        path.write_text("".join(lines)) if path.suffix == ".jsonl" else path.unlink()
    record = json.loads((tmp_path / "record.json").read_text())
    write(tmp_path / "record.json", {**record, "started": starts[0], "starts": [{"t": t} for t in starts]})
    assert Page(run.build(tmp_path)).pairs[name] == shown


@pytest.mark.long
def test_the_page_of_a_long_run_stays_small(tmp_path):
    sample(tmp_path, steps=1000, every=1, checkpoint_every=4)
    row = '{"t": %f, "step": %d, "epoch": %f, "loss": %f, "lr": 0.001, "grad_norm": 1.0, "samples_per_s": %d}\n'
    losses = {27_777: 9.5}
    rows = (row % (START + i, i, i / 15, losses.get(i, 2.0), 5000 + i % 7) for i in range(1, 40_001))
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    with waiting.spending_little():
        source = run.build(tmp_path)
    shown = Page(source)
    assert [27_777, 9.5] in series_of(shown, "training"), "thinning lost the spike"
    assert len(source) < 1_000_000
    assert "details" in {name for name, _ in shown.tags}


def test_a_long_story_shows_the_grave_lines_and_folds_all_lines_below_them(tmp_path):
    sample(tmp_path)
    for loss in range(1, 81):
        lines = (Happening(START + 100 * loss + n, f"step {n} of {loss}: held-out loss 0.1") for n in range(1, 4))
        timeline.keep(tmp_path, story_of(Happening(START + 100 * loss, f"loss {loss}", grave=True), *lines))
    shown = Page(run.build(tmp_path)).text
    places = [shown.index(f"loss {loss} ") for loss in range(1, 81)]
    assert places == sorted(places)
    assert shown.index("loss 80 ") < shown.index("All 320 lines") < shown.index("step 1 of 1:")


def test_a_very_long_story_is_shown_by_its_beginning_and_end(tmp_path):
    sample(tmp_path)
    timeline.keep(tmp_path, story_of(*(Happening(START + n, f"line {n}.", grave=True) for n in range(5000))))
    shown = Page(run.build(tmp_path)).text
    assert [f" line {n}." in shown for n in (0, 149, 150, 4849, 4850, 4999)] == [True, True, False, False, True, True]
    assert "4700 more are in timeline.jsonl" in shown
