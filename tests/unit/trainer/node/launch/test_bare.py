"""Which variables a launcher and the only rank of a run get."""

import pytest

from trainer.node.launch import bare

TORCHRUNS = {
    **{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"},
    **{"ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NNODES": "1", "NODE_RANK": "0"},
    **{"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_RUN_ID": "r", "PET_NNODES": "1", "PET_RDZV_ID": "r-1"},
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
OWN = {"PATH": "/bin", "MUSTER_NODE": "master", "OMP_NUM_THREADS": "2", "RANKING": "mine", "SLURM_PROCID": "0"}
BARE = {"MUSTER_BARE_RANK": "1"}


def test_the_only_rank_gets_no_variable_of_torchruns_and_all_others():
    assert bare.without_torchrun_variables({**TORCHRUNS, **OWN, **BARE}) == {**OWN, **BARE}


@pytest.mark.parametrize("change", [{"WORLD_SIZE": "2"}, {"MUSTER_BARE_RANK": ""}])
def test_one_of_several_ranks_or_a_requested_rank_gets_all_variables(change):
    given = {**TORCHRUNS, **OWN, **BARE, **change}
    assert bare.without_torchrun_variables(given) == given


@pytest.mark.parametrize(
    ("nodes", "asked", "rank"), [(1, BARE, None), (2, BARE, "0"), (1, {}, "0")], ids=["alone", "of two", "asked for"]
)
def test_a_shell_scripts_commands_are_ranks_only_with_several_nodes_or_on_request(nodes, asked, rank):
    given = {**TORCHRUNS, **OWN, **asked, "WORLD_SIZE": str(nodes), "MUSTER_LAUNCHER_RANKS": "1"}
    made = bare.without_torchrun_variables(given)
    assert [made.get(name) for name in ("RANK", "LOCAL_RANK")] == [rank, rank]
    assert (made["PET_NNODES"], made["MASTER_PORT"]) == (str(nodes), "29500")


def test_a_launcher_has_its_nodes_variables_and_nothing_of_torchruns_own_rank():
    given = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"}
    given |= {"PET_RDZV_ENDPOINT": "x:1", "TORCHELASTIC_USE_AGENT_STORE": "True", "HOME": "/home"}
    given |= {"LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "2", "MUSTER_LAUNCHER_RANKS": "4"}
    assert bare.without_torchrun_variables(given) == {
        **{"HOME": "/home", "TORCHELASTIC_RESTART_COUNT": "2", "RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "0"},
        **{"LOCAL_WORLD_SIZE": "1", "MUSTER_LAUNCHER_RANKS": "4"},
        **{"NNODES": "3", "NODE_RANK": "1", "NPROC_PER_NODE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"},
        **{"PET_NNODES": "3", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "4"},
        **{"PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "4711"},
    }
