"""The last hint of a failed run, such as how to bring a file that a rank missed, or why only another host has it."""

import io
import json
import subprocess
import time

import pytest
from rich.console import Console as RichConsole

from deploy.causes.end_causes import Cause
from deploy.report import ending
from deploy.report.console import THEME, Console
from deploy.run.files import own_files, record
from deploy.run.outcome import Result
from deploy.run.progress import State
from deploy.send.folder.credentials import NO_CHOICE

RUN, RESUME = "r-1", "continue with the files that it wrote: muster deploy --resume r-1"
CHECKPOINT = "work/logs/train/epoch_005.ckpt"
MISSES = f"train.py ended with 1: FileNotFoundError: Checkpoint file not found: b:~/.muster/runs/{RUN}/{CHECKPOINT}"
HERE = frozenset[str]()


@pytest.fixture
def folder(tmp_path):
    """A project that was trained on this machine before; its ignored folders logs/ and data/ are not sent."""
    for path in ("train.py", "data/train.txt", "logs/train/epoch_004.ckpt"):
        (tmp_path / "project" / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "project" / path).write_text("x")
    (tmp_path / "project/.gitignore").write_text("data/\nlogs/\n")
    return tmp_path / "project"


def hint(folder, message, names=("a", "b"), there=None, fetch="muster fetch", cause=Cause.EXCEPTION, ranks=0):
    """The hint in the outcome of a run whose rank on the last node failed."""
    run_dir = folder.parent / RUN
    run_dir.mkdir(exist_ok=True)
    state = State(names, script=True)
    for rank in range(ranks):
        state.apply({"kind": "began", "node": names[0], "rank": rank, "t": 1.0})
    result = Result("failed", message, RESUME, names[-1], 1, cause=cause)
    err = RichConsole(file=io.StringIO(), theme=THEME)
    ending.write(run_dir, result, state, Console(False, err, err), fetch, (folder, NO_CHOICE), there)
    return record.read_json(run_dir / "outcome.json")["hint"]


def test_the_hint_says_that_only_the_host_of_rank_0_has_the_file_and_what_helps(folder):
    text = hint(folder, MISSES, there={"a": frozenset({CHECKPOINT}), "b": HERE})
    assert text.startswith("a has logs/train/epoch_005.ckpt, and b does not: hosts share no folder during a run")
    assert "--mount" in text
    assert "only rank 0 read it" in text
    assert text.endswith(RESUME)  # the next start copies the file to every host


@pytest.mark.parametrize(
    ("names", "there"),
    [
        (("a", "b"), {"a": HERE, "b": HERE}),
        (("a", "b"), {"a": frozenset({CHECKPOINT}), "b": frozenset({CHECKPOINT})}),
        (("a",), {}),
    ],
    ids=["nobody has it", "both have it", "one host"],
)
def test_a_file_that_no_other_host_has_is_not_reported_as_elsewhere(folder, names, there):
    assert "share no folder" not in hint(folder, MISSES, names, there)


def test_for_a_file_that_was_not_sent_the_hint_includes_its_folder(folder):
    assert "--include data" in hint(folder, "FileNotFoundError: 'data/train.txt'", there={"a": HERE, "b": HERE})


def test_a_file_of_rank_0_is_elsewhere_even_if_one_of_its_name_was_not_sent(folder):
    there = {"a": frozenset({"work/data/train.txt"}), "b": HERE}
    assert hint(folder, "FileNotFoundError: 'data/train.txt'", there=there).startswith("a has data/train.txt")


def test_on_this_machine_the_runs_own_folder_shows_what_is_missing(folder):
    words = "OSError: data/train.txt is not a local folder"
    assert "--include data" in hint(folder, words, ("master",), fetch="")


def test_on_this_machine_a_file_that_the_run_has_is_not_missing(folder):
    (folder.parent / RUN / "work/data").mkdir(parents=True)
    (folder.parent / RUN / "work/data/train.txt").write_text("x")
    assert hint(folder, "OSError: data/train.txt is no model", ("master",), fetch="") == RESUME


def test_a_full_disk_blames_no_host_for_a_file_that_it_names(folder):
    words = "OSError: [Errno 28] No space left on device: 'logs/train/epoch_005.ckpt'"
    there = {"a": frozenset({CHECKPOINT}), "b": HERE}
    assert hint(folder, words, there=there, cause=Cause.DISK_FULL) == RESUME


