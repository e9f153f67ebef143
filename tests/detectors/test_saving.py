"""Files of detectors and guards: what is loaded, and what is refused, each with a message of its own."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from torch import nn

import benfourier as bf
from benfourier.detectors import detector as detectors
from benfourier.errors import ClassifierError, StoreError
from benfourier.guard import guard as guards
from benfourier.store import artifact
from tests.detectors.guarded import detector, guard
from tests.detectors.toys import toys

# writes half of a temporary file beside the target and dies
KILLED = """
import os, sys
from pathlib import Path
from benfourier.store.artifact import replace_file
def half(beside):
    Path(beside).write_bytes(b"half of it")
    os._exit(9)
replace_file(sys.argv[1], half)
"""


@pytest.fixture
def guard_file(tmp_path: Path) -> Path:
    """The file of a guard."""
    guard().save(tmp_path / "guard.bf")
    return tmp_path / "guard.bf"


def network() -> nn.Sequential:
    """A copy of the network that was fitted."""
    copy = deepcopy(toys().classifier.module)
    assert isinstance(copy, nn.Sequential)
    return copy


def refusal(read: Callable[[], object]) -> str:
    """The message with which a file is refused."""
    with pytest.raises(StoreError) as caught:
        read()
    return str(caught.value)


def rewritten(
    path: Path,
    change: Callable[[dict[str, Any]], None],
    *,
    sealed: bool = True,
    arrays_by: Callable[[dict[str, Any]], None] = lambda _: None,
    **others: np.ndarray[Any, Any],
) -> None:
    """Changes a file's manifest and arrays; sealed with digests that fit, or with the old ones."""
    with safe_open(path, framework="numpy") as file:
        manifest = json.loads(file.metadata()["manifest"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    arrays |= {f"calibration/{name}": array for name, array in others.items()}
    change(manifest)
    arrays_by(arrays)
    if not sealed:
        save_file(arrays, path, metadata={"manifest": json.dumps(manifest)})
        return
    del manifest["digests"]
    artifact.write(path, manifest.pop("kind"), manifest.pop("schema"), manifest, arrays)


def set_to(value: object, *keys: str | int) -> Callable[[dict[str, Any]], None]:
    """A change of one entry."""

    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def test_a_guard_is_loaded_with_the_network_alone(guard_file: Path) -> None:
    images = toys().tested.adversarial["bim"][:12]
    again = bf.load_guard(guard_file, network())
    before, after = guard().check(images), again.check(images)
    assert np.array_equal(after.score, before.score)
    assert np.array_equal(after.label, before.label)
    assert again.threshold == guard().threshold
    assert again.detector.summary == detector().summary
    assert again.detector.seen == detector().seen
    assert np.array_equal(again.calibration.mean, guard().calibration.mean)
    assert np.array_equal(again.calibration.deviation, guard().calibration.deviation)


def test_a_saved_guard_can_change_its_rate_without_a_refit(guard_file: Path) -> None:
    again = bf.load_guard(guard_file, network()).at_rate(0.3)
    again.save(guard_file)
    assert bf.load_guard(guard_file, network()).threshold == guard().at_rate(0.3).threshold


def test_the_image_format_is_saved_with_a_guard(tmp_path: Path) -> None:
    image_format = {"bounds": (-1.0, 3.0), "mean": (0.25,), "std": (0.5,), "channels": 1, "resize": "stretch"}
    classifier = bf.Classifier(network(), **image_format, size=(8, 8), classes=tuple("0123456789"))  # type: ignore[arg-type]
    classifier.layer_list((1, 8, 8))
    new_guard = bf.Guard.calibrated(replace(detector(), classifier=classifier), toys().tested.clean, 0.2)
    new_guard.save(tmp_path / "guard.bf")
    again = bf.load_guard(tmp_path / "guard.bf", network()).classifier
    assert {name: getattr(again, name) for name in image_format} == image_format
    assert again.size == (8, 8)
    assert again.classes == list("0123456789")


def test_a_network_of_unusual_size_is_recognised_by_the_shape_it_was_fitted_with(tmp_path: Path) -> None:
    classifier = bf.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(2 * 11 * 13, 4)))
    classifier.layer_list((2, 11, 13))
    fitted = bf.fit("max-softmax", toys().classifier, toys().fitted.for_attack("bim"), show_progress=False)
    facts = {**fitted.summary, "shape": [2, 11, 13]}
    del facts["weights"]
    other = replace(fitted, classifier=classifier, summary=facts)
    new_guard = bf.Guard.calibrated(other, torch.rand(60, 2, 11, 13))
    new_guard.save(tmp_path / "guard.bf")
    assert bf.load_guard(tmp_path / "guard.bf", deepcopy(classifier.module)).threshold == new_guard.threshold


