"""`muster explain` reads output that launchers, schedulers and containers decorate in their own ways."""

import os
from pathlib import Path

import pytest

from deploy.commands import explain as explain_tasks
from deploy.core.budget import Budget
from deploy.core.errors import UsageError
from deploy.explain.cause import explain, judge
from deploy.explain.lines import split_line, time_of
from deploy.explain.read import CHUNK, read
from deploy.explain.signs.general import ROWS
from deploy.explain.signs.table import SIGNS
from deploy.report.console import Console
from deploy.run.files import folders
from lab import waiting

_FILE = Path(__file__).parent / "examples.txt"
EXAMPLES = [tuple(block.split("\n", 1)) for block in f"\n{_FILE.read_text()}".split("\n=== ")[1:]]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
KEY = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\nKeyError: 'image'"
FRAMES = (
    'Traceback (most recent call last):\n  File "/lib/python3.11/site-packages/odd/io.py", line 3, in read\n    go()\n'
)
TRAINING = "".join(f"epoch 1 step {step} loss 0.{step:04d}\n" for step in range(500))
# SSH, shells and launchers print these first or last in a log, where every line is read.
AT_AN_END = ("ssh-host-key-changed", "ssh-name", "ssh-silent", "command-missing", "killed", "gpus-shared")
SUMMARY = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-02_03:04:07
  host      : gpu-a
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 71)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : gpu-b
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 72)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(("cause", "text"), EXAMPLES, ids=[f"{n}-{cause}" for n, (cause, _) in enumerate(EXAMPLES)])
def test_each_example_is_explained_alone_and_in_the_middle_of_a_long_log(cause, text):
    assert explain({"a": text}).cause == cause
    if cause not in ("collective-timeout",):
        pieces = [TRAINING, TRAINING, f"{text}\n", *["waiting\n" * 300] * (1 if cause in AT_AN_END else 3)]
        assert judge([read("a", [piece.encode() for piece in pieces])]).cause == cause


def test_each_cause_of_the_table_has_an_example():
    assert {sign.cause for sign in SIGNS if sign.cause} <= {cause for cause, _ in EXAMPLES}


@pytest.mark.parametrize("prefix", [
    "[default1]:", "worker-1  | ", "0: ", " 3: ", "2026-01-02T03:04:05.123456789Z ", "[rank3]: ", "[rank3]:",
    "(RayTrainWorker pid=2285, ip=10.0.0.7) ", "\x1b[36m(RayTrainWorker pid=2285)\x1b[0m ", "[pod/train-0/main] ",
    "\x1b[33mworker-1  |\x1b[0m ", "[1,3]<stderr>:", "gpu-7: ", "2026-01-02 03:04:05,123 ", "stderr: ",
    "Jan  2 03:04:05 gpu-a python[1063]: ", "2026-01-02T03:04:05Z stderr F ", "train-abc12 main ",
    "worker-1  | 2026-01-02T03:04:05Z [rank3]: ", "12: [default0]:[rank1]: ", "[gpu-b] out: ", "[36m(pid=77)[0m ",
    "B-train/0 [default1]:[rank1]: ", "Fri Sep 25 16:52:57 2020[1]<stderr>:", "[1,mpirank:0,algo-1]<stderr>:",
    "2026-07-12 02:50:34 | ERROR | stderr | ", "192.0.2.7: [rank1]: ", "E1121 08:53:14.032092 77 api.py:869] ",
])  # fmt: skip
@pytest.mark.parametrize(("text", "cause"), [(OOM, "gpu-memory"), (KEY, "script-error")], ids=["oom", "key"])
def test_no_prefix_of_a_launcher_hides_the_error(prefix, text, cause):
    explained = explain({"a": "".join(f"{prefix}{line}\n" for line in f"starting\n{text}".splitlines())})
    assert explained.cause == cause, explained
    assert cause != "script-error" or "KeyError: 'image'" in explained.what


