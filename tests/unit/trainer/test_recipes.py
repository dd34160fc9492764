"""The built-in recipes and the example have the data that they describe, and a few real steps train them."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import default_collate

from muster.errors import Refused, TrainError
from trainer import recipe as recipes

# These models are too small for more threads: next to other tests, threads that wait for each other take minutes.
torch.set_num_threads(1)
ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "my_recipe.py")
DATA_SHA256 = """
import hashlib, sys
from trainer import recipe
for name in sys.argv[1:]:
    found = hashlib.sha256()
    for dataset in recipe.build_datasets(recipe.load(name), None):
        for index in range(len(dataset)):
            found.update(b"".join(part.numpy().tobytes() for part in dataset[index]))
    print(found.hexdigest())
"""


def train(name: str, steps: int, batch: int) -> tuple[list[float], torch.nn.Module]:
    """Take a few plain steps from seed 0; return their losses and the model after them."""
    recipe = recipes.load(name)
    torch.manual_seed(0)
    model = recipes.build_model(recipe)
    training, _ = recipes.build_datasets(recipe, None)
    lr = recipe.defaults["lr"]
    optimizer = recipe.optimizer(model, lr) if recipe.optimizer else torch.optim.AdamW(model.parameters(), lr)
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0)).tolist()
    losses = []
    for step in range(steps):
        samples = [training[order[(step * batch + i) % len(order)]] for i in range(batch)]
        loss = recipes.compute_loss(recipe, model, default_collate(samples))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def score(name: str, model: torch.nn.Module) -> dict[str, float]:
    """The metrics' means over the whole held-out set."""
    recipe = recipes.load(name)
    _, held_out = recipes.build_datasets(recipe, None)
    with torch.no_grad():
        values = recipes.compute_metrics(recipe, model, default_collate([held_out[i] for i in range(len(held_out))]))
    assert all(value.shape == (len(held_out),) for value in values.values())
    return {name: value.mean().item() for name, value in values.items()}


def test_the_shipped_digits_are_the_1797_of_the_source():
    text = gzip.decompress((ROOT / "trainer" / "recipes" / "digits.csv.gz").read_bytes())
    expected = re.search(r'SHA256 = "(\w{64})"', (ROOT / "trainer" / "recipes" / "make_digits.py").read_text())
    assert expected is not None
    assert hashlib.sha256(text).hexdigest() == expected[1]
    rows = [[int(value) for value in line.split(",")] for line in text.decode().splitlines()]
    assert len(rows) == 1797
    assert {len(row) for row in rows} == {65}


def test_making_the_digits_again_gives_the_same_file(tmp_path):
    source = ROOT / "trainer" / "recipes"
    script = tmp_path / "make_digits.py"
    script.write_bytes((source / "make_digits.py").read_bytes())
    (tmp_path / "optdigits.tes").write_bytes(gzip.decompress((source / "digits.csv.gz").read_bytes()))
    subprocess.run([sys.executable, str(script), str(tmp_path / "optdigits.tes")], check=True, capture_output=True)
    assert gzip.decompress((tmp_path / "digits.csv.gz").read_bytes()) == (tmp_path / "optdigits.tes").read_bytes()
    assert (tmp_path / "digits.csv.gz").read_bytes()[3:10] == bytes([0, 0, 0, 0, 0, 2, 255])  # no name, time or system


def test_digits_holds_out_360_that_are_not_trained_on():
    training, held_out = recipes.build_datasets(recipes.load("digits"), None)
    assert (len(training), len(held_out)) == (1437, 360)
    image, label = training[0]
    assert (image.shape, image.dtype, label.shape, label.dtype) == ((1, 8, 8), torch.float32, (), torch.int64)
    assert training.tensors[0].min() == 0
    assert training.tensors[0].max() == 1
    assert held_out.tensors[1].bincount().tolist() == [36] * 10
    assert (training.tensors[1].bincount() + 36).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    seen = {image.numpy().tobytes() for image in training.tensors[0]}
    assert not any(image.numpy().tobytes() in seen for image in held_out.tensors[0])


def test_digits_learns_to_read():
    losses, model = train("digits", steps=80, batch=96)
    assert losses[0] == pytest.approx(2.3, abs=0.1)
    assert losses[-1] < 0.4
    assert score("digits", model)["accuracy"] > 0.9


