"""The events that a run writes into ranks/rank-<r>.jsonl, one row each.

docs/reference/run-folder.md is made from this table (python -m tests.reference); tests/unit/test_contract.py compares
it with the events that the code writes. Whoever adds an event adds its row.
"""

from __future__ import annotations

from collections.abc import Mapping

# For each kind: who writes it (empty: a rank), and its fields in addition to `t`, `kind`, `rank` and `node`.
EVENTS: Mapping[str, tuple[str, str]] = {
    "started": (
        "",
        (
            "`attempt` (0, 1, ...), `pid`, `host`, `world`, `device`, `backend`; of a script that was started "
            "before `step`: the last one reported earlier"
        ),
    ),
    "plan": (
        "rank 0",
        "`recipe`, `steps`, `start_step`, `batch` (global), `samples`, `precision`, `mesh`",
    ),
    "resumed": (
        "rank 0",
        "`step`, `path`, `changes`: sentences",
    ),
    "step": (
        "",
        "`step`, `steps`, `count` (steps covered), mean milliseconds: `data_ms`, `compute_ms`, `wait_ms`, `step_ms`",
    ),
    "continues": (
        "watcher",
        (
            "this start begins after `step`; `before`: the last step reported. `known`: by the optimizer's state or "
            "the checkpoint, so reported steps after it are repeated, and readers leave those out. "
            "`anew`: it loaded nothing of the run's, and its optimizer had no state. `empty`: it loaded something, "
            "and its optimizer had none. `another`: the script's next program, in the same start"
        ),
    ),
    "unseen": (
        "watcher",
        "`what` (`loss`, `steps`, `data`, `skipped`, `all`), `message`: why",
    ),
    "checkpoint": (
        "rank 0; at a break a rank that was left",
        "`step`, `pause_ms`, `write_ms`, `bytes`, `path`",
    ),
    "copied": (
        "a rank on another disk",
        "`step`, `write_ms`, `bytes`: the same checkpoint on its own disk",
    ),
    "checkpoint_failed": (
        "",
        "`step`, `message`; the earlier one stays",
    ),
    "checkpoint_damaged": (
        "rank 0",
        "`path`, `message`: skipped at resume",
    ),
    "evaluated": (
        "rank 0",
        '`step`, `samples`, `values`: `{"loss": 0.06, "accuracy": 0.989}`',
    ),
    "stopping": (
        "",
        "`step`, `message`: why",
    ),
    "began": (
        "agent",
        "`attempt`, `world`, `pid`: torchrun has started this rank",
    ),
    "ended": (
        "agent",
        (
            "the same, `code` (below 0: a signal), `how` in words, `error` (a line), `victim`: it reports a lost "
            "peer; `cause`: what no error says (`killed`, `container-out-of-memory`, `host-out-of-memory`, "
            "`stopped`, `locked-up`, `ended-from-outside`); `place`: the script's line; `collectives` as in `stuck`"
        ),
    ),
    "stuck": (
        "agent",
        (
            "[below](#a-rank-that-is-stuck): `doing`, `file`, `line`, `function` (the script's own), `step`, "
            "`since_s`, `op`, `error`, `thread_error`, `collectives`"
        ),
    ),
    "moves": (
        "agent",
        "a `stuck` rank moves again",
    ),
    "asked": (
        "agent",
        "the node was asked to stop: its ranks are killed `grace_s` later",
    ),
    "throttled": (
        "agent",
        "a limit of `cpus` processors holds this rank back in `percent` of the kernel's last periods; 0: no longer",
    ),
    "links": (
        "agent",
        (
            "`unanswered`: connections whose other end acknowledges nothing for seconds, as two addresses; "
            "`crowded`: those with always much to send; meanwhile, `silent` and `answering` machines. Both empty: "
            "well again"
        ),
    ),
    "alone": (
        "agent",
        (
            "this rank trains and no group joins it: `why`, `hint`, `world`. `waits`: it waits where no other node "
            "comes. Empty `why`: a group joins it by now"
        ),
    ),
    "weights": (
        "at a checkpoint of the trainer",
        "`step`, `digest`: replicas have the same",
    ),
    "waits": (
        "first agent",
        "`why`: what the nodes wait for on their hosts, `since`",
    ),
    "conflicts": (
        "agent, at the start",
        ("sent files that are not used, because the script changed its own of that name: `paths` (5 at most), `count`"),
    ),
    "own_library": (
        "agent, at the start",
        "the script imports a module `muster` of its own: `path`",
    ),
    "shared": (
        "torchrun's process",
        "this node gets `files`, `bytes`, from the node `source`",
    ),
    "role": (
        "agent",
        (
            "this node of the `role` comes to a `phase` (`waits`, `runs`, `ready`, `ended`), and `why`; `again`: "
            "its program was started again"
        ),
    ),
    "apart": (
        "agent",
        "`left_out`: a node that counts as lost and lives; `others`: who does not reach it",
    ),
    "members": (
        "first agent of a later epoch",
        "`epoch`, `members`, those `before`, `planned`: how many nodes in all; `left`: who went by `muster leave`",
    ),
    "kept": (
        "agent, at the end",
        (
            "`files`, `bytes` that the script wrote into what stays; `top`: the one folder, empty if several; "
            "`downloads`: bytes that can be had again, `place`: their folder"
        ),
    ),
    "put_aside": (
        "agent",
        "a start begins anew; `files`, `bytes` of earlier starts are kept in `place` (`earlier/N`; empty: nowhere); "
        "`message`: why",
    ),
    "outside": (
        "agent, at the end",
        "`paths` of the largest `files` written where nothing is kept or shared, and `bytes`",
    ),
    "on_end": (
        "witness",
        "the command has run: `end`, `seconds`, `error` (empty: well)",
    ),
    "outcome": (
        "",
        "the verdict; `rank`, `node`: the reporter; `culprit`, `culprit_node`: whom it names",
    ),
}