@pytest.mark.parametrize(("line", "who", "rank"), [
    ("worker-1  | [rank3]: x", "worker-1", "rank 3"),
    ("[default1]:x", "", "local rank 1"),
    ("trainer/0 [0]:x", "trainer/0", "local rank 0"),
    ("[pod/train-0/main] x", "train-0", ""),
    ("4: x", "", "task 4"),
    ("RuntimeError: x", "", ""),
    ("train.py: error: x", "", ""),
])  # fmt: skip
def test_the_rank_or_node_is_read_from_the_prefix(line, who, rank):
    explained = split_line(line)
    assert (explained.who, explained.rank) == (who, rank)


def test_times_of_different_programs_can_be_compared():
    lines = [
        "2026-01-02 03:04:05,5 x",
        "[E102 03:04:06.5 socket.cpp] x",
        "Jan  2 03:04:07 gpu-a x",
        "I0102 03:04:08.1 7 x",
    ]
    times = [time_of(line) for line in lines]
    assert None not in times
    assert times == sorted(times)


def test_the_rank_that_torchrun_saw_fail_first_is_believed():
    text = f"[rank0]: ValueError: the peer is gone\n[rank3]: {OOM}\n" + SUMMARY.format(rank=3, code=1)
    explained = explain({"a": text})
    assert explained.cause == "gpu-memory"
    assert explained.first == "rank 3 on gpu-b (exit code 1)"


@pytest.mark.parametrize(("code", "cause"), [(-9, "killed"), (-11, "crashed"), (-7, "shm-small")])
def test_the_exit_code_of_the_root_cause_is_read(code, cause):
    assert explain({"a": SUMMARY.format(rank=3, code=code)}).cause == cause


def test_a_root_cause_without_its_error_is_unknown_and_names_the_rank():
    explained = explain({"a": SUMMARY.format(rank=3, code=1)})
    assert explained.cause == ""
    assert "rank 3 on gpu-b" in explained.what


def test_a_warning_outweighs_neither_an_error_nor_success():
    warning = "UserWarning: CUDA initialization: CUDA driver version is insufficient for CUDA runtime version\n"
    assert explain({"a": warning + KEY}).cause == "script-error"
    explained = explain({"a": warning + TRAINING + "Training completed.\n"})
    assert (explained.cause, explained.ended_well) == ("", True)


@pytest.mark.parametrize("log", [
    "loading annotations into memory...\nDone (t=10.67s)\nindex created!\n", f"Done!\n{TRAINING}",
    f"warm-up run finished\n{TRAINING}",
], ids=["an index that is read", "a step before the training", "a run before the run"])  # fmt: skip
def test_done_before_the_training_is_no_successful_end(log):
    assert not explain({"a": log}).ended_well


def test_a_warning_is_no_cause_if_a_rank_only_lost_its_peer():
    warning = "UserWarning: Failed to load image extension: libodd.so: cannot open shared object file: No such file\n"
    lost = "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0]: Socket Timeout"
    explained = explain({"a": warning + lost})
    assert (explained.cause, "lost a peer" in explained.what) == ("", True)


@pytest.mark.parametrize("words", [
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    "rank 0. Please check rank 0 logs for faulty rank.",
    "[rank6]:[E421 04:13:43.457389636 ProcessGroupGloo.cpp:143] Rank 6 successfully reached monitoredBarrier, but "
    "received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
])  # fmt: skip
def test_a_rank_that_waited_in_vain_at_a_barrier_gives_no_cause(words):
    explained = explain({"a": words})
    assert (explained.cause, "lost a peer" in explained.what) == ("", True)
    assert explain({"a": f"{words}\n{OOM}\n"}).cause == "gpu-memory"


def test_a_failed_spark_stage_gives_no_cause():
    words = "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage."
    explained = explain({"a": f"org.apache.spark.SparkException: {words}\n"})
    assert (explained.cause, words in explained.evidence[0].text) == ("", True)


def test_a_process_that_failed_elsewhere_is_reported_as_such():
    lines = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."
    explained = explain({"a": lines})
    assert (explained.cause, explained.ended_well) == ("", False)
    assert "its own error is not in this output" in explained.what
    assert explained.evidence