def test_text_learns_what_follows():
    losses, model = train("text", steps=12, batch=8)
    assert losses[0] == pytest.approx(5.55, abs=0.2)  # ln 256: every byte is equally likely
    assert losses[-1] < losses[0] - 1
    recipe = recipes.load("text")
    batch = default_collate([recipes.build_datasets(recipe, None)[1][i] for i in range(5)])
    values = recipes.compute_metrics(recipe, model, batch)
    assert {name: value.shape for name, value in values.items()} == {"bits_per_byte": (5,), "accuracy": (5,)}
    loss = recipes.compute_loss(recipe, model, batch)
    assert values["bits_per_byte"].mean().item() * 0.6931 == pytest.approx(loss.item(), rel=1e-3)


def test_text_does_not_see_the_bytes_that_it_must_predict():
    torch.manual_seed(0)
    model = recipes.build_model(recipes.load("text"))
    text = torch.arange(128)[None]
    changed = text.clone()
    changed[0, 64:] = 7
    before, after = model(text), model(changed)
    torch.testing.assert_close(before[0, :64], after[0, :64])
    assert not torch.allclose(before[0, 64:], after[0, 64:])


def test_text_reads_a_folder_in_order_without_hidden_and_binary_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "later.txt").write_text("B" * 2000)
    (tmp_path / "a.txt").write_text("A" * 2000)
    (tmp_path / ".hidden").write_text("H" * 2000)
    (tmp_path / "c.bin").write_bytes(b"\0C" * 2000)
    training, held_out = recipes.build_datasets(recipes.load("text"), tmp_path)
    whole = bytes(training.text) + bytes(held_out.text)
    assert whole == b"A" * 2000 + b"B" * 2000
    assert len(held_out.text) == 200
    bytes_in, bytes_out = training[15]  # 1920..2048: where A gives way to B
    assert bytes(bytes_in.to(torch.uint8)) == b"A" * 80 + b"B" * 48
    assert bytes(bytes_out.to(torch.uint8)) == b"A" * 79 + b"B" * 49


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("", "0 bytes of text, but it needs 2,580"),
        ("hello", "5 bytes of text, but it needs 2,580"),
    ],
)
def test_text_refuses_a_folder_it_cannot_train_on(tmp_path, made, message):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "some.txt").write_text(made)
    with pytest.raises(Refused, match=message) as caught:
        recipes.build_datasets(recipes.load("text"), folder)
    assert str(folder) in caught.value.message
    assert "--data" in caught.value.hint


def test_text_skips_folders_of_root_that_have_no_text(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/some.txt").write_text("A" * 9000)
    closed = [tmp_path / name for name in ("lost+found", "__pycache__")]
    for each in closed:
        each.mkdir(mode=0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    recipe, root = recipes.load("text"), os.geteuid() == 0
    try:
        os.seteuid(65534 if root else os.geteuid())
        assert recipes.build_datasets(recipe, Path())
    finally:
        os.seteuid(0 if root else os.geteuid())
        for each in closed:
            each.chmod(0o755)


def test_text_does_not_train_on_less_if_a_folder_cannot_be_listed(tmp_path, monkeypatch):
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "some.txt").write_text("A" * 5000)
    (tmp_path / "theirs").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # only their owner may enter the folders above it
    recipe, root = recipes.load("text"), os.geteuid() == 0
    try:
        os.seteuid(65534 if root else os.geteuid())
        with pytest.raises(TrainError, match=r"datasets: PermissionError.*theirs"):
            recipes.build_datasets(recipe, Path())
    finally:
        os.seteuid(0 if root else os.geteuid())
        (tmp_path / "theirs").chmod(0o755)


def test_digits_refuses_data_it_would_ignore(tmp_path):
    with pytest.raises(Refused, match="it has its own data"):
        recipes.build_datasets(recipes.load("digits"), tmp_path)


def test_the_example_learns():
    losses, model = train(EXAMPLE, steps=300, batch=96)
    assert losses[-1] < losses[0] / 3
    assert score(EXAMPLE, model)["accuracy"] > 0.9


def test_two_processes_hold_the_same_data():
    command = [sys.executable, "-c", DATA_SHA256, "digits", "text", EXAMPLE]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (run.communicate(timeout=120)[0].split() for run in runs)
    assert [len(digest) for digest in first] == [64, 64, 64]
    assert first == second


@pytest.mark.parametrize("name", ["digits", "text", EXAMPLE])
def test_bf16_autocast_gives_nearly_the_same_loss(name):
    recipe = recipes.load(name)
    torch.manual_seed(0)
    model = recipes.build_model(recipe)
    training, _ = recipes.build_datasets(recipe, None)
    batch = default_collate([training[i] for i in range(8)])
    exact = recipes.compute_loss(recipe, model, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = recipes.compute_loss(recipe, model, batch)
    assert rough.item() == pytest.approx(exact.item(), rel=0.02)
