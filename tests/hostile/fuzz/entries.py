"""Every parser of what hosts and containers say, with what is done with its value; samples to mutate."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.config.inventory import Host, Job
from deploy.core import fields, names
from deploy.core.names import NodeName
from deploy.core.text import last_line
from deploy.host import commands as host_commands
from deploy.host import facts, logs
from deploy.host import gpus as gpu_facts
from deploy.host import lock as host_lock
from deploy.host import status as host_status
from deploy.hosts import bootstrap, bootstrap_run, mirror, nodes, resume, stop
from deploy.hosts import container as deploy_spec
from deploy.hosts import plan as deploy_plan
from deploy.hosts.container import Work
from deploy.image import model, push_plan
from deploy.preflight import probe_answers, refusals
from deploy.report import tables
from deploy.report import text as lines
from deploy.report.page import run as page
from deploy.run import events, outcome, record
from deploy.run.follow import Follower
from deploy.run.progress import State
from deploy.ssh import known_hosts
from tests.hostile.fuzz import samples
from tests.hostile.fuzz.talking import conversation, proof


@dataclass(frozen=True)
class Entry:
    """A parser: its name, answers as they should be, and what to do with one that is not."""

    name: str
    samples: tuple[bytes, ...]
    run: Callable[[bytes], object]


ENTRIES: list[Entry] = []
_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
_HELD = tempfile.TemporaryDirectory(prefix="muster-fuzz-", dir=_FAST)  # gone with this process
_FOLDER = Path(_HELD.name)


def entry(*given):
    """Register a parser with its samples; it gets text as a session gives it."""

    def register(run):
        texts = tuple((one if isinstance(one, str) else json.dumps(one)).encode() for one in given)
        ENTRIES.append(Entry(run.__name__, texts, lambda data: run(data.decode(errors="replace"))))
        return run

    return register


@entry(samples.LOOK)
def look(said):
    """`host_commands.look`, and a plan made of it."""
    found = facts.parse(said, 1795238476.0)
    address = deploy_plan.choose_address([found], None)
    work = Work(names.run_id("r2"), "muster-trainer:cpu", ("train.py",))
    host = Host("a", "a")
    meeting = deploy_spec.meeting_of([host], address, deploy_plan.choose_port(found), [facts.Route("eth0", address)])
    if not found.uid:  # a login as root: a number is chosen for the run before
        return
    for one in deploy_spec.node_containers([host], [found], Job(), work, meeting):
        host_commands.variable_lines(one.environment)
        _words(one.argv)


@entry(samples.container(), samples.container("b", 1, "exited", 137))
def container(said):
    """One container, of ours or of somebody else."""
    (found,) = facts.containers([said], "/home/ops") or (facts.parse_container(samples.container()),)
    deploy_plan.choose_run(deploy_plan.runs_of({"a": [found]}) or {found.run: {"a": found}}, "")
    _words([found.run, found.node, found.name, found.user])


@entry(samples.ADDRESSES)
def addresses(said):
    """`ip -j addr`."""
    found = facts.parse_addresses(said)
    return [one.shares_network(other) for one in found for other in found]


@entry(samples.ROUTE)
def route(said):
    """`ip -j route get`."""
    return facts.parse_route(said)


@entry(samples.STATUS)
def status(said):
    """`commands.status`, as table and as JSON."""
    found = {"a": host_status.parse(said)}
    tables.status_rows(found)
    _json(tables.status_values(found))


@entry(samples.RUNS)
def runs(said):
    """`commands.runs`."""
    found = {"a": host_status.parse_runs(said), "b": host_status.parse_runs(samples.RUNS)}
    tables.run_rows(found)
    _json(tables.run_values(found))


@entry(samples.MEMBERS)
def members(said):
    """`commands.members`."""
    found = {"a": logs.parse(said)}
    run = logs.choose_run(found, "r1")
    logs.ranks_of(logs.members_of(found, run))
    logs.host_of_rank(found, run, 11)


@entry(samples.CONSOLE)
def console(said):
    """A node's console."""
    heard_of = logs.ConsoleCount(lambda: None)
    for line in said.split("\n"):
        _, said_words = logs.split(line)
        heard_of.is_count(said_words)


@entry(*samples.GPUS)
def gpus(said):
    """`commands.gpus`."""
    found = {"a": gpu_facts.parse(said.split("\n"))}
    tables.gpu_rows(found)
    _json([tables.gpu_value(one) for one in found.values()])


