import json
import math
import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from benfourier.data import Examples, split
from benfourier.errors import InputError, OptionError, StoreError
from benfourier.store import artifact

N = 6


def images(seed: int) -> torch.Tensor:
    return torch.rand(N, 3, 4, 5, generator=torch.Generator().manual_seed(seed))


def fields(**changed: Any) -> dict[str, Any]:
    """The fields of a valid record with two attacks."""
    return {
        "clean": images(0),
        "noisy": {"noisy": images(1)},
        "adversarial": {"bim": images(2), "cw-l2": images(3)},
        "success": {
            "bim": torch.tensor([True, False, True, True, False, True]),
            "cw-l2": torch.ones(N, dtype=torch.bool),
        },
        "labels": torch.tensor([0, 1, 2, 0, 1, 2]),
        "ids": tuple(f"é/{n}" for n in range(N)),
        "noise_levels": {"noisy": 0.03},
        "counts": (("opened", 9), ("classified correctly", 7), ("noisy twin too", N)),
        "seed": 4,
        "options": {"bim": {"steps": 10, "sides": (1, 2)}, "word": "ü"},
        "left_out": images(5)[:2],
    } | changed


def same(one: Examples, other: Examples) -> bool:
    """Whether two records hold the same, bit by bit."""
    tensors = all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("clean", "labels", "left_out"))
    grouped = all(
        getattr(one, group).keys() == getattr(other, group).keys()
        and all(torch.equal(tensor, getattr(other, group)[name]) for name, tensor in getattr(one, group).items())
        for group in ("noisy", "adversarial", "success")
    )
    plain = ("attacks", "ids", "noise_levels", "counts", "seed", "options")
    return tensors and grouped and all(getattr(one, name) == getattr(other, name) for name in plain)


def test_a_record_has_a_length_attacks_and_a_repr() -> None:
    examples = Examples(**fields())
    assert len(examples) == N
    assert examples.attacks == ("bim", "cw-l2")
    assert repr(examples) == "Examples(6×3×4×5, succeeded: bim 4/6, cw-l2 6/6, noise: noisy 0.03, seed=4)"


def test_a_record_cannot_be_changed() -> None:
    examples = Examples(**fields())
    with pytest.raises(FrozenInstanceError):
        examples.seed = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        examples.adversarial["bim"] = images(9)  # type: ignore[index]


def test_one_attack_gives_the_rows_in_which_it_succeeded() -> None:
    examples = Examples(**fields())
    alone = examples.for_attack("bim")
    assert alone.attacks == ("bim",)
    assert alone.ids == ("é/0", "é/2", "é/3", "é/5")
    assert torch.equal(alone.adversarial["bim"], examples.adversarial["bim"][[0, 2, 3, 5]])
    assert torch.equal(alone.clean, examples.clean[[0, 2, 3, 5]])
    assert torch.equal(alone.noisy["noisy"], examples.noisy["noisy"][[0, 2, 3, 5]])
    assert bool(alone.success["bim"].all())
    assert alone.counts[-1] == ("bim succeeded", 4)
    assert len(examples) == N


def test_parts_are_the_kinds_of_images_with_ids_and_labels() -> None:
    levels = {"noisy": images(1), "noisy x2": images(4)}
    examples = Examples(**fields(noisy=levels, noise_levels={"noisy": 0.03, "noisy x2": 0.06}))
    parts = {part.kind: part for part in examples.parts()}
    assert list(parts) == ["clean", "noisy", "noisy x2", "bim", "cw-l2"]
    assert [part.adversarial for part in parts.values()] == [False, False, False, True, True]
    assert torch.equal(parts["noisy x2"].images.images, images(4))
    assert parts["bim"].images.ids == ("é/0", "é/2", "é/3", "é/5")
    assert parts["bim"].images.labels.tolist() == [0, 2, 0, 2]
    assert torch.equal(parts["bim"].images.images, examples.adversarial["bim"][[0, 2, 3, 5]])


def test_an_attack_without_success_has_no_part() -> None:
    success = fields()["success"] | {"bim": torch.zeros(N, dtype=torch.bool)}
    assert [part.kind for part in Examples(**fields(success=success)).parts()] == ["clean", "noisy", "cw-l2"]


def test_examples_may_be_clean_images_only(tmp_path: Path) -> None:
    clean = Examples(**fields(noisy={}, noise_levels={}, adversarial={}, success={}))
    assert [part.kind for part in clean.parts()] == ["clean"]
    assert clean.attacks == ()
    clean.save(tmp_path / "a.bf")
    assert same(clean, Examples.load(tmp_path / "a.bf"))


def test_an_attack_that_is_not_in_the_record_is_refused() -> None:
    with pytest.raises(OptionError, match="attack is 'bin'; allowed: bim, cw-l2; did you mean 'bim'"):
        Examples(**fields()).for_attack("bin")