def test_an_error_that_training_survived_is_not_why_a_run_ended():
    explained = explain({"a": f"{OOM}\nretrying with a smaller batch\n{TRAINING}{KEY}\n"})
    assert explained.cause == "script-error"
    assert explain({"a": f"{OOM}\n{TRAINING}run finished successfully\n"}).ended_well


@pytest.mark.parametrize(("early", "late"), [
    ("2026-01-02 03:04:05 ", "2026-01-02 03:09:05 "),
    ("2026-12-31 23:59:58 ", "2027-01-01 00:00:07 "),
], ids=["of a day", "over New Year"])  # fmt: skip
def test_the_earliest_of_several_files_counts_not_the_first_by_name(early, late):
    explained = explain({"a": f"{late}x\nKeyError: 'b'\n", "z": f"{early}x\n{OOM}\n"})
    assert explained.cause == "gpu-memory"
    assert explained.evidence[0].node == "z"


@pytest.mark.parametrize(("last", "now"), [
    ("2026-01-02 03:04:05", "2026-01-02 03:14:05"),
    ("2026-12-31 23:59:58", "2027-01-01 00:10:00"),
], ids=["of a day", "over New Year"])  # fmt: skip
def test_the_silent_one_of_several_outputs_is_named(last, now):
    words = "[rank0]:[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: OpType=ALLREDUCE"
    waits = f"{now} {words}\n"
    explained = explain({"a": waits, "b": waits, "c": f"{last} step 7 loss 0.3\n"})
    assert explained.silent == ("c",)
    assert "c stopped printing" in explained.what


def test_an_empty_output_is_reported_as_empty():
    assert "empty" in explain({"a": ""}).what


def test_every_next_step_is_a_command():
    first = {
        "muster",
        "torchrun",
        "python",
        "nvidia-smi",
        "ssh",
        "df",
        "free",
        "dmesg",
        "sudo",
        "env",
        "ip",
        "which",
        "curl",
    }
    first |= {"getent", "sysctl", "timedatectl", "ulimit", "ss", "echo", "systemctl", "docker", "ls", "uname", "lscpu"}
    first |= {
        "sacct",
        "scontrol",
        "last",
        "quota",
        "pip",
        "nc",
        "grep",
        "ibstat",
        "ibv_devinfo",
        "ssh-keygen",
        "hf",
        "findmnt",
        "enroot",
        "nvcc",
        "apt-get",
        "mpirun",
        "fuser",
        "source",
    }
    for sign in SIGNS:
        words = [word for word in sign.next.split() if "=" not in word]
        assert words[0].rstrip(";") in first, sign.next


def test_victims_are_counted_not_shown():
    lost = "[rank1]: RuntimeError: Connection reset by peer\n"
    explained = explain({"a": lost * 3 + OOM, "b": lost})
    assert (explained.cause, explained.victims) == ("gpu-memory", 4)


def test_an_unknown_error_is_quoted():
    explained = explain(
        {"a": '  File "/venv/site-packages/odd/io.py", line 3, in read\nodd.errors.OddError: strange things\n'}
    )
    assert (explained.cause, explained.maybe, explained.json()["group"]) == ("", ("exception",), "not-known")
    assert "odd.errors.OddError: strange things" in explained.what


def test_a_line_of_any_length_and_bytes_of_any_kind_are_read_in_short_time():
    hostile = [
        *(b"Connect to " * 60_000, b"failed to connect remote=[" * 20_000, b"\x00\xff\x1b[" * 100_000),
        *(b"a" * (3 * CHUNK), b"Error: " + b"(" * 50_000, b"x | " * 50_000, b"[rank0]: " * 50_000),
        *(b"\r".join([b"Error"] * 50_000), b"NCCL error unhandled " + b"10.1.1.1<" * 50_000),
    ]
    with waiting.spending_little():
        for line in hostile:
            read("a", [line, b"\n", line, b"\n"])


