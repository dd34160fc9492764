"""A traceback that the library rich has drawn is explained as one that Python has printed."""

import io

import pytest
import rich.console
import rich.traceback

from deploy.explain.cause import explain

PATH = "/data/imagenet/train/shards/of/a/very/long/path/that/is/wrapped/somewhere/shard-000123.tar"
MESSAGE = "rank 3 was asked to join, " * 9
# An error that the code names, and that did not happen, stands in what rich quotes.
CODE = """
def load():
    # torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
    raise {error}
load()
"""


def drawn(tmp_path, error, width=80):
    """What rich prints where this error is raised."""
    script, to = tmp_path / "train.py", io.StringIO()
    script.write_text(CODE.format(error=error))
    try:
        exec(compile(script.read_text(), script, "exec"), {"__name__": "__main__"})
    except Exception:
        rich.console.Console(file=to, width=width).print(rich.traceback.Traceback())
    assert "most recent call last" in to.getvalue()
    return to.getvalue()


@pytest.mark.parametrize("width", [80, 61, 100])
@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "worker-1  | "])
@pytest.mark.parametrize(("error", "words"), [
    (f"FileNotFoundError(2, 'No such file or directory', {PATH!r})", f"No such file or directory: '{PATH}'"),
    (f"RuntimeError({MESSAGE!r})", f"RuntimeError: {MESSAGE.strip()}"),
    ("KeyError('image')", "KeyError: 'image'"),
])  # fmt: skip
def test_its_error_is_whole_and_no_error_that_the_code_names(tmp_path, error, words, prefix, width):
    text = "".join(f"{prefix}{line}\n" for line in [*drawn(tmp_path, error, width).splitlines(), "the next line"])
    verdict = explain({"a": text})
    assert words in verdict.what
    assert "the next line" not in verdict.what
    assert verdict.cause in ("script-error", "")


def test_of_two_errors_each_has_its_own_line(tmp_path):
    text = drawn(tmp_path, "KeyError('image')") + drawn(tmp_path, f"RuntimeError({MESSAGE!r})")
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.startswith("KeyError"))
    assert [each.number for each in explain({"a": text}).evidence] == [line]