def test_a_file_of_the_home_is_shown_as_the_script_has_it():
    words = "FileNotFoundError: '/muster/run/home/.cache/w.pt'"
    there = {"a": frozenset({"home/.cache/w.pt"}), "b": HERE}
    assert ending.known_elsewhere(words, RUN, "b", there).startswith("a has ~/.cache/w.pt, and b does not")


def test_if_nobody_knows_who_failed_a_host_that_lacks_the_file_is_named():
    assert ending.known_elsewhere(MISSES, RUN, "", {"a": frozenset({CHECKPOINT}), "b": HERE}).startswith("a has")


def test_an_end_that_cannot_be_stored_on_a_full_disk_is_still_shown(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(own_files, "write", full)
    out = RichConsole(file=io.StringIO(), theme=THEME)
    result, state, console = Result("failed", "b is lost", "", "b", 1), State(("a", "b")), Console(False, out, out)
    outcome = ending.write(tmp_path, result, state, console)
    assert ending.show(tmp_path, outcome, console) == result.code
    shown = out.file.getvalue()
    assert "b is lost" in shown
    assert "report.html: cannot be written: No space left on device; then: muster report" in shown


@pytest.mark.parametrize(("clock", "lasted"), [(0, 7200), (9 * 3600, 36000)], ids=["equal clocks", "clock ahead"])
def test_a_run_that_ended_long_before_anybody_looked_lasted_until_its_verdict(tmp_path, clock, lasted):
    began, quiet = time.time() - 36000, RichConsole(file=io.StringIO(), theme=THEME)
    record.write_json(tmp_path / "record.json", {"starts": [{"t": began}]})
    state = State(("a",), script=True)
    verdict = {"verdict": "done", "node": "a", "rank": 0, "t": began + 7200 + clock}
    state.apply({"kind": "verdict", **verdict}, time.time())
    outcome = ending.write(tmp_path, Result("done"), state, Console(False, quiet, quiet))
    assert outcome["seconds"] == pytest.approx(lasted, abs=5)


def test_an_end_that_is_shown_again_names_the_rank_too(tmp_path):
    shown = io.StringIO()
    outcome = {"verdict": "failed", "message": "train.py ended with code 1", "node": "rack-3", "rank": 2, "step": 51}
    console = Console(out=RichConsole(file=shown, theme=THEME), err=RichConsole(file=shown, theme=THEME))
    record.write_json(tmp_path / "outcome.json", outcome)
    assert ending.show_again(tmp_path, console, "") == 1
    assert "rack-3 (rank 2): train.py ended with code 1" in shown.getvalue()


@pytest.mark.parametrize(
    "odd",
    [
        *({"step": odd, "seconds": odd, "samples": odd} for odd in (float("nan"), float("inf"), [1], "x")),
        *({"kept": odd, "downloads": odd, "values": odd} for odd in (True, "x", {"a": 1}, {"a": {}})),
        {"samples_per_s": "x", "values": {"accuracy": float("nan"), "loss": "x"}, "rank": [], "message": {}},
    ],
)
def test_malformed_fields_of_an_outcome_that_a_script_wrote_are_left_out(tmp_path, odd):
    shown = io.StringIO()
    record.write_json(tmp_path / "outcome.json", {"verdict": "done", **odd})
    console = Console(out=RichConsole(file=shown, theme=THEME), err=RichConsole(file=shown, theme=THEME))
    assert ending.show_again(tmp_path, console, "") == 0
    assert shown.getvalue().startswith("done ")


def test_an_end_with_a_verdict_of_a_newer_version_counts_as_failed(tmp_path):
    shown = io.StringIO()
    record.write_json(tmp_path / "outcome.json", {"verdict": "told", "message": "the end"})
    console = Console(out=RichConsole(file=shown, theme=THEME), err=RichConsole(file=shown, theme=THEME))
    assert ending.show_again(tmp_path, console, "") == 1
    assert "error: the end" in shown.getvalue()


LACKS = "ended with code 1: ImportError: {}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libxcb.so.1", "libgl1 libglib2.0-0"),
        ("libGL.so.1", "libgl1 libglib2.0-0"),
        ("libgthread-2.0.so.0", "libgl1 libglib2.0-0"),
        ("libX11.so.6", "libx11-6"),
        ("libsndfile.so.1", "libsndfile1"),
        ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ],
)
def test_a_library_missing_in_the_image_is_installed_by_the_dockerfile_in_the_hint(folder, library, package):
    text = hint(folder, LACKS.format(library))
    write, _, option = text[text.index("printf ") :].partition("; then: ")
    subprocess.run(["bash", "-c", write], cwd=folder, check=True, timeout=60)
    first, user, last = (folder / option.removeprefix("--dockerfile ")).read_text().splitlines()
    assert first.startswith("FROM pytorch/pytorch:")
    assert user == "USER root"
    assert last == f"RUN apt-get update && apt-get install -y {package}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--image team/base:1", "printf 'FROM team/base:1\\n"),
        ("--dockerfile docker/Dockerfile", "in docker/Dockerfile: RUN"),
    ],
)
def test_a_missing_library_is_added_to_the_image_that_the_user_named(folder, options, words):
    (folder.parent / RUN).mkdir()
    record.write_record(folder.parent / RUN, {"id": RUN, "backend": "hosts", "again": options})
    assert words in hint(folder, LACKS.format("libxcb.so.1"))