def test_an_attack_that_never_succeeded_is_refused() -> None:
    never = Examples(**fields(success={"bim": torch.zeros(N, dtype=torch.bool), "cw-l2": torch.ones(N).bool()}))
    with pytest.raises(InputError, match="bim succeeded on none of 6 images"):
        never.for_attack("bim")


def test_some_rows_can_be_taken_in_any_order() -> None:
    examples = Examples(**fields())
    some = examples.take([5, 0])
    assert some.ids == ("é/5", "é/0")
    assert some.labels.tolist() == [2, 0]
    assert torch.equal(some.adversarial["cw-l2"], examples.adversarial["cw-l2"][[5, 0]])
    assert some.success["bim"].tolist() == [True, True]
    assert some.counts[-1] == ("taken", 2)
    with pytest.raises(InputError, match="index 6 is outside"):
        examples.take([6])
    with pytest.raises(InputError, match="id 'é/1' occurs twice"):
        examples.take([1, 1])
    with pytest.raises(InputError, match=re.escape("none of these 0")):
        examples.take([])


def test_splits_of_a_record_share_no_source() -> None:
    examples = Examples(**fields(labels=torch.zeros(N, dtype=torch.int64)))
    for seed in range(30):
        parts = split(examples.ids, examples.labels, seed=seed)
        ids = [set(examples.take(rows, name).ids) for name, rows in parts.items()]
        assert sum(map(len, ids)) == len(set().union(*ids)) == N


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"clean": images(0).double()}, "clean is torch.float64; it must be a tensor of torch.float32"),
        ({"noisy": {"noisy": images(0).numpy()}}, "noisy['noisy'] is ndarray; it must be a tensor"),
        ({"noisy": {"noisy": images(0)[:5]}}, "noisy['noisy'] has shape (5, 3, 4, 5) and clean (6, 3, 4, 5)"),
        ({"clean": images(0)[0]}, "clean has shape (3, 4, 5)"),
        (
            {"adversarial": {"bim": images(2), "cw-l2": images(3)[..., :4]}},
            "adversarial['cw-l2'] has shape (6, 3, 4, 4)",
        ),
        ({"adversarial": {"bim": images(2)}}, "adversarial has bim and success bim, cw-l2"),
        ({"noise_levels": {}}, "noisy has noisy and noise_levels none"),
        ({"noisy": {"bim": images(1)}, "noise_levels": {"bim": 0.1}}, "kinds of images are called clean, bim, bim"),
        ({"noisy": {"noisy": images(0) / 0}}, "noisy['noisy'] holds NaN or infinity in the rows [0, 1, 2, 3, 4]"),
        ({"left_out": images(0)[:, :1]}, "left_out has shape (6, 1, 4, 5) and clean (6, 3, 4, 5)"),
        ({"left_out": images(0) / 0}, "left_out holds NaN or infinity in the rows [0, 1, 2, 3, 4]"),
        ({"labels": torch.arange(5)}, "labels has shape (5,); it must be (6,)"),
        ({"labels": torch.arange(6) - 1}, "label -1 is unknown"),
        ({"labels": torch.arange(6).int()}, "labels is torch.int32; it must be a tensor of torch.int64"),
        ({"ids": ("a",)}, "there are 6 images and 1 ids"),
        ({"ids": ("a", "b", "c", "d", "e", "a")}, "id 'a' occurs twice"),
        ({"ids": (1, 2, 3, 4, 5, 6)}, "ids must be text"),
        ({"noise_levels": {"noisy": -0.1}}, "noise_levels['noisy'] is -0.1"),
        ({"noise_levels": {"noisy": math.nan}}, "noise_levels['noisy'] is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"counts": ()}, "counts are empty; the last step must leave the 6 images"),
        ({"counts": (("opened", 7),)}, "counts end with ('opened', 7)"),
        ({"counts": (("a", 4), ("b", 6))}, "6 images are left after 'b' and 4 before"),
        ({"counts": (("a", -1),)}, "count of 'a' is -1"),
        ({"options": {"a": torch.zeros(1)}}, "options cannot be written as JSON"),
        ({"options": {"a": math.inf}}, "options cannot be written as JSON"),
    ],
)
def test_a_record_that_does_not_fit_together_is_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        Examples(**fields(**changed))


def test_success_must_be_one_truth_value_per_image() -> None:
    success = fields()["success"]
    with pytest.raises(InputError, match=re.escape("success['bim'] is torch.int64; it must be a tensor of torch.bool")):
        Examples(**fields(success=success | {"bim": torch.ones(N, dtype=torch.int64)}))
    with pytest.raises(InputError, match=re.escape("success['bim'] has shape (5,); it must be (6,)")):
        Examples(**fields(success=success | {"bim": torch.ones(5, dtype=torch.bool)}))


def test_saving_and_loading_gives_the_same_record(tmp_path: Path) -> None:
    examples = Examples(**fields())
    examples.save(tmp_path / "a.bf")
    assert same(examples, Examples.load(tmp_path / "a.bf"))
    Examples(**fields(left_out=None)).save(tmp_path / "a.bf")
    assert Examples.load(tmp_path / "a.bf").left_out is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.bf"]


