"""Where `muster explain` finds output: folders of any launcher, compressed files, and files it cannot use."""

import bz2
import errno
import gzip
import io
import lzma
import os

import pytest

from deploy.commands.explain import places_of
from deploy.core.errors import UsageError
from deploy.explain import sources
from deploy.explain.cause import judge
from deploy.explain.read import CHUNK, read

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def explained(data, who=""):
    return judge([read("a", sources.pieces(io.BytesIO(data)), who=who)])


@pytest.mark.parametrize("data", [
    OOM.encode(), OOM.replace("\n", "\r\n").encode(), gzip.compress(OOM.encode()),
    gzip.compress(b"x\n") + gzip.compress(OOM.encode()),
    gzip.compress(b"step loss 0.1\n" * 50_000 + OOM.encode())[:-4],
    b"\xef\xbb\xbf" + OOM.encode(), bytes(range(256)) * 600 + b"\n" + OOM.encode(),
], ids=["plain", "crlf", "gzip", "two gzips", "cut gzip", "mark", "junk"])  # fmt: skip
def test_output_in_any_encoding_or_compression_is_read(data):
    assert explained(data).cause == "gpu-memory"


def test_a_compressed_file_is_read_in_small_pieces_however_large_it_unpacks():
    packed = gzip.compress(b"\0" * (8 << 20))
    assert max(len(piece) for piece in sources.pieces(io.BytesIO(packed))) <= CHUNK


@pytest.mark.parametrize("data", [bz2.compress(OOM.encode()), lzma.compress(OOM.encode()), OOM.encode("utf-16")])
def test_output_that_is_no_text_is_refused_and_not_reported_as_without_error(data):
    with pytest.raises(OSError, match="pipe its text"):
        explained(data)


def test_text_before_and_after_the_states_of_a_progress_bar_is_read():
    bar = b"".join(b"\r%d%%|####| %d/5000 [00:10<01:20, 12.3it/s]" % (step // 50, step) for step in range(5000))
    why = explained(b"start\n" + bar + b"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n")
    assert why.cause == "host-memory"
    why = explained(b"RuntimeError: CUDA error: uncorrectable ECC error encountered" + bar + b"\n")
    assert why.cause == "gpu-faulty", "what stands before the first state"


@pytest.mark.parametrize("data", [b"", b"\n\n", gzip.compress(b"", mtime=0), b"\x1f\x8bno gzip"])
def test_output_without_contents_is_reported_as_empty(data):
    assert "empty" in explained(data).what


@pytest.mark.parametrize(("path", "who"), [
    ("attempt_0/3/stderr.log", "local rank 3"), ("rank_12.log", "rank 12"), ("logs/rank-2.log.gz", "rank 2"),
    ("stderr_3.txt", "rank 3"), ("job.7.err", "rank 7"), ("worker-1.out", "worker 1"), ("slurm-4711.out", ""),
    ("train.log", ""), ("local_rank1.txt", "local rank 1"), ("gpt2.log", ""),
])  # fmt: skip
def test_the_name_of_a_file_tells_which_rank_wrote_it(path, who):
    assert sources.speaker_of(path) == who


def test_only_the_logs_in_a_folder_of_any_launcher_are_read(tmp_path):
    for name in ("job/attempt_0/0/stderr.log", "job/attempt_0/1/stderr.log", "job/slurm-7.out", "job/requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "job/model.bin").write_bytes(b"\0")
    (tmp_path / "job/.git").mkdir()
    (tmp_path / "job/.git/a.log").write_text("x\n")
    (tmp_path / "job/loop.log").symlink_to(tmp_path / "job")
    files, _ = sources.in_folder(tmp_path / "job")
    assert sources.names_of(files) == ["attempt_0/0/stderr.log", "attempt_0/1/stderr.log", "slurm-7.out"]


@pytest.mark.parametrize(("mark", "found"), [("train.py", ["node", "slurm-7.out"]), ("record.json", ["node"])])
def test_only_in_a_muster_run_are_files_outside_logs_ignored(tmp_path, mark, found):
    (tmp_path / "logs").mkdir()
    for name in ("logs/node.log", "slurm-7.out", mark):
        (tmp_path / name).write_text("x\n")
    assert sources.names_of(sources.in_folder(tmp_path)[0]) == found


def test_in_a_folder_without_logs_its_text_files_are_read_but_no_hidden_ones(tmp_path):
    for name in ("output", ".env", ".netrc"):
        (tmp_path / name).write_text("TOKEN=sesame\n")
    assert [path.name for path in sources.in_folder(tmp_path)[0]] == ["output"]


@pytest.mark.parametrize(("what", "words"), [
    ("RuntimeError: CUDA error: unspecified launch failure " * 8, "no such file"),
    ("~no-such-user/x.log", "no such file"), ("closed/x.log", "cannot be read"),
])  # fmt: skip
def test_an_impossible_or_unreadable_path_is_refused_in_words(monkeypatch, what, words):
    def no_entry(path, *more, **others):
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, *more, **others)

    stat = os.stat
    monkeypatch.setattr(os, "stat", no_entry)
    with pytest.raises(UsageError, match=words):
        places_of([what])


def test_the_rank_of_a_file_is_named_as_the_first():
    assert explained(OOM.encode(), who="rank 3").first == "rank 3"