def test_a_library_missing_on_this_machine_is_installed_on_it(folder):
    (folder.parent / RUN).mkdir()
    record.write_record(folder.parent / RUN, {"id": RUN, "backend": "processes"})
    text = hint(folder, LACKS.format("libxcb.so.1"), fetch="")
    assert text.endswith("sudo apt-get update && sudo apt-get install -y libgl1 libglib2.0-0")
    assert "docker" not in text.lower()


def test_a_missing_cuda_library_gets_no_apt_get_hint(folder):
    assert "apt-get" not in hint(folder, LACKS.format("libcudart.so.11.0"))


def test_a_script_for_another_python_is_told_which_one_it_had(folder):
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\nrequires-python = ">=3.13"\n')
    (folder.parent / RUN).mkdir()
    (folder.parent / RUN / "environment.json").write_text(json.dumps({"python": "3.11.7"}))
    text = hint(folder, "train.py ended with code 1: SyntaxError: invalid syntax")
    assert ">=3.13" in text
    assert "3.11.7" in text
    assert "--image NAME" in text
    assert "3.11.7" not in hint(folder, "train.py ended with code 1: ValueError: x")


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: Error downloading train-images.gz:\nTried https://ossci-datasets.s3.amazonaws.com/mnist/, got:\n"
        "<urlopen error [Errno -2] Name or service not known>",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    ],
)
def test_a_download_that_a_host_cannot_reach_is_reported_and_local_data_is_named(folder, words):
    text = hint(folder, f"train.py ended with 1: {words}")
    assert text.startswith("its host cannot reach that address")
    assert "--include data --include logs" in text
    assert text.endswith(RESUME)


def test_if_there_is_no_local_data_the_hint_is_to_download_it_here_once(folder):
    (folder / ".gitignore").unlink()
    text = hint(folder, "train.py ended with 1: urllib.error.URLError: <urlopen error [Errno -3] Temporary failure>")
    assert "download the files here once" in text


def test_for_a_port_in_use_the_hint_is_to_take_master_port(folder):
    busy = "failed to listen on any local network address. port: 58472, useIpv6: false, code: -98, name: EADDRINUSE"
    text = hint(folder, f"main.py ended with code 1: torch.distributed.DistNetworkError: The server socket has {busy}")
    assert text.startswith("if the script sets that port itself, let it use MASTER_PORT")
    assert text.endswith(RESUME)


@pytest.mark.parametrize(("ranks", "bare", "told"), [(1, False, True), (2, False, False), (1, True, False)])
def test_a_script_that_wants_a_gpu_per_rank_is_to_be_started_as_plain_python(folder, ranks, bare, told):
    (folder.parent / RUN).mkdir()
    record.write_record(folder.parent / RUN, {"id": RUN, "nodes": ["a"], "bare": bare})
    words = "train.py ended with code 1: AssertionError: insufficient CUDA devices for DDP command"
    assert ("`python` before its name" in hint(folder, words, names=("a",), fetch="", ranks=ranks)) == told