@entry(samples.INSPECT)
def inspected(said):
    """`docker image inspect`, and the image of a run made of it."""
    made = model.run_image(model.parse_base("base:1", said), samples.LAYER, "run:1")
    model.index(made, model.manifest(made, {}))
    for layer in made.layers:
        assert model.digest(b"").partition(":")[0] == "sha256"
        assert "/" not in layer
        assert ".." not in layer


@entry(samples.STORE)
def store(said):
    """`commands.look_at_images`."""
    found = push_plan.parse_store(said)
    push_plan.plan_push(samples.IMAGE, found)
    push_plan.check_space(found, [1])
    push_plan.codec_for(found)
    _words(push_plan.replaced(samples.IMAGE, found))


@entry(samples.HELD)
def shown(said):
    """One image on a host."""
    push_plan.stands_on(samples.BASE, push_plan.parse_image(said))


@entry(samples.mirrored())
def mirrored(said):
    """`host_commands.follow`, into a run folder that is then followed as a local one is."""
    run_dir = _fresh("r1")
    taking = mirror.Mirror(run_dir, "a", NodeName("a"), lambda words: None)
    follower, state = Follower(run_dir, from_start=True), State(("a", "b"))
    for line in said.split("\n"):
        taking.take(line.replace("MARK", taking.mark, 1) if line.startswith("MARK") else line)
    told = follower.read()
    _followed(state, told)
    _json(told)
    here = {path.relative_to(_FOLDER).parts[0] for path in _FOLDER.rglob("*")}
    assert here == {"r1"}, here


@entry(samples.REMOVED)
def removed(said):
    """`host_commands.remove`."""
    _words([word for pair in nodes.removed_of(said).left for word in pair])


@entry(samples.LOCK)
def lock(said):
    """Who holds a host's lock."""
    found = host_lock._standing(said)
    if found:
        host_lock._refusal("a", found)


@entry(samples.CHECKPOINTS)
def checkpoints(said):
    """`host_commands.checkpoints`."""
    found = {"a": resume.parse_checkpoints(said)}
    run = resume.pick("latest", found, frozenset())
    resume.refuse_elsewhere(run, ["a"], {"a": found["a"][run]})


@entry(samples.CONFIG)
def config(said):
    """A run's config.json, which becomes the trainer's arguments."""
    _words(resume.arguments_of(resume.parse_config(said)))


@entry(samples.VERDICT, samples.VERDICT + "\n" + samples.STEP, samples.RANK_LINES)
def last_words(said):
    """`host_commands.last_words`, and how `fab stop` tells the end."""
    found = facts.parse_container(samples.container())
    nodes = {"a": found}
    state = stop._state(nodes, events.last_words(said.split("\n"), 1795238476.0))
    _told(stop._result(state, nodes, killed=False), state)


@entry(samples.KNOWN_HOSTS)
def known(said):
    """A known_hosts file."""
    return known_hosts.lookup(said, "gpu-a", "file") + known_hosts.lookup(said, "[gpu-a]:2222")


@entry(*samples.BOOTSTRAP)
def bootstrapped(said):
    """What bootstrap asks, and its plan."""
    plan = bootstrap.decide(bootstrap.parse(said))
    bootstrap_run.plan_lines({"a": plan})
    for step in plan.steps:
        _words(step.argv)


@entry(samples.RANK_LINES)
def ranks(said):
    """Events of a rank, one after the other."""
    run_dir = _fresh("r1")
    (run_dir / "ranks").mkdir()
    (run_dir / "ranks" / "rank-0.jsonl").write_text(said, errors="replace")
    state = State(("a", "b"))
    _followed(state, Follower(run_dir, from_start=True).read())


@entry(samples.METRICS)
def metrics(said):
    """metrics.jsonl."""
    run_dir = _fresh("r1")
    (run_dir / "metrics.jsonl").write_text(said, errors="replace")
    _followed(State(("a",)), Follower(run_dir, from_start=True).read())


@entry(samples.VERDICT, samples.NODE_UP)
def documents(said):
    """nodes/<node>.json and outcome/<node>-0.json."""
    run_dir = _fresh("r1")
    for folder, name in (("nodes", "a.json"), ("outcome", "a-0.json")):
        (run_dir / folder).mkdir()
        (run_dir / folder / name).write_text(said, errors="replace")
    _followed(State(("a", "b")), Follower(run_dir, from_start=True).read())


