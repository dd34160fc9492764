"""Every parser for answers from hosts and containers, with what Muster does with the value, and samples to mutate."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from deploy.causes import docker_faults
from deploy.core import fields, names
from deploy.core.names import NodeName
from deploy.core.text import last_line
from deploy.door import reasons
from deploy.door.settings import Place, Route
from deploy.engine import engine
from deploy.engine.wire import Answer, Excess, Wire
from deploy.host import commands as host_commands
from deploy.host import facts, jobs, leftovers, logs, networks
from deploy.host import gpus as gpu_facts
from deploy.host import lock as host_lock
from deploy.host import status as host_status
from deploy.host.files import folder_copy
from deploy.hosts import bootstrap, bootstrap_run, mirror, which_run
from deploy.hosts.act import members, newcomer_plan, stop
from deploy.hosts.node import container as deploy_spec
from deploy.hosts.node import overlay, overlay_plan
from deploy.hosts.node.container import Work
from deploy.hosts.start import plan as deploy_plan
from deploy.hosts.start import resume
from deploy.job.inventory import Host
from deploy.job.options import Job
from deploy.preflight import probe_answers, refusals
from deploy.report import tables
from deploy.report import text as lines
from deploy.report.page import run as page
from deploy.run import events, outcome
from deploy.run.files import record, recorded_ends
from deploy.run.follower import Follower
from deploy.run.progress import State
from deploy.send.folder import folder_push
from deploy.send.image import model, push_plan
from deploy.slurm import job_end as job_ends
from deploy.slurm import words as job_words
from deploy.slurm.mirror import JobCopy
from tests.hostile.fuzz import samples
from tests.hostile.fuzz.talking import conversation, proof
from tests.hosts import FACTS


@dataclass(frozen=True)
class Entry:
    """A parser: its name, correct sample answers, and the function that handles any answer."""

    name: str
    samples: tuple[bytes, ...]
    run: Callable[[bytes], object]


ENTRIES: list[Entry] = []
_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
_HELD = tempfile.TemporaryDirectory(prefix="muster-fuzz-", dir=_FAST)  # removed when this process ends
_FOLDER = Path(_HELD.name)


def entry(*given):
    """Register a parser with its samples; the parser gets text decoded as a session decodes it."""

    def register(run):
        texts = tuple((each if isinstance(each, str) else json.dumps(each)).encode() for each in given)
        ENTRIES.append(Entry(run.__name__, texts, lambda data: run(data.decode(errors="replace"))))
        return run

    return register


@entry(samples.LOOK)
def look(text):
    """`host_commands.look`, and a plan made from its answer."""
    parsed = facts.parse(text, 1795238476.0)
    address = deploy_plan.choose_address([parsed], None)
    work = Work(names.run_id("r2"), "muster-trainer:cpu", ("train.py",))
    host = Host("a", "a")
    meeting = deploy_spec.meeting_of([host], address, deploy_plan.choose_port(parsed), [facts.Route("eth0", address)])
    if not parsed.uid:  # the login is root: a user id was chosen for the run earlier
        return
    for each in deploy_spec.node_containers([host], [parsed], Job(), work, meeting):
        host_commands.variable_lines(each.environment)
        _words(each.argv)


_OWN = facts.container_of(facts.parse_container(samples.container()))


@entry(samples.container(), samples.container("b", 1, "exited", 137))
def container(text):
    """One container, of this user or of another."""
    (parsed,) = facts.containers([facts.parse_container(text)], "/home/ops") or (_OWN,)
    which_run.choose_run(which_run.runs_of({"a": [parsed]}) or {parsed.run: {"a": parsed}}, "")
    _words([parsed.run, parsed.node, parsed.name, parsed.user])


@entry(samples.ADDRESSES)
def addresses(text):
    """`ip -j addr`."""
    parsed = facts.parse_addresses(text)
    return [each.shares_network(other) for each in parsed for other in parsed]


@entry(samples.ROUTE)
def route(text):
    """`ip -j route get`."""
    return facts.parse_route(text)


@entry(samples.LISTED)
def listed(text):
    """The engine's containers, as `muster status` and `muster runs` show them."""
    seen = engine.read_containers(fields.document(text, "containers"))
    console = samples.END_OF_CONSOLE.encode()
    parsed = {"a": host_status.parse(samples.STATUS, seen, "/home/ops", {"muster-r1": console})}
    tables.status_rows(parsed)
    _json(tables.status_values(parsed))
    tables.run_rows({"a": host_status.parse_runs(samples.RUNS, seen, "/home/ops")})