def test_line_numbers_are_right_for_pieces_of_any_size():
    text = (TRAINING * 20 + OOM + "\nend\n").encode()
    for size in (7, 4096, 1 << 20):
        explained = judge([read("a", [text[at : at + size] for at in range(0, len(text), size)])])
        assert [line.number for line in explained.evidence] == [10_001]


def read_of(whats, console):
    return explain_tasks.readings_of(explain_tasks.places_of(whats)[0], console, Budget())


def test_files_folders_and_runs_are_read_and_a_missing_one_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run/attempt_0/1").mkdir(parents=True)
    (tmp_path / "run/attempt_0/1/stderr.log").write_text(OOM)
    (tmp_path / "b.out").write_text("Too many open files, an error")
    report = Console()
    assert [reading.node for reading in read_of([str(tmp_path / "run")], report)] == ["stderr.log"]
    two = read_of([str(tmp_path / "b.out"), str(tmp_path / "run")], report)
    assert [reading.node for reading in two] == ["b.out", "stderr.log"]
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    assert len(read_of(["run"], report)) == 1
    for what in ("nothing", str(tmp_path / "none.log"), str(tmp_path / "run/attempt_0/2")):
        with pytest.raises(UsageError, match="no such file"):
            read_of([what], report)


def test_a_folder_with_a_link_or_a_pipe_is_read_without_them(tmp_path):
    (tmp_path / "a.log").write_text(OOM)
    (tmp_path / "b.log").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "c.log")
    assert [reading.node for reading in read_of([str(tmp_path)], Console())] == ["a.log"]


def test_control_characters_of_a_log_do_not_reach_the_terminal():
    explained = explain({"a": "RuntimeError: CUDA out of memory \x1b]0;title\x07 \x9b2J \u202e\n"})
    shown = "\n".join(explain_tasks.lines_of(explained))
    assert not any(sign in shown for sign in ("\x1b", "\x07", "\x9b", "\u202e"))


def test_a_name_from_a_log_never_enters_a_command():
    explained = explain(
        {"a": "The IPv4 network addresses of ($(reboot), 29500) cannot be retrieved (gai error: -2 - x)\n"}
    )
    assert explained.cause
    assert "reboot" not in explained.next


def test_lines_that_differ_only_in_numbers_are_examined_only_a_few_times():
    lines = b"".join(b"WARNING: error in sample %d at 0x%x\n" % (number, number * 7919) for number in range(40_000))
    with waiting.spending_little():
        explained = judge([read("a", [lines, OOM.encode()])])
    assert explained.cause == "gpu-memory"


def test_the_next_command_names_the_script_of_the_run_or_is_left_out():
    explained = explain({"a": "Traceback (most recent call last):\nValueError: no\n"})
    assert "SCRIPT" in explained.next
    assert not any("SCRIPT" in line for line in explain_tasks.lines_of(explained))
    assert "next      torchrun --nproc-per-node 1 train.py --lr 3" in explain_tasks.lines_of(
        explained, "train.py --lr 3"
    )
    # With torchrun's variables, the script could take another path than the one that failed.
    assert "next      python train.py --lr 3" in explain_tasks.lines_of(explained, "python train.py --lr 3")


@pytest.mark.parametrize(
    "prefix", ["gpu-a: ", "[gpu-a:3] ", "ns/train-0[main]: ", "[stderr][rank3] ", "1/8: ", "{log} "]
)
@pytest.mark.parametrize(("text", "cause"), [
    (KEY, "script-error"),
    ("Exception ignored in: <function x>\nTraceback (most recent call last):\nAttributeError: x\nKeyError: 'image'",
     "script-error"),
], ids=["key", "by the way"])  # fmt: skip
def test_an_unknown_prefix_is_learnt_from_a_traceback(prefix, text, cause):
    lines = "".join(f"{prefix}{line}\n" for line in f"step 1\n{text}".splitlines())
    pieces = [TRAINING, TRAINING, lines, *["waiting\n" * 300] * 3]
    explained = judge([read("a", [piece.encode() for piece in pieces])])
    assert explained.cause == cause
    assert "image" in explained.what
    assert explained.first == ("rank 3" if "rank3" in prefix else "")