@entry(samples.RECORD, samples.OUTCOME)
def records(said):
    """record.json and outcome.json, as `make runs`, a resume and the hints read them."""
    run_dir = _fresh("r1")
    for name in ("record.json", "outcome.json"):
        (run_dir / name).write_text(said, errors="replace")
    for row in record.listing(_FOLDER, ()):
        lines.run_cells(row)
        _json(row.__dict__)
    resume.with_resume_hint(outcome.Result("stopped", "x"), run_dir, True)
    record.facts(run_dir)
    record.own(run_dir)
    record.folder_of(_FOLDER, names.run_id("r1"))


@entry(
    *(f"{name}\n{text}" for name, text in (
        ("record.json", samples.RECORD), ("outcome.json", samples.OUTCOME), ("config.json", samples.CONFIG),
        ("metrics.jsonl", samples.METRICS), ("ranks/rank-0.jsonl", samples.RANK_LINES),
        ("nodes/a.json", samples.NODE_UP), ("telemetry/a.jsonl", samples.TELEMETRY),
        ("scalars/a.jsonl", samples.SCALARS),
        ("timeline.jsonl", samples.TIMELINE), ("environment.json", '{"torch": "2.13.0", "variables": {"A": "1"}}'),
    ))
)  # fmt: skip
def report_page(said):
    """A run folder of which one file is odd, as a page."""
    name, _, text = said.partition("\n")
    run_dir = _fresh("r1")
    whole = {"record.json": samples.RECORD, "outcome.json": samples.OUTCOME, "config.json": samples.CONFIG,
             "metrics.jsonl": samples.METRICS, "ranks/rank-0.jsonl": samples.RANK_LINES,
             "telemetry/a.jsonl": samples.TELEMETRY, "scalars/a.jsonl": samples.SCALARS}  # fmt: skip
    odd = name if name in (*whole, "nodes/a.json", "timeline.jsonl", "environment.json") else "metrics.jsonl"
    for path, content in {**whole, odd: text}.items():
        (run_dir / path).parent.mkdir(exist_ok=True)
        (run_dir / path).write_text(content, errors="replace")
    page.build(run_dir).encode()


@entry(*samples.WORDS)
def faults(said):
    """The last words of commands and engines, which are told with a cause."""
    refusals.start(refusals.last_words(said) or said)
    last_line(said.encode(errors="replace"))
    facts.engine_fault(said)


@entry("r1", "2026-11-21-0214-digits", "nodes/a.json", "outcome/a-0.json", "ranks/rank-0.jsonl")
def named(said):
    """Names and paths."""
    path = mirror.allowed_path(said)
    assert path is None or not {"..", "/"} & set(path.parts)
    for check in (names.run_id, names.node_name, names.container_name, names.file_name, names.container_id):
        try:
            found = check(said)
        except names.BadAnswer:
            continue
        assert "/" not in found
        assert found not in (".", "..")
        assert "\x00" not in found


@entry(*({"do": do, **answer} for place in (0, 1) for do, answer in samples.probe(place).items()),
       {"do": "connect", "results": [samples.RESULT, {"id": 1, "outcome": "dropped", "tries": 3}]},
       {"do": "proof", "torch": "2.13.0", "right": True, "seconds": 0.5})  # fmt: skip
def probed(said):
    """One answer of a probe, by its question."""
    value = fields.json_object(said, "said")
    do = value.pop("do", "facts")
    _json(probe_answers.read(do if isinstance(do, str) and do in probe_answers.QUESTIONS else "facts", value))


ENTRIES += [Entry("conversation", *conversation()), Entry("proof", *proof())]


def _fresh(name):
    """An empty run folder."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    (_FOLDER / name).mkdir(parents=True)
    return _FOLDER / name


def _followed(state, told):
    for event in told:
        state.apply(event)
    now = time.time()
    state.apply({"kind": "node", "t": now - 60, "node": "a", "state": "exited", "code": 1})
    lines.metric_line(state, 80)
    lines.progress_line(state)
    lines.headline(state.names, state, "digits", "why")
    for name in state.names:
        lines.rank_cells(state.rank_of(name), state)
        lines.node_word(name, state)
    outcome.judge(state, now - 100, now)
    result = outcome.judge(state, now - 100, now) or outcome.stopped(state)
    _told(result, state)
    record.close(_fresh("r1"), result, state, 1.0)


def _told(result, state):
    outcome.all_ended(state)
    _words([result.message, result.hint])
    assert isinstance(result.code, int)
    lines.result_parts(result, state, 1.5, "report.html")


def _words(texts):
    """Text that a file, a terminal and a command line take."""
    for text in texts:
        assert isinstance(text, str)
        text.encode()


def _json(value):
    json.dumps(value).encode()
