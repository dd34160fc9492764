"""What is read from nvidia-smi. A program of that name prints what the real one does; it stands in for a GPU."""

import pytest

from trainer import nvidia_smi

UUID = "GPU-d61db031-0000-0000-0000-6629e27ea143"
# As nvidia-smi 580 prints them: a column that this driver does not know, and a value that this GPU does not report.
PROGRAM = f"""#!/bin/sh
case "$*" in
*ecc.errors.corrected*) echo 'Field "ecc.errors.corrected.volatile.total" is not a valid field to query.' ;;
*clocks.max.sm*) echo '{UUID}, 1980, 700.00, 700.00, 5, 16' ;;
*query-gpu*) echo '{UUID}, 1440, 58, 694.05, 0x0000000000000024, 5, 16, [N/A]' ;;
*nvlink*) printf 'GPU 0: NVIDIA H100 (UUID: {UUID})\\n\\t Link 0: 26.562 GB/s\\n\\t Link 1: <inactive>\\n' ;;
esac
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A stand-in for nvidia-smi, which prints what PROGRAM says."""
    (tmp_path / "nvidia-smi").write_text(PROGRAM)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("smi")
def test_a_column_that_the_driver_does_not_know_is_left_out():
    assert nvidia_smi.smi(nvidia_smi.NOW)[UUID]["celsius"] == "58"
    assert "corrected" not in nvidia_smi.smi(nvidia_smi.NOW)[UUID]
    assert nvidia_smi.number(nvidia_smi.smi(nvidia_smi.FIXED)[UUID], "limit_watts") == 700.0


@pytest.mark.usefixtures("smi")
def test_only_links_that_are_up_count():
    assert nvidia_smi.nvlinks() == {UUID: 1}


@pytest.mark.usefixtures("smi")
def test_looks_become_the_share_of_the_time_for_which_the_gpu_was_slowed():
    look = nvidia_smi.smi(nvidia_smi.NOW)[UUID]
    seen = nvidia_smi.watched([look, look, {**look, "reasons": "0x0000000000000000", "celsius": "71"}, look])
    assert seen["slowed"] == {"power cap": 0.5, "hardware": 0.0, "heat": 0.5, "power brake": 0.0}
    assert seen["celsius"] == 71.0
    assert seen["uncorrected"] == 0.0


def test_without_the_program_there_is_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert nvidia_smi.smi(nvidia_smi.NOW) == {}
    assert nvidia_smi.nvlinks() == {}