@pytest.mark.parametrize("words", ["NCCL error in: net.cc:1, invalid argument, NCCL version 2.4.8", "ncclInvalidUsage"])
def test_an_invalid_nccl_call_alone_does_not_prove_shared_gpus(words):
    seen = explain({"a": words})
    assert (seen.cause, seen.maybe[0]) == ("", "gpus-shared")


def test_a_wrappers_exception_is_no_cause():
    assert (
        explain({"a": "UnexpectedStatusException: Error for job: AlgorithmError: ExecuteUserScriptError:"}).cause == ""
    )


@pytest.mark.parametrize("words", ["RuntimeError: CUDA error: unknown words", "RuntimeError: HIP error: unknown words"])
def test_an_unknown_gpu_error_gives_no_cause(words):
    assert explain({"a": words}).cause == ""


def test_rays_guesses_are_reported_as_guesses():
    seen = explain(
        {"a": "The actor is dead because its worker process has died. There are some potential root causes."}
    )
    assert "guesses" in seen.what
    assert {"host-memory", "crashed"} <= set(seen.maybe)
    assert explain({"a": f"its worker process has died\n{KEY}\n"}).cause == "script-error"


@pytest.mark.parametrize(
    "lines",
    [
        "torch.Tensor: x",
        f"{FRAMES}done\ntorch.Tensor: x",
        '[rank0]:   File "/lib/odd.py", line 3\n[rank1]: torch.Tensor: x',
    ],
)
def test_a_class_name_that_ends_no_traceback_is_no_exception(lines):
    assert explain({"a": lines}).maybe == ()


def test_an_exception_of_any_name_ends_the_traceback_of_its_rank():
    lines = [f"[rank3]: {line}" for line in f"{FRAMES}odd.Strange: no words".splitlines()]
    lines.insert(-1, "[rank2]: loading")
    seen = explain({"a": "\n".join(lines)})
    assert (seen.maybe, seen.first) == (("exception",), "rank 3")


@pytest.mark.parametrize("words", [f"{FRAMES}got mixed things, need to convert all", "process exited with code 3"])
def test_a_failure_is_not_reported_as_silence(words):
    seen = explain({"a": words})
    assert (seen.cause, "wait for each other" in seen.what) == ("", False)
    assert seen.evidence[0].text == words.splitlines()[-1]
    assert "wait for each other" in explain({"a": "starting\nrank 0 is ready\n"}).what


@pytest.mark.parametrize(("rank", "then"), [
    (0, "torchrun --nproc-per-node 1 train.py"), (1, "torchrun --nproc-per-node 2 train.py"),
    (7, "torchrun --nproc-per-node 8 train.py"), (12, ""),
])  # fmt: skip
def test_the_next_command_starts_the_failed_rank_or_shows_its_lines(rank, then):
    seen = explain({"a": "\n".join(f"[rank{rank}]: {line}" for line in KEY.splitlines())})
    assert explain_tasks.next_of(seen, "train.py", {}) == then
    if rank == 12:
        assert explain_tasks.next_of(seen, "train.py", {"a": "/logs/a"}) == "sed -n '1,19p' /logs/a"


def test_the_next_command_starts_as_many_ranks_as_the_local_rank_needs():
    seen = explain({"a": f"{KEY}\n{SUMMARY.format(rank=13, code=1)}"})
    assert explain_tasks.next_of(seen, "train.py", {}) == "torchrun --nproc-per-node 2 train.py"


@pytest.mark.parametrize("carets", ["           ^^^^^^\n", ""])
@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_an_assertion_without_a_message_is_quoted_from_its_source(carets, prefix):
    frame = '  File "t.py", line 2, in check\n    assert a == b\n'
    text = f"Traceback (most recent call last):\n{frame}{carets}AssertionError\n"
    found = explain({"a": "".join(prefix + line for line in text.splitlines(keepends=True))})
    assert found.what == "the script failed: AssertionError: assert a == b"
    cut = "Traceback (most recent call last):\n...\nAssertionError\n"
    assert explain({"a": cut}).what == "the script failed: AssertionError:", "what somebody cut out is no source"