@entry(samples.LOOKED)
def looked(text):
    """One container as the engine describes it, for the logs and for the run."""
    seen = engine.read_container(fields.document(text, "a container"))
    of_runs = facts.containers([seen], "/home/ops")
    for run, nodes_of_run in which_run.runs_of({"a": of_runs}).items():
        logs.ranks_of(nodes_of_run)
        logs.host_of_rank({"a": logs.parse(of_runs, samples.RANK_LOGS)}, nodes_of_run, run, 11)


@entry(samples.SPOKEN)
def spoken(text):
    """All bytes that an engine sends: an answer, and a stream of frames."""
    for ask in (lambda wire: wire.ask("GET", "/x"), lambda wire: [*wire.open("GET", "/x").frames()]):
        with contextlib.suppress(OSError, http.client.HTTPException, Excess):
            ask(Wire(Spoken(text.encode("latin-1", "replace"))))


class Spoken:
    """A connection to an engine that sends these bytes."""

    def __init__(self, data):
        self.recv, self.close = io.BytesIO(data).read, lambda: None
        self.settimeout = self.sendall = self.shutdown = lambda _: None


@entry(samples.STATUS)
def status(text):
    """`commands.status`, as a table and as JSON."""
    seen = engine.read_containers(json.loads(samples.LISTED))
    parsed = {"a": host_status.parse(text, seen, "/home/ops")}
    tables.status_rows(parsed)
    _json(tables.status_values(parsed))


@entry(samples.RUNS)
def runs(text):
    """The answer to `runs`."""
    parsed = {"a": host_status.parse_runs(text), "b": host_status.parse_runs(samples.RUNS)}
    tables.run_rows(parsed)
    _json(tables.run_values(parsed))


@entry(samples.RANK_LOGS)
def rank_logs(text):
    """The answer to `rank-logs`."""
    of_runs = facts.containers([engine.read_container(json.loads(samples.LOOKED))], "/home/ops")
    logs.host_of_rank({"a": logs.parse(of_runs, text)}, {"a": of_runs[0]}, of_runs[0].run, 11)


@entry(samples.CONSOLE)
def console(text):
    """A node's console."""
    heard_of = logs.ConsoleCount(lambda: None)
    for line in text.split("\n"):
        _, said_words = logs.split(line)
        heard_of.is_count(said_words)


@entry(*samples.GPUS)
def gpus(text):
    """`commands.gpus`."""
    parsed = {"a": gpu_facts.parse(text.split("\n"))}
    tables.gpu_rows(parsed)
    _json([tables.gpu_value(each) for each in parsed.values()])


@entry(samples.KEPT)
def kept(text):
    """The answer to clean-list, and what would be removed from it."""
    there = leftovers.parse(text, leftovers.InUse(frozenset({"r1"})))
    wanted = leftovers.Selection(("all",), frozenset(leftovers.KINDS), 60)
    goes, stays = leftovers.chosen(there, wanted)
    assert not any(thing.used for thing in goes)
    assert not any(".." in thing.name or thing.name.startswith(("/", "-")) for thing in (*goes, *stays))


@entry(samples.STORED)
def stored(text):
    """What an engine stores, and what would be removed from it."""
    asked = Answer(200, text.encode())
    known = engine.Engine(None)
    known._ask = lambda *_: asked
    for thing in leftovers.parse(samples.KEPT, leftovers.InUse(), *known.stored(1.0)):
        assert leftovers._is_name(thing.name)