def test_the_manifest_states_what_is_needed_to_trust_a_guard(guard_file: Path) -> None:
    header = artifact.inspect(guard_file)
    manifest = header.manifest
    assert (manifest["kind"], manifest["schema"]) == ("benfourier-guard", 2)
    assert {"benfourier", "torch", "numpy", "scikit-learn", "safetensors", "python"} == manifest["versions"].keys()
    assert manifest["options"]["C"] == 10.0
    assert len(manifest["classifier"]["weights"]) == 64
    assert manifest["classifier"]["layers"] == toys().classifier.layer_names(pass_through=True)
    assert manifest["classifier"]["bounds"] == [0.0, 1.0]
    assert manifest["threshold"]["images"] == 40
    assert header.arrays["calibration/scores"] == ("F64", (40,))
    assert header.arrays["calibration/mean"] == header.arrays["calibration/deviation"]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_file_that_is_cut_short_is_refused(guard_file: Path, share: float) -> None:
    content = guard_file.read_bytes()
    guard_file.write_bytes(content[: int(share * len(content))])
    assert f"{guard_file}: it is cut short" in refusal(lambda: bf.load_guard(guard_file, network()))


def test_a_file_that_is_cut_short_is_refused_with_the_bytes_it_should_have(guard_file: Path) -> None:
    size = guard_file.stat().st_size
    os.truncate(guard_file, size - 100)
    assert f"it has {size - 100:,} bytes, and should have {size:,}" in refusal(
        lambda: bf.load_guard(guard_file, network())
    )


