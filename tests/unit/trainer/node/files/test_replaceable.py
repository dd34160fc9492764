"""Replaceable files are recognised by a program's own layout; no file that a script may have written is among them."""

import re
from pathlib import Path

import pytest

from trainer.node.files import replaceable

HOME = Path(__file__).resolve().parents[5]
SHA1, SHA256 = "0123456789abcdef01234567" + "89abcdef01234567", "0f" * 32
BASE32, LOWER = "A2B3C4D5E6F7" * 4 + "ABCD", "cthddkr6tqpvvx2keoyfjfaz3e5tmldioaoosvrbpzssty5wzlrd"
HUB = "home/.cache/huggingface/hub/models--org--name"

AGAIN = [
    f"{HUB}/blobs/{SHA256}",
    f"{HUB}/blobs/{SHA1}",
    f"{HUB}/blobs/{SHA256}.1a2b3c4d.incomplete",
    f"work/hf/hub/datasets--a--b/blobs/{SHA1}",
    f"home/.cache/huggingface/datasets/squad/plain_text/0.0.0/{SHA1}/squad-train.arrow",
    f"home/.cache/huggingface/datasets/downloads/{SHA256}.json",
    "home/.cache/huggingface/hub/CACHEDIR.TAG",
    "home/.cache/huggingface/token",
    f"home/.cache/pip/http-v2/0/1/2/3/4/{'01' * 28}.body",
    f"home/.cache/pip/wheels/ab/cd/ef/{'0' * 50}/x-1-py3-none-any.whl",
    "home/.cache/uv/archive-v0/h1Te5lUvr5BHKJcQ9SRnz/torch/__init__.py",
    "home/.cache/uv/wheels-v5/pypi/numpy/numpy-2.0-cp311.http",
    "work/__pycache__/train.cpython-311.pyc",
    "work/pkg/__pycache__/kernel.f-12.py311.1.nbc",
    f"home/.triton/cache/{BASE32}/kernel.cubin",
    f"home/.cache/inductor/th/{LOWER}.so",
    "home/.cache/torch_extensions/py311_cu128/mine/lock",
    f"home/.nv/ComputeCache/0/a/{'ab' * 10}",
    "home/.cache/matplotlib/fontlist-v390.json",
]
ONLY_COPIES = [
    "home/.cache/nanochat/base_checkpoints/d20/model_000030.pt",
    "home/.cache/huggingface/my-finetune/model.safetensors",
    "home/.cache/huggingface/hub/best.pt",
    "home/.cache/huggingface/hub/models--org--name/best.pt",
    f"{HUB}/snapshots/{SHA1}/model.safetensors",
    f"{HUB}/blobs/best.pt",
    f"{HUB}/refs/best.pt",
    "home/.cache/torch/hub/checkpoints/best.pt",
    "home/.cache/torch/hub/checkpoints/model-00010000.pt",
    "home/.cache/torch/hub/checkpoints/model-1a2b3c4d.pt",
    "home/.cache/pip/best.pt",
    "home/.cache/uv/best.pt",
    "home/.config/mychat/best.pt",
    "home/.config/mychat/settings.json",
    "home/.nv/best.pt",
    "home/.triton/best.pt",
    f"work/outputs/{SHA256}/metrics.json",
    f"work/outputs/{SHA256}.pt",
    "work/archive-v1/2026-11-26_12-34-567/best.pt",
    "work/__pycache__/best.pt",
    "work/wandb/offline-run-1/files/wandb-summary.json",
    "work/mlruns/0/abc/artifacts/model.pt",
    "work/lightning_logs/version_0/checkpoints/last.ckpt",
    "work/.git/best.pt",
    "work/node_modules/best.pt",
    "keep/data/.cache/best.pt",
]


@pytest.mark.parametrize("path", AGAIN)
def test_a_file_with_a_programs_own_layout_is_replaceable(path):
    assert replaceable.kind_of(path, 100)


@pytest.mark.parametrize("path", ONLY_COPIES)
def test_a_file_that_may_be_the_only_copy_is_not_replaceable_wherever_it_is(path):
    assert not replaceable.kind_of(path, 100)


def test_links_and_markers_of_the_hub_are_recognised_by_their_size_too():
    link = f"{HUB}/snapshots/{SHA1}/model.safetensors"
    assert replaceable.kind_of(link, None)
    assert not replaceable.kind_of("work/latest", None)
    assert replaceable.kind_of(f"{HUB}/refs/main", 40)
    assert not replaceable.kind_of(f"{HUB}/refs/main", 41)
    assert replaceable.kind_of(f"{HUB}/.no_exist/{SHA1}/added_tokens.json", 0)
    assert not replaceable.kind_of(f"{HUB}/.no_exist/{SHA1}/best.pt", 9)


def test_an_empty_lock_is_no_result_but_one_with_content_may_be():
    """The datasets library leaves three empty locks next to the data that it has prepared."""
    assert replaceable.kind_of("huggingface/datasets/data/default/0.0.0/535a2fe361680b03_builder.lock", 0)
    assert not replaceable.kind_of("work/uv.lock", 100)


def test_a_folder_that_is_tagged_as_a_cache_may_hold_results():
    """huggingface_hub tags every `cache_dir`, even if that is the working folder."""
    assert replaceable.kind_of("work/CACHEDIR.TAG", 43)
    assert not replaceable.kind_of("work/best.pt", 43)


def test_the_hosts_and_the_users_machine_have_the_same_patterns():
    texts = [
        re.sub(r"[\w/]+/replaceable", "", (HOME / half / "replaceable.py").read_text())
        for half in ("trainer/node/files", "deploy/host/files")
    ]
    assert texts[0] == texts[1]