@entry(samples.NETWORKS)
def overlay_look(text):
    """The answer to look-overlay, and the network planned from it."""
    seen = dataclasses.replace(FACTS, addresses=(facts.Address("eth0", "192.0.2.1", 24),))
    made = overlay_plan.planned("0123456789abcdef", {"a": networks.parse(text)}, {"a": seen})
    assert made.mtu > 500


@entry({"key": "A" * 43 + "="}, {"met": ["A" * 43 + "="]}, {"ports": [52000]}, {"nodes": 1}, {"lacking": ["wg"]})
def overlay_answer(text):
    """What one end of a run's overlay network answers: keys and ports, which go into commands for other hosts."""
    answer = overlay.read(text.encode())
    assert all(not key.startswith("-") and key.isprintable() for key in (answer.get("key", ""), *answer.get("met", ())))


@entry(samples.NODE)
def newcomer_template(text):
    """A node's `docker inspect`, from which a host that joins gets the plan and the run's own variables."""
    template = newcomer_plan.template_of(text)
    meeting = deploy_spec.Meeting("192.0.2.1", 29500, ("eth0",))
    work = Work(names.run_id("r1"), "muster-trainer:cpu", token="7f3a", least=2)
    made = deploy_spec.newcomer(3, Host("e", "e"), FACTS, Job(), work, meeting)
    given = newcomer_plan.planned(template, "e", "192.0.2.5", 29602, 3, made)
    assert all(name in made.environment or newcomer_plan.is_of_run(name) for name in given)
    host_commands.variable_lines({name: value for name, value in given.items() if "\n" not in value})


@entry({"why": "", "members": ["a", "b"]}, {"why": "--min-nodes 2", "members": []})
def leave_answer(text):
    """What a node answers when it is asked to leave."""
    _words([members.read(text).why, *members.read(text).members])


@entry({"number": 3, "place": 0, "members": "a"})
def epoch(text):
    """The epoch that a node reports."""
    return members.knows_epoch(text)


@entry(samples.INSPECT)
def inspected(text):
    """`docker image inspect`, and a run's image made from it."""
    made = model.run_image(model.parse_base("base:1", text), "run:1")
    model.index(made, model.manifest(made, {}))
    for layer in made.layers:
        assert model.digest(b"").partition(":")[0] == "sha256"
        assert "/" not in layer
        assert ".." not in layer


@entry(samples.STORE)
def store(text):
    """`commands.look_at_images`."""
    parsed = push_plan.parse_store(text)
    push_plan.plan_push(samples.IMAGE, parsed)
    push_plan.check_space(parsed, [1])
    push_plan.codec_for(parsed)
    _words(push_plan.replaced(samples.IMAGE, parsed))


@entry(f"data /home/a/.muster/data/b\nat /home/a/.muster/folders/b\nfree 1000\nhas {'0' * 64} {'1' * 64}\n")
def folders(text):
    """The answer about the folders on a host."""
    parsed = folder_push.parse(text, ["0" * 64])
    assert parsed.at.startswith("/")
    assert parsed.data.startswith("/")
    assert set(parsed.listings) <= {"0" * 64}


@entry(samples.HELD)
def shown(text):
    """One image on a host."""
    push_plan.is_based_on(samples.BASE, push_plan.parse_image(text))


@entry(samples.JOB, samples.RECORDED_JOB)
def job(text):
    """`jobs.state`: what Slurm reports about a job, and the messages and the end made from it."""
    number, parsed, last = jobs.parse_state(text)
    parsed = parsed or jobs.Job(jobs.GONE)
    said = [job_words.waiting("7", parsed), job_words.running("7", parsed), *job_words.ended("7", parsed)]
    end = job_ends.end_of("7", parsed, State(tuple(parsed.hosts), script=True), last)
    _words([number, *said, end.message, end.hint])


@entry("job 12", "job 12;cluster")
def submitted(text):
    """`jobs.submit`: only a number becomes a job id."""
    word, number = jobs.parse_submitted(text)
    assert number.isdecimal() == (word == "job")