@pytest.mark.parametrize("name", ["head/state/vectors", "calibration/scores", "seen"])
def test_a_flipped_byte_in_the_arrays_is_noticed(guard_file: Path, name: str) -> None:
    content = bytearray(guard_file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    begin = json.loads(content[8 : 8 + length])[name]["data_offsets"][0]
    content[8 + length + begin + 3] ^= 16
    guard_file.write_bytes(content)
    assert "its arrays are damaged" in refusal(lambda: bf.load_guard(guard_file, network()))


@pytest.mark.parametrize("change", [set_to(99.0, "threshold", "value"), set_to("x", "note")])
def test_an_edited_manifest_is_noticed(guard_file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rewritten(guard_file, change, sealed=False)
    assert "its manifest is not what was written" in refusal(lambda: bf.load_guard(guard_file, network()))


def test_a_file_without_digests_is_refused(guard_file: Path) -> None:
    rewritten(guard_file, lambda manifest: manifest.pop("digests"), sealed=False)
    assert "its manifest is not what was written" in refusal(lambda: bf.load_guard(guard_file, network()))


def test_a_newer_schema_asks_for_an_upgrade(guard_file: Path) -> None:
    rewritten(guard_file, set_to(3, "schema"))
    message = refusal(lambda: bf.load_guard(guard_file, network()))
    assert "its schema is 3; this version reads 2; it was written by a newer version; upgrade benfourier" in message


@pytest.mark.parametrize("schema", [0, None, "one"])
def test_an_older_schema_is_refused(guard_file: Path, schema: object) -> None:
    rewritten(guard_file, set_to(schema, "schema"))
    assert "it was written by one that is too old" in refusal(lambda: bf.load_guard(guard_file, network()))


def test_a_file_of_version_0_1_asks_for_another_fit(guard_file: Path, tmp_path: Path) -> None:
    detector().save(tmp_path / "mbf.bf")
    for path, read in (
        (guard_file, lambda: bf.load_guard(guard_file, network())),
        (tmp_path / "mbf.bf", lambda: bf.load(tmp_path / "mbf.bf", toys().classifier)),
    ):
        rewritten(path, set_to(1, "schema"))
        assert "its schema is 1; this version reads 2; it was written by one that is too old; make or fit it again" in (
            refusal(read)
        )


def test_a_file_of_another_kind_is_refused(guard_file: Path, tmp_path: Path) -> None:
    detector().save(tmp_path / "mbf.bf")
    assert "it holds benfourier-guard, not benfourier-detector" in refusal(
        lambda: bf.load(guard_file, toys().classifier)
    )
    message = refusal(lambda: bf.load_guard(tmp_path / "mbf.bf", network()))
    assert "it holds benfourier-detector, not benfourier-guard" in message


def test_other_weights_are_refused(guard_file: Path) -> None:
    other = network()
    with torch.no_grad():
        next(other.parameters())[0, 0, 0, 0] += 1e-6
    assert "the weights of this one have the digest" in refusal(lambda: bf.load_guard(guard_file, other))


def test_other_layers_are_refused_by_name(guard_file: Path) -> None:
    more, fewer = nn.Sequential(*network(), nn.Tanh()), network()
    fewer[6] = nn.Identity()
    assert "this one also has 9;" in refusal(lambda: bf.load_guard(guard_file, more))
    del fewer[7]
    assert "this one lacks 8;" in refusal(lambda: bf.load_guard(guard_file, fewer))


def test_a_network_that_takes_other_images_is_refused(guard_file: Path) -> None:
    other = nn.Sequential(nn.Flatten(), nn.Linear(300, 10))
    assert "does not take images of shape (1, 8, 8)" in refusal(lambda: bf.load_guard(guard_file, other))


@pytest.mark.parametrize("change", [{"bounds": (0.0, 2.0)}, {"mean": (0.5,)}, {"std": (2.0,)}])
def test_other_bounds_mean_and_std_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    detector().save(tmp_path / "mbf.bf")
    other = replace(toys().classifier, **change)
    (name,) = change
    assert f"the {name} of this one is" in refusal(lambda: bf.load(tmp_path / "mbf.bf", other))


def test_an_unknown_method_is_refused_by_name(guard_file: Path) -> None:
    rewritten(guard_file, set_to("mbf-9000", "method"))
    message = refusal(lambda: bf.load_guard(guard_file, network()))
    assert "it holds the method 'mbf-9000', which this version does not know" in message


def test_options_that_this_version_does_not_know_are_refused(guard_file: Path) -> None:
    rewritten(guard_file, set_to(3, "options", "octaves"))
    assert "mbf has other options in this version" in refusal(lambda: bf.load_guard(guard_file, network()))


@pytest.mark.parametrize(
    "change",
    [
        set_to({}, "head"),
        set_to({"kind": "forest", "state": {}}, "head"),
        set_to({"kind": "plain", "state": {"bias": 1.0}}, "head"),
        set_to([], "extractors"),
        set_to({"slope": 1.0}, "sigmoid"),
        set_to(None, "summary"),
        set_to([], "classifier"),
        set_to({"value": 1.0}, "threshold"),
        set_to({"slope": "steep", "offset": 0.0}, "sigmoid"),
        set_to({"slope": -1.0, "offset": 0.0}, "sigmoid"),
        set_to(1e308, "head", "state", "gamma"),
        set_to(1e299, "head", "state", "log_tau"),
        set_to(True, "head", "state", "lift"),
        set_to(10**9, "extractors", 0, "state", "orders"),
        set_to(8, "extractors", 0, "state", "orders"),
        set_to("many", "extractors", 0, "state", "entries"),
        set_to(["no-layer"], "extractors", 0, "state", "layers"),
        set_to([1, 20_000, 20_000], "summary", "shape"),
        set_to([1, -8, 8], "summary", "shape"),
        set_to([8], "summary", "shape"),
        set_to(10**12, "summary", "features"),
        set_to("many", "summary", "features"),
    ],
)
def test_a_manifest_that_does_not_fit_its_arrays_is_refused(
    guard_file: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    rewritten(guard_file, change)
    assert str(guard_file) in refusal(lambda: bf.load_guard(guard_file, network()))


def test_a_threshold_that_does_not_follow_from_its_scores_is_refused(guard_file: Path) -> None:
    rewritten(guard_file, set_to(99.0, "threshold", "value"))
    assert "its threshold is 99, but its calibration scores give" in refusal(
        lambda: bf.load_guard(guard_file, network())
    )


@pytest.mark.parametrize(
    ("name", "alter"),
    [
        ("head/state/vectors", lambda array: np.ascontiguousarray(array.T)),
        ("head/state/vectors", lambda array: array.astype(np.float16)),
        ("head/state/vectors", lambda array: array.astype(np.int64)),
        ("head/state/weights", lambda array: array[:-1]),
        ("head/state/weights", lambda array: array * np.nan),
        ("head/state/shift", lambda array: array[:1]),
        ("head/state/scale", np.zeros_like),
        ("seen", lambda array: array.reshape(-1, 4)),
        ("seen", lambda array: array.astype(np.int32)),
        ("calibration/mean", lambda array: array * np.nan),
        ("calibration/deviation", lambda array: array - 1e9),
    ],
)
def test_an_array_of_another_shape_type_or_range_is_refused(
    guard_file: Path, name: str, alter: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = alter(arrays[name])

    rewritten(guard_file, lambda _: None, arrays_by=change)
    assert "its manifest and its arrays do not fit" in refusal(lambda: bf.load_guard(guard_file, network()))


Array = np.ndarray[Any, Any]
OTHER_ARRAYS: dict[str, Callable[[Array], Array]] = {
    "a number": lambda array: np.array(0.0),
    "transposed": lambda array: np.ascontiguousarray(array.T),
    "one row less": lambda array: array[:-1],
    "no row": lambda array: array[:0],
    "twice": lambda array: np.concatenate([array, array]),
    "one more dimension": lambda array: array[np.newaxis],
    "half precision": lambda array: array.astype(np.float16),
    "whole numbers": lambda array: np.ones(array.shape, np.int32),
    "NaN": lambda array: array * np.nan,
}


@pytest.mark.parametrize("kind", OTHER_ARRAYS)
def test_no_other_array_ends_in_anything_but_a_refusal_or_a_guard_that_judges(guard_file: Path, kind: str) -> None:
    content, clean, refused = guard_file.read_bytes(), toys().tested.clean[:2], 0
    with safe_open(guard_file, framework="numpy") as file:
        originals = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, array in originals.items():
        other = OTHER_ARRAYS[kind](array)
        if (other.shape, other.dtype) == (array.shape, array.dtype) and np.array_equal(other, array):
            continue
        guard_file.write_bytes(content)
        rewritten(guard_file, lambda _: None, arrays_by=partial(dict.update, **{name: other}))
        try:
            verdicts = bf.load_guard(guard_file, network()).check(clean)
        except StoreError:
            refused += 1
        else:
            assert np.isfinite(verdicts.score).all()
            # of the arrays whose length nothing else fixes, and of square ones, another may be as good; residuals may
            # be of any precision
            assert kind in ("transposed", "one row less", "no row", "twice") or "residuals" in name, name
    assert refused > 0


@pytest.mark.parametrize("value", [None, "many", [], {}, -1, 1e308], ids=repr)
def test_no_other_entry_of_a_manifest_ends_in_anything_but_a_refusal_or_a_guard_that_judges(
    guard_file: Path, value: object
) -> None:
    content, clean, refused = guard_file.read_bytes(), toys().tested.clean[:2], 0
    with safe_open(guard_file, framework="numpy") as file:
        manifest = json.loads(file.metadata()["manifest"])
    for place in places_in({name: manifest[name] for name in manifest if name not in ("kind", "schema", "digests")}):
        guard_file.write_bytes(content)
        rewritten(guard_file, set_to(value, *place))
        try:
            verdicts = bf.load_guard(guard_file, network()).check(clean)
        except StoreError:
            refused += 1
        else:
            assert np.isfinite(verdicts.score).all()
    assert refused > 0


def places_in(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Where the entries of JSON stand; of lists the first only."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, one in inner:
        yield (key,)
        yield from ((key, *place) for place in places_in(one))


@pytest.mark.parametrize("name", ["mean", "deviation", "scores"])
def test_calibration_arrays_that_do_not_fit_the_detector_are_refused(guard_file: Path, name: str) -> None:
    rewritten(guard_file, lambda _: None, **{name: np.ones((3, 2))})  # type: ignore[arg-type]
    assert "its manifest and its arrays do not fit" in refusal(lambda: bf.load_guard(guard_file, network()))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, '{"kind": "benfourier-guard", "schema": [2]}'])
def test_a_manifest_that_no_version_wrote_is_refused(tmp_path: Path, text: str) -> None:
    save_file({"a": np.zeros(2)}, tmp_path / "guard.bf", metadata={"manifest": text})
    assert str(tmp_path / "guard.bf") in refusal(lambda: bf.load_guard(tmp_path / "guard.bf", network()))


def test_arrays_of_kinds_that_numpy_does_not_know_are_refused(tmp_path: Path) -> None:
    manifest = json.dumps({"kind": "benfourier-guard", "schema": 2})
    save_tensors({"a": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "guard.bf", {"manifest": manifest})
    assert str(tmp_path / "guard.bf") in refusal(lambda: bf.load_guard(tmp_path / "guard.bf", network()))


def test_weights_that_changed_since_the_fit_are_not_saved_as_those_fitted(tmp_path: Path) -> None:
    classifier = replace(toys().classifier, module=network())
    with torch.no_grad():
        next(classifier.module.parameters())[0] += 1
    with pytest.raises(ClassifierError, match="weights have changed since the detector was fitted"):
        replace(detector(), classifier=classifier).save(tmp_path / "mbf.bf")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Lets the system refuse to write more, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(guard_file: Path) -> None:
    content = guard_file.read_bytes()
    with files_no_longer_than(2000):
        message = refusal(lambda: guard().at_rate(0.2).save(guard_file))
    assert f"{guard_file}: it cannot be written" in message
    assert "check the folder, its permissions and space" in message
    assert guard_file.read_bytes() == content
    assert [path.name for path in guard_file.parent.iterdir()] == ["guard.bf"]


def test_a_folder_that_cannot_be_written_is_refused(guard_file: Path) -> None:
    for path in (guard_file / "guard.bf", guard_file.parent / "none" / "guard.bf", guard_file.parent / ("x" * 300)):
        assert "it cannot be written" in refusal(lambda path=path: guard().save(path))  # type: ignore[misc]


def test_a_process_that_dies_while_writing_leaves_the_old_file(guard_file: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(guard_file)], check=False)  # noqa: S603
    assert done.returncode == 9
    assert len(list(guard_file.parent.iterdir())) == 2
    assert bf.load_guard(guard_file, network()).threshold == guard().threshold


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for value in (float("nan"), {1, 2}):
        invalid = replace(detector(), summary={**detector().summary, "odd": value})
        assert "its manifest cannot be written as JSON" in refusal(lambda invalid=invalid: invalid.save(tmp_path / "a"))  # type: ignore[misc]
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_read_with_their_shapes_and_keys_as_texts(tmp_path: Path) -> None:
    arrays = {"scalar": np.array(3.0), "none": np.zeros((0, 4), np.float32), "turned": np.arange(6).reshape(2, 3).T}
    artifact.write(tmp_path / "a", "kind", 1, {"numbers": {2: "b", 10: "j"}}, arrays)
    manifest, loaded = artifact.read(tmp_path / "a", "kind", 1)
    assert manifest["numbers"] == {"2": "b", "10": "j"}
    assert {name: (a.shape, a.dtype) for name, a in loaded.items()} == {
        n: (a.shape, a.dtype) for n, a in arrays.items()
    }
    assert np.array_equal(loaded["turned"], arrays["turned"])


@pytest.mark.parametrize("package", ["data", "store", "detectors", "guard"])
def test_packages_that_write_files_use_no_pickle(package: str) -> None:
    words = ("import pickle", "torch.load(", "torch.save(", "allow_pickle=True", "joblib", "cloudpickle")
    sources = {path: path.read_text(encoding="utf-8") for path in Path(bf.__file__).parent.glob(f"{package}/**/*.py")}
    assert [path.name for path, source in sources.items() if any(word in source for word in words)] == []
    assert len(sources) > 3


def test_schemas_are_those_that_the_page_lists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guard.md").read_text(encoding="utf-8")
    for kind, schema in ((detectors.KIND, detectors.SCHEMA), (guards.KIND, guards.SCHEMA)):
        assert f"| `{kind}` | {schema} |" in page