def test_tensors_that_share_memory_or_are_not_contiguous_are_saved_too(tmp_path: Path) -> None:
    clean = images(0).to(memory_format=torch.channels_last)
    examples = Examples(
        **fields(clean=clean, noisy={"noisy": clean}, adversarial={"bim": clean.flip(0), "cw-l2": clean})
    )
    examples.save(str(tmp_path / "a.bf"))
    assert same(examples, Examples.load(str(tmp_path / "a.bf")))


def test_the_same_record_is_saved_as_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Examples(**fields()).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_manifest_can_be_read_with_safetensors_alone(tmp_path: Path) -> None:
    Examples(**fields()).save(tmp_path / "a.bf")
    with safe_open(tmp_path / "a.bf", framework="numpy") as file:
        manifest = json.loads(file.metadata()["manifest"])
    assert manifest["schema"] == 2
    assert manifest["kind"] == "benfourier-examples"
    assert manifest["ids"][0] == "é/0"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.bf"
    Examples(**fields()).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StoreError, match=re.escape(f"{path}: it is cut short, damaged or no safetensors file")):
        Examples.load(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bf"
    Examples(**fields()).save(path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="its content is not what was written"):
        Examples.load(path)


@pytest.mark.parametrize("content", [b"hello", b"PK\x03\x04" + bytes(50), b"\x80\x04N."])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.bf"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no safetensors file"):
        Examples.load(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"manifest": "[]"}, {"manifest": '{"kind": "detector"}'}])
def test_safetensors_of_something_else_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "a.bf"
    save_file({"weight": np.zeros(3)}, path, metadata=metadata)
    with pytest.raises(StoreError, match=r"it holds .*, not benfourier-examples"):
        Examples.load(path)


def test_a_manifest_that_is_no_json_is_refused(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "a.bf", metadata={"manifest": "{"})
    with pytest.raises(StoreError, match="its manifest is no JSON"):
        Examples.load(tmp_path / "a.bf")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [(1, "its schema is 1; this version reads 2; .*make or fit it again"), (3, "its schema is 3; .* upgrade")],
)
def test_another_schema_is_refused(tmp_path: Path, schema: int, complaint: str) -> None:
    artifact.write(tmp_path / "a.bf", "benfourier-examples", schema, {}, {"clean": np.zeros(3)})
    with pytest.raises(StoreError, match=complaint):
        Examples.load(tmp_path / "a.bf")


@pytest.mark.parametrize(
    ("manifest", "arrays", "complaint"),
    [
        ({"ids": ["a"]}, {}, "6 images and 1 ids"),
        ({"ids": [1, 2, 3, 4, 5, 6]}, {}, "ids must be text"),
        ({"seed": "4"}, {}, "seed is '4'"),
        ({"seed": None}, {}, "seed is None"),
        ({"attacks": ["bim"]}, {}, "belong to nothing: attacked/cw-l2, success/cw-l2"),
        ({"attacks": 3}, {}, "not iterable"),
        ({"noise_levels": {"noisy": "much"}}, {}, "is 'much'; it must be a number"),
        ({"noise_levels": 0.1}, {}, "not iterable"),
        ({"options": 3}, {}, "not iterable"),
        ({"funnel": [["a", "six"]]}, {}, "count of 'a' is 'six'"),
        ({}, {"clean": np.zeros(3)}, "clean is torch.float64"),
        ({}, {"clean": np.full((N, 3, 4, 5), np.inf, np.float32)}, "clean holds NaN or infinity"),
        ({}, {"labels": np.zeros(N, np.float32)}, "labels is torch.float32"),
        ({}, {"success/bim": np.zeros(N, np.uint8)}, "is torch.uint8; it must be a tensor of torch.bool"),
        ({}, {"success/bim": np.zeros(N - 1, np.bool_)}, "has shape (5,)"),
    ],
)
def test_a_file_whose_arrays_do_not_fit_its_manifest_is_refused(
    tmp_path: Path, manifest: dict[str, Any], arrays: dict[str, Any], complaint: str
) -> None:
    path = tmp_path / "a.bf"
    Examples(**fields()).save(path)
    written, tensors = artifact.read(path, "benfourier-examples", 2)
    entries = {name: value for name, value in written.items() if name not in ("kind", "schema")}
    artifact.write(path, "benfourier-examples", 2, entries | manifest, tensors | arrays)
    with pytest.raises(StoreError, match=re.escape(complaint)) as caught:
        Examples.load(path)
    assert "its manifest and its arrays do not fit" in str(caught.value)
    assert "make the examples again" in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.bf", tmp_path):
        with pytest.raises(StoreError, match="check the name and the permissions"):
            Examples.load(path)


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bf"
    Examples(**fields()).save(path)
    content = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"it cannot be written .*No space left"):
        Examples(**fields(seed=5)).save(path)
    assert path.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["a.bf"]


def test_a_save_into_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it cannot be written"):
        Examples(**fields()).save(tmp_path / "none" / "a.bf")