@entry("version slurm 24.11\nshared /scratch/u\ntaken\n", "lacks sbatch flock\nwrong no such folder\n")
def cluster_look(text):
    """`jobs.look`: its path goes into a command line."""
    seen = jobs.parse_look(text)
    assert not seen.shared or (seen.shared.startswith("/") and "\n" not in seen.shared)


@entry(samples.followed_job())
def followed_job(text):
    """`jobs.follow`, copied into a run folder."""
    taking = JobCopy(_fresh("r1"), "login", lambda words: None)
    for line in text.split("\n"):
        taking.take(line.replace("MARK", taking.mark, 1) if line.startswith("MARK") else line)
    taking.copied_sizes()
    assert {path.relative_to(_FOLDER).parts[0] for path in _FOLDER.rglob("*")} == {"r1"}


@entry(samples.mirrored())
def mirrored(text):
    """`host_commands.follow`, copied into a run folder that is then followed like a local one."""
    run_dir = _fresh("r1")
    taking = mirror.Mirror(run_dir, "a", NodeName("a"), lambda words: None)
    follower, state = Follower(run_dir, from_start=True), State(("a", "b"))
    for line in text.split("\n"):
        taking.take(line.replace("MARK", taking.mark, 1) if line.startswith("MARK") else line)
    events = follower.read()
    _followed(state, events)
    _json(events)
    here = {path.relative_to(_FOLDER).parts[0] for path in _FOLDER.rglob("*")}
    assert here == {"r1"}, here


@entry(samples.LOCK)
def lock(text):
    """Who holds a host's lock."""
    parsed = host_lock._standing(text)
    if parsed:
        host_lock._refusal("a", parsed)


@entry(samples.VERDICT, samples.VERDICT + "\n" + samples.STEP, samples.RANK_LINES)
def last_words(text):
    """`host_commands.last_words`, and how `muster stop` reports the end."""
    nodes = {"a": _OWN}
    state = stop.state_of(nodes, events.last_words(text, 1795238476.0))
    _outcome_words(stop._result(state, nodes, killed=False), state)


@entry(*samples.SSH_WORDS)
def ssh_words(text):
    """What ssh prints about a login; it may include a host's greeting."""
    route = Route(Place("gpu-a"), {"hostname": ("10.0.0.4",), "port": ("22",), "user": ("u",)}, None)
    reasons.fault_of(text, route, route.fault_place(Host("gpu-a", "gpu-a")), 1, text)
    reasons.called_at(text)


@entry(*samples.BOOTSTRAP)
def bootstrapped(text):
    """What bootstrap asks a host, and the plan made from the answer."""
    plan = bootstrap.decide(bootstrap.parse(text))
    bootstrap_run.plan_lines({"a": plan})
    for step in plan.steps:
        _words(step.argv)


@entry(samples.RANK_LINES)
def ranks(text):
    """A rank's events, one after another."""
    run_dir = _fresh("r1")
    (run_dir / "ranks").mkdir()
    (run_dir / "ranks" / "rank-0.jsonl").write_text(text, errors="replace")
    state = State(("a", "b"))
    _followed(state, Follower(run_dir, from_start=True).read())


@entry(samples.METRICS)
def metrics(text):
    """metrics.jsonl."""
    run_dir = _fresh("r1")
    (run_dir / "metrics.jsonl").write_text(text, errors="replace")
    _followed(State(("a",)), Follower(run_dir, from_start=True).read())


@entry(samples.VERDICT, samples.NODE_UP)
def documents(text):
    """nodes/<node>.json and outcome/<node>-0.json."""
    run_dir = _fresh("r1")
    for folder, name in (("nodes", "a.json"), ("outcome", "a-0.json")):
        (run_dir / folder).mkdir()
        (run_dir / folder / name).write_text(text, errors="replace")
    _followed(State(("a", "b")), Follower(run_dir, from_start=True).read())