@pytest.mark.parametrize(("line", "cause", "program"), [
    ("Warning  FailedScheduling  2s  default-scheduler  0/6 nodes are available: 6 Insufficient nvidia.com/gpu.",
     "scheduler", "kubectl"),
    ("Warning  FailedScheduling  2s  default-scheduler  0/6 nodes are available: 6 not in pool BIG-CHIP.",
     "scheduler", "kubectl"),
    ("ImportError: libHIP.so.6: cannot open shared object file: No such file or directory", "library-missing",
     "apt-get"),
    ("    Reason:       OOMKilled", "host-memory", "kubectl"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "scheduler",
     "scontrol"),
    ("RuntimeError: MPS backend out of memory (MPS allocated: 9.48 GiB)", "gpu-memory", "ps"),
    ("wandb.errors.CommError: Permission denied, ask the project owner to grant you access", "access-denied", "wandb"),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error: Unauthorized", "access-denied", "hf"),
    ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "gpu-runtime", "podman"),
    ("torch.AcceleratorError: HIP error: unspecified launch failure", "illegal-memory", "AMD_SERIALIZE_KERNEL=3"),
])  # fmt: skip
def test_the_next_command_belongs_to_the_system_that_reported_the_error(line, cause, program):
    explained = explain({"a": f"{line}\n"})
    assert (explained.cause, explained.next.split()[0]) == (cause, program)


@pytest.mark.parametrize(("line", "cause"), [
    ("wandb.errors.CommError: Permission denied, ask the project owner to grant you access", "file-permission"),
    ("OSError: [Errno 122] Disk quota exceeded", "scheduler"),
    ("RuntimeError: tcp/pair.cc:724] connect [127.0.1.1]:3210: Connection refused", "data-ports-rejected"),
])  # fmt: skip
def test_similar_words_of_another_system_do_not_match_a_cause(line, cause):
    shown = [sign.cause for sign in (*SIGNS, *ROWS) if sign.pattern.search(line)]
    assert shown
    assert cause not in shown


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (
            "FATAL:   container creation failed: mount ->/scratch error: can't remount",
            "apptainer --debug exec IMAGE true",
        ),
        ("FATAL:   could not open image /s/x.sif: failed to retrieve path", "apptainer --debug exec IMAGE true"),
        ("FATAL:   While making image from oci registry: manifest unknown", "apptainer --debug exec IMAGE true"),
        (
            "pyxis:     [ERROR] URL https://r.io/v2/x/manifests/3 returned error code: 404",
            "enroot import docker://IMAGE",
        ),
        (
            "pyxis:     [ERROR] URL https://r.io/v2/x/manifests/3 returned error code: 401",
            "enroot import docker://IMAGE",
        ),
        ("Error: OCI runtime error: crun: cannot set up namespace", "podman info"),
        ("docker: Error response from daemon: OCI runtime create failed: runc create failed", "docker info"),
        ("docker: Error response from daemon: manifest for x:1 not found", "muster push --hosts ..."),
    ],
)
def test_the_next_command_asks_the_engine_that_reported_the_error(line, asks):
    assert explain({"a": line}).next == asks


def test_a_file_that_is_no_text_among_others_is_left_out_by_name(tmp_path, capsys):
    (tmp_path / "slurm-1.out").write_text(OOM)
    (tmp_path / "slurm-2.out").write_bytes(OOM.encode("utf-16"))
    assert explain_tasks.tell([str(tmp_path)], Console()) == 0
    seen = capsys.readouterr()
    assert "gpu-memory" in seen.out
    assert "left out: " in seen.err
    assert "slurm-2.out: cannot be read" in seen.err


def test_a_run_takes_precedence_over_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    for place in ("r1", "runs/r1/logs"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "runs/r1/record.json").write_text("{}")
    (tmp_path / "runs/r1/logs/rank-0.log").write_text(OOM)
    assert explain_tasks.tell(["r1"], Console()) == 0
    assert "gpu-memory" in capsys.readouterr().out
