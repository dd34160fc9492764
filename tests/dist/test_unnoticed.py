"""A script under an agent with all hooks prints the same and ends the same as under a plain torchrun.

    UNNOTICED=all python -m pytest tests/dist/test_unnoticed.py      # every case, half an hour

Each case of watched_cases.py runs in its own process on every rank, once started by torch's own torchrun and once
under a real agent with all its hooks. Sixty more cases were drawn (once, seed 36) from those of torch's own distributed
tests that gloo can run on CPUs. The test compares exit codes and all output, including tracebacks, warnings and the
lines that they name. It leaves out addresses, ports, process ids and times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port

HOME, CASES = Path(__file__).resolve().parents[2], Path(__file__).with_name("watched_cases.py")
LIMIT_S = 1800
# Drawn from 100 tests that need no GPU, no NCCL, no compiler and no timeout.
TORCHS = """
    Backend_enum_class DistributedDataParallelCPU_grad_is_view all_gather_coalesced_full_group
    all_gather_coalesced_group all_gather_coalesced_simple all_gather_coalesced_with_empty all_gather_group
    all_reduce_coalesced_full_group_min all_reduce_coalesced_full_group_product all_reduce_coalesced_group_sum
    all_reduce_coalesced_max all_reduce_coalesced_max_complex_unsupported all_reduce_coalesced_min
    all_reduce_coalesced_sum all_reduce_full_group_min all_reduce_full_group_sum all_reduce_group_max
    all_reduce_group_product all_reduce_max all_reduce_min all_reduce_product all_reduce_sum all_reduce_sum_async
    all_reduce_sum_complex barrier barrier_group batch_isend_irecv_gloo_tags broadcast_full_group broadcast_group
    ddp_create_graph destroy_full_group destroy_group gather_checks gather_full_group gather_group get_backend
    grads_same_across_ranks_with_no_sync irecv isend isend_autograd_profiler isend_torch_profiler
    monitored_barrier_gloo monitored_barrier_wait_all_ranks reduce_full_group_min reduce_full_group_product
    reduce_full_group_sum reduce_group_min reduce_group_product reduce_min reduce_product reduce_sum scatter
    scatter_full_group scatter_group scatter_object_list send_recv send_recv_any_source send_recv_torch_profiler
    send_recv_with_tag_torch_profiler static_graph_api_cpu
"""
OWN = ["groups", "mesh", "fails_on_the_way_back", "warned", "modes", "profiled"]
SOME = ["test_new_subgroups_by_enumeration", "test_all_reduce_group_sum", "test_destroy_group", "test_gather_group"]
CASES_OF = [(2, OWN), (3, SOME)]
if os.environ.get("UNNOTICED") == "all":
    CASES_OF = [(4, []), (3, [f"test_{name}" for name in TORCHS.split()])]


@pytest.mark.parametrize(("ranks", "cases"), CASES_OF, ids=["uses of torch", "torch's own tests"])
def test_a_script_does_not_notice_that_it_is_watched(tmp_path, ranks, cases):
    by_hand, watched = (outcomes(tmp_path / how, ranks, cases, how == "watched") for how in ("by-hand", "watched"))
    assert all(rank.keys() >= set(cases) for rank in by_hand)
    assert all(said for rank in by_hand for _, said in rank.values())
    assert not differ(by_hand, watched)


def outcomes(folder, ranks, cases, watched):
    """By rank and case, the exit code and the output. Raises RuntimeError if the ranks did not end well."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(CASES.read_text())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_"))}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "OWN": str(folder)}
    environment["CASES"] = ",".join(cases)
    if watched:
        environment |= {"PET_NPROC_PER_NODE": str(ranks), "PET_MASTER_PORT": "0", "MUSTER_RUN_DIR": str(folder / "run")}
        environment |= {"PYTHONPATH": str(HOME), "MUSTER_NODE": "here", "MUSTER_SEPARATE": "1"}
        command = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    else:
        options = [f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, "train.py"]
    with (folder / "console").open("w") as console:
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=console, stderr=console, timeout=LIMIT_S)
    if ended.returncode:
        raise RuntimeError((folder / "console").read_text()[-2000:])
    found = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    return [{case: (code, said.replace(str(folder), "")) for case, (code, said) in rank.items()} for rank in found]


def differ(by_hand, watched):
    """The cases whose outcome differs on some rank, each with the first line that differs."""
    words = []
    for case in by_hand[0]:
        for rank, (one, other) in enumerate(zip(by_hand, watched, strict=True)):
            if one[case] != other.get(case):
                pairs = zip(_lines(one[case]), _lines(other[case]), strict=False)
                first = next((pair for pair in pairs if pair[0] != pair[1]), ("", "more, or fewer lines"))
                words.append(f"{case}, rank {rank}: by hand {first[0]!r}, watched {first[1]!r}")
                break
    return words


def _lines(outcome):
    return [f"code {outcome[0]}", *outcome[1].splitlines()]