@entry(samples.RECORD, samples.OUTCOME)
def records(text):
    """record.json and outcome.json, as `make runs`, a resume and the hints read them."""
    run_dir = _fresh("r1")
    for name in ("record.json", "outcome.json"):
        (run_dir / name).write_text(text, errors="replace")
    runs = recorded_ends.listing(_FOLDER, ())
    tables.folder_rows(runs)
    for row in runs:
        _json(row.__dict__)
    resume.with_resume_hint(outcome.Result("stopped", "x"), run_dir, True)
    record.facts(run_dir)
    record.own_fields(run_dir)
    with mock.patch.object(record.folders, "RUNS", _FOLDER):
        record.folder_of(names.run_id("r1"))


@entry(
    *(f"{name}\n{text}" for name, text in (
        ("record.json", samples.RECORD), ("outcome.json", samples.OUTCOME), ("config.json", samples.CONFIG),
        ("metrics.jsonl", samples.METRICS), ("ranks/rank-0.jsonl", samples.RANK_LINES),
        ("nodes/a.json", samples.NODE_UP), ("telemetry/a.jsonl", samples.TELEMETRY),
        ("scalars/a.jsonl", samples.SCALARS),
        ("timeline.jsonl", samples.TIMELINE), ("environment.json", '{"torch": "2.13.0", "variables": {"A": "1"}}'),
    ))
)  # fmt: skip
def report_page(text):
    """The report page of a run folder in which one file is odd."""
    name, _, text = text.partition("\n")
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
def faults(text):
    """The last words of commands and engines, which Muster reports with a cause."""
    refusals.of_words("a", "hosts", refusals.describe_end("`docker run`", 1), text)
    last_line(text)
    docker_faults.unanswered(text)


@entry("r1", "2026-11-21-0214-digits", "nodes/a.json", "outcome/a-0.json", "ranks/rank-0.jsonl")
def named(text):
    """Names and paths."""
    path = folder_copy.allowed_path(text)
    assert path is None or not {"..", "/"} & set(path.parts)
    for check in (names.run_id, names.node_name, names.container_name, names.file_name, names.container_id):
        try:
            parsed = check(text)
        except names.BadAnswer:
            continue
        assert "/" not in parsed
        assert parsed not in (".", "..")
        assert "\x00" not in parsed


@entry(*({"do": do, **answer} for place in (0, 1) for do, answer in samples.probe(place).items()),
       {"do": "connect", "results": [samples.RESULT, {"id": 1, "outcome": "dropped", "tries": 3}]},
       {"do": "rehearsal", "phase": "together", "torch": "2.13.0",
        "ranks": [{"local": 0, "step": "meet", "right": True, "signal": 9, "words": "x"}]})  # fmt: skip
def probed(text):
    """One answer from a probe, by its question."""
    value = fields.json_object(text, "said")
    do = value.pop("do", "facts")
    _json(probe_answers.read(do if isinstance(do, str) and do in probe_answers._SHAPES else "facts", value))


ENTRIES += [Entry("conversation", *conversation()), Entry("proof", *proof())]


def _fresh(name):
    """An empty run folder."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    (_FOLDER / name).mkdir(parents=True)
    return _FOLDER / name


def _followed(state, events):
    for event in events:
        state.apply(event)
    now = time.time()
    state.apply({"kind": "node", "t": now - 60, "node": "a", "state": "exited", "code": 1})
    lines.metric_line(state, 80)
    lines.progress_line(state)
    lines.headline(state, "digits", "why")
    for name in state.names:
        if view := state.ranks.view_of(name):
            lines.rank_cells(view, state)
        lines.node_word(name, state)
    outcome.judge(state, now - 100, now)
    result = outcome.judge(state, now - 100, now) or outcome.stopped(state)
    _outcome_words(result, state)
    recorded_ends.close(_fresh("r1"), result, state, 1.0)


def _outcome_words(result, state):
    outcome.all_ended(state)
    _words([result.message, result.hint])
    assert isinstance(result.code, int)
    lines.result_parts(recorded_ends.outcome_of(result, state, 1.5), {}, "report.html")


def _words(texts):
    """Check that each text can go into a file, to a terminal and into a command line."""
    for text in texts:
        assert isinstance(text, str)
        text.encode()


def _json(value):
    json.dumps(value).encode()
