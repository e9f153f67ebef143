from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.examples import Examples
from benfourier.evaluation.studies.pictures import magnification, picture_jobs, to_pixels
from benfourier.evaluation.studies.study import DataPart, run_jobs
from benfourier.store.records import Picture

SHAPE = (3, 6, 5)


def classifier(bounds: tuple[float, float] = (0.0, 1.0)) -> bf.Classifier:
    """Says "dark" unless the pixel of row 2 and column 3 is redder than the middle."""
    head = nn.Linear(90, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[1, 2 * 5 + 3] = 1.0
        head.bias.copy_(torch.tensor([sum(bounds) / 2 + 0.05 * (bounds[1] - bounds[0]), 0.0]))
    return bf.Classifier(nn.Sequential(nn.Flatten(), head), bounds=bounds, classes=("dark", "red"), size=(6, 5))


def examples(clean: Tensor, changes: dict[str, float], name: str = "photo") -> Examples:
    attacked, success = {}, {}
    for attack, change in changes.items():
        attacked[attack] = clean.clone()
        attacked[attack][:, 0, 2, 3] += change
        success[attack] = torch.arange(len(clean)) != 0
    return Examples(
        clean=clean,
        noisy={"noisy": clean},
        adversarial=attacked,
        success=success,
        labels=torch.arange(len(clean)) % 2,
        ids=tuple(f"{name}-{row}" for row in range(len(clean))),
        noise_levels={"noisy": 0.0},
        counts=(("made", len(clean)),),
        seed=0,
    )


def study(
    folder: Path,
    data_parts: list[DataPart] | None = None,
    known: Collection[str] = (),
    network: bf.Classifier | None = None,
    **options: Any,
) -> list[Picture]:
    usual = [DataPart("wall", "test", examples(torch.full((4, *SHAPE), 0.5), {"bim": 0.1, "deepfool": 0.25}))]
    jobs = picture_jobs(network or classifier(), data_parts or usual, folder, **options)
    records = run_jobs(jobs, "pictures", known=known, show_progress=False)
    return [record for record in records if isinstance(record, Picture)]


def pixels(folder: Path, name: str) -> np.ndarray:
    with Image.open(folder.parent / name) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def test_a_known_perturbation_is_magnified_at_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    picture = study(folder, each=1, credit=lambda name: f"by the author of {name}")[0]
    clean, attacked, added = (pixels(folder, name) for name in picture.files)
    assert (picture.attack, picture.source, picture.credit) == ("bim", "wall", f"by the author of {picture.id}")
    assert (picture.label, picture.adversarial_label) == ("dark", "red")
    assert picture.l2 == pytest.approx(0.1, abs=1e-6)
    assert picture.magnification == 5.0
    assert (clean == 128).all()
    grey = np.full((6, 5, 3), 128)
    moved, shown = grey.copy(), grey.copy()
    moved[2, 3, 0], shown[2, 3, 0] = 153, 255
    assert np.array_equal(attacked, moved)
    assert np.array_equal(added, shown)


def test_bounds_other_than_zero_and_one_are_shown_in_full_range(tmp_path: Path) -> None:
    toy_examples = examples(torch.zeros(3, *SHAPE), {"bim": -0.5})
    folder = tmp_path / "pictures"
    (picture,) = study(folder, [DataPart("wall", "test", toy_examples)], network=classifier((-1, 1)), each=1)
    clean, attacked, added = (pixels(folder, name) for name in picture.files)
    assert picture.magnification == 2.0
    assert (clean[2, 3, 0], attacked[2, 3, 0], added[2, 3, 0]) == (128, 64, 0)


def test_attacks_are_shown_on_the_same_few_sources_where_they_succeeded(tmp_path: Path) -> None:
    pictures = study(tmp_path / "pictures", each=2)
    assert [picture.attack for picture in pictures] == ["bim", "bim", "deepfool", "deepfool"]
    assert [picture.id for picture in pictures[:2]] == [picture.id for picture in pictures[2:]]
    assert "photo-0" not in {picture.id for picture in pictures}
    assert pictures[0].files[0] == pictures[2].files[0]


def test_the_test_part_is_shown_if_a_source_has_several_parts(tmp_path: Path) -> None:
    grey = torch.full((3, *SHAPE), 0.5)
    data_parts = [
        DataPart("wall", "train", examples(grey, {"bim": 0.1}, "train")),
        DataPart("wall", "test", examples(grey, {"bim": 0.1}, "test")),
        DataPart("street", "out-of-sample", examples(grey, {"bim": 0.1}, "street")),
    ]
    pictures = study(tmp_path / "pictures", data_parts, each=1)
    shown = {(picture.source, picture.id.split("-")[0]) for picture in pictures}
    assert shown == {("wall", "test"), ("street", "street")}


def test_files_that_are_there_are_left_alone_and_known_records_are_not_yielded_again(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    first = study(folder, each=1)
    difference_file = folder.parent / first[0].files[2]
    difference_file.write_bytes(b"as it was")
    (folder.parent / first[0].files[1]).unlink()
    assert study(folder, each=1) == first
    assert difference_file.read_bytes() == b"as it was"
    assert (folder.parent / first[0].files[1]).is_file()
    assert study(folder, each=1, known={first[0].key}) == first[1:]


def test_large_images_become_small_and_small_ones_stay() -> None:
    assert to_pixels(torch.rand(1, 300, 200)).shape == (160, 107)
    assert to_pixels(torch.rand(3, 28, 30)).shape == (28, 30, 3)
    assert to_pixels(torch.rand(5, 8, 9)).shape == (8, 9)


def test_a_perturbation_is_magnified_as_far_as_it_goes_in_two_digits() -> None:
    assert magnification(torch.tensor([0.01, -0.03])) == 16.0
    assert magnification(torch.tensor([1.0])) == 0.5
    assert magnification(torch.tensor([0.0])) == 1.0


def test_labels_are_numbers_without_class_names(tmp_path: Path) -> None:
    bare = bf.Classifier(classifier().module, size=(6, 5), channels=3)
    toy_examples = examples(torch.full((3, *SHAPE), 0.5), {"bim": 0.1})
    (picture,) = study(tmp_path, [DataPart("wall", "test", toy_examples)], network=bare, each=1)
    assert (picture.label, picture.adversarial_label) == ("0", "1")
