"""The variables of other launchers, as scripts read them."""

import pytest

from trainer.node.launch.style import cpu_variables, style_that_sets, variables

RANK = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "6",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "2",
    "GROUP_WORLD_SIZE": "3",
    "MASTER_ADDR": "10.0.0.1",
    "MUSTER_RUN_ID": "r1",
}


@pytest.mark.parametrize(
    ("style", "given"),
    [
        (
            "slurm",
            {"PROCID": "5", "LOCALID": "1", "NTASKS": "6", "NODEID": "2", "NNODES": "3", "TASKS_PER_NODE": "2(x3)"},
        ),
        ("mpi", {"RANK": "5", "SIZE": "6", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}),
    ],
)
def test_a_rank_gets_its_place_under_the_names_of_that_launcher(style, given):
    prefix = {"slurm": "SLURM_", "mpi": "OMPI_COMM_WORLD_"}[style]
    made = variables({**RANK, "MUSTER_STYLE": style})
    assert {name: made[prefix + name] for name in given} == given


def test_all_ranks_have_one_job_number_and_no_rank_gets_such_variables_unasked():
    first = variables({**RANK, "MUSTER_STYLE": "slurm"})
    other = variables({**RANK, "MUSTER_STYLE": "slurm", "RANK": "0", "GROUP_RANK": "0"})
    assert first["SLURM_JOB_ID"] == other["SLURM_JOB_ID"]
    assert not [name for name in variables(RANK) if name.startswith(("SLURM", "OMPI", "PMI"))]


@pytest.mark.parametrize("own", ["SLURM_CONF", "SLURM_JOB_UID"])
def test_a_rank_of_a_real_job_keeps_its_id_and_hosts_and_others_get_the_meeting_point(own):
    of_job = variables({**RANK, "MUSTER_STYLE": "slurm", own: "x"})
    assert of_job["SLURM_PROCID"] == "5"
    assert not {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_SUBMIT_DIR"} & of_job.keys()
    made = variables({**RANK, "MUSTER_STYLE": "slurm"})
    assert (made["SLURM_JOB_NODELIST"], made["SLURM_RESTART_COUNT"]) == ("10.0.0.1", "0")
    assert variables({**RANK, "MUSTER_STYLE": "slurm", "GROUP_WORLD_SIZE": "1"})["SLURM_TASKS_PER_NODE"] == "2"


@pytest.mark.parametrize(
    ("variable", "style"), [("SLURM_PROCID", "slurm"), ("PMI_RANK", "mpi"), ("RANK", ""), ("SLURM_CONF", "")]
)
def test_the_style_that_sets_a_variable_is_known(variable, style):
    assert style_that_sets(variable) == style


def test_a_rank_learns_the_number_of_nodes_unless_the_user_has_set_another():
    assert variables(RANK) == {"NNODES": "3", "NODE_RANK": "2"}
    assert variables({**RANK, "NNODES": "7"})["NNODES"] == "7"


def test_accelerate_is_told_to_use_cpus_unless_the_user_or_a_gpu_decides_otherwise(tmp_path):
    assert cpu_variables({}, tmp_path) == {"ACCELERATE_USE_CPU": "true"}
    assert cpu_variables({"ACCELERATE_USE_CPU": "false"}, tmp_path) == {}
    (tmp_path / "nvidiactl").touch()
    assert cpu_variables({}, tmp_path) == {}