@pytest.mark.parametrize(
    ("error", "line", "says"),
    [
        (
            "AssertionError",
            'assert timm.__version__ == "0.3.2"  # version',
            "this assertion failed: assert timm.__version__ ==",
        ),
        ("AssertionError: batch", "assert size > 0, 'batch'", RESUME),
        (
            "BrokenPipeError: [Errno 32] Broken pipe",
            'File "/x/multiprocessing/connection.py", line 384',
            "a process that",
        ),
        (
            "EOFError",
            'File "/x/multiprocessing/connection.py", line 384, in _recv',
            "a process that the script started",
        ),
        ("EOFError", 'File "train.py", line 3, in read', RESUME),
        (
            "ValueError: DistributedDataParallel device_ids and output_device arguments only work with single-device",
            "raise err_type(err_msg)",
            "on CPUs, DistributedDataParallel accepts no device_ids",
        ),
        (
            "ValueError: not enough values to unpack (expected 2, got 0)",
            "_, term_width = os.popen('stty size', 'r').read().split()",
            "a rank has no terminal",
        ),
        ("OSError: [Errno 25] Inappropriate ioctl for device", "os.get_terminal_size()", "a rank has no terminal"),
        ("termios.error: (25, 'Inappropriate ioctl for device')", "old_settings = termios.tcgetattr(fd)", RESUME),
        (
            "ImportError: attempted relative import with no known parent package",
            "from .model import Net",
            "this file belongs to a package: start it as a module, `-- -m PACKAGE.MODULE`",
        ),
        ("KeyError: 'COLUMNS'", "OSError: [Errno 25] Inappropriate ioctl for device", RESUME),  # a caught OSError
    ],
)
def test_an_exception_with_too_little_text_is_explained_in_the_hint(folder, error, line, says):
    text = hint(folder, f"train.py ended with code 1: {error}\n    [rank1]:     {line}\n    [rank1]: {error}", ranks=2)
    assert text.startswith(says)
    assert text.endswith(RESUME)


@pytest.mark.parametrize("said", ["run.sh: line 14: accelerate: command not found", "sh: 1: accelerate: not found"])
def test_a_program_missing_in_a_shell_script_is_named_with_how_to_install_it(folder, said):
    words = f"bash ended with code 127 without an exception\n    {said}"
    assert hint(folder, words, cause=Cause.LEFT_EARLY).startswith("the run has no program accelerate: add its package")
    (folder / "requirements.txt").write_text("torch\naccelerate==0.28.0\n")
    assert hint(folder, words, cause=Cause.LEFT_EARLY).startswith("requirements.txt lists accelerate, but it is not")
    assert hint(folder, words) == RESUME


@pytest.mark.parametrize(
    ("fetch", "node", "end"),
    [
        ("", "logs/rank-1.log shows all", f"muster logs --run {RUN} --rank 1 shows all"),
        (
            f"muster fetch --hosts a,b --run {RUN}",
            'b says: "logs/rank-1.log shows all"',
            f'b says: "logs/rank-1.log shows all"; the log of rank 1: muster logs --hosts a,b --run {RUN} --rank 1',
        ),
    ],
)
def test_the_hint_names_a_command_that_shows_the_failed_ranks_log(folder, monkeypatch, fetch, node, end):
    """What a host says is quoted: a command of Muster's own inside the quotation would read as the host's."""
    monkeypatch.setattr(f"{__name__}.RESUME", node)
    assert hint(folder, "train.py ended with code 1: ValueError: x", fetch=fetch).endswith(end)


@pytest.mark.parametrize(("word", "ours"), [("--hosts", True), ("-H", True), ("--lr", False)])
def test_for_a_muster_option_after_the_script_the_hint_says_where_it_belongs(folder, word, ours):
    text = hint(folder, f"train.py ended with code 2: train.py: error: unrecognized arguments: {word} a")
    assert text.startswith(f"if {word} is meant for Muster, put it before the script") == ours


@pytest.mark.parametrize(("options", "needs"), [("--requirements lists/gpu.txt", "lists/gpu.txt"), ("", "uv.lock")])
def test_a_missing_package_is_to_be_added_to_the_file_that_the_run_installed(folder, options, needs):
    for path in ("uv.lock", "lists/gpu.txt"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("")
    (folder.parent / RUN).mkdir()
    record.write_record(folder.parent / RUN, {"id": RUN, "again": options})
    text = hint(folder, "ModuleNotFoundError: No module named 'einops'")
    assert text.endswith(needs if options else "pyproject.toml, and run uv lock")


def test_a_malformed_pyproject_does_not_break_the_end_of_a_run(folder):
    """The file may be a template, for example; the run had --requirements no."""
    (folder / "pyproject.toml").write_text("[project]\nname = {{name}}\n")
    assert "einops" in hint(folder, "ModuleNotFoundError: No module named 'einops'")
