import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from benfourier.data import ArraySource, LabelledImages, UnreadableImage, batches, folder, open_source, read
from benfourier.data.folders import image_files
from benfourier.data.image_files import RESIZE_RULES, read_size, resize
from benfourier.data.open_source import image_credits
from benfourier.errors import ImageError, InputError, OptionError

PIXELS = np.random.default_rng(1).integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
FILES = ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png", "emu/a.png", "emu/b.png")


def pixels_of(images: LabelledImages) -> NDArray[np.uint8]:
    """Images as (N, H, W, C)."""
    return images.images.permute(0, 2, 3, 1).numpy()


def save(path: Path, pixels: NDArray[np.uint8], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def classed(tmp_path: Path) -> Path:
    """A folder with a sub-folder for each of three classes."""
    root = tmp_path / "animals"
    for file, pixels in zip(FILES, PIXELS, strict=True):
        save(root / file, pixels)
    return root


def tabled(root: Path, table: str, count: int = 3) -> Path:
    """A folder with 0.png, 1.png, ... and a labels.csv."""
    for place in range(count):
        save(root / f"{place}.png", PIXELS[place])
    (root / "labels.csv").write_text(table, encoding="utf-8")
    return root


def test_class_folders_give_their_images(classed: Path) -> None:
    source = folder(classed)
    assert source.name == "animals"
    assert source.ids == FILES
    assert source.classes == ("cat", "dog", "emu")
    assert source.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert source.labels.dtype == np.int64
    assert np.array_equal(source.pixels([5, 0]), PIXELS[[5, 0]])
    assert source.pixels([]).shape == (0, 5, 7, 3)


def test_ids_do_not_depend_on_where_the_folder_lies(classed: Path, tmp_path: Path) -> None:
    before = folder(classed)
    digest = before.digest
    moved = folder(classed.rename(tmp_path / "elsewhere"))
    assert moved.ids == before.ids
    assert moved.digest == digest


def test_other_files_beside_images_are_left_alone(classed: Path) -> None:
    for name in ("README.txt", "cat/Thumbs.db", "cat/.hidden.png", "dog/notes.md", ".cache/a.png", "cat/noending"):
        (classed / name).parent.mkdir(exist_ok=True)
        (classed / name).write_bytes(b"x")
    assert folder(classed).ids == FILES


def test_images_may_lie_deeper_and_endings_may_be_capitals(classed: Path) -> None:
    save(classed / "cat" / "more" / "c.JPG", PIXELS[0], format="PNG")
    assert "cat/more/c.JPG" in folder(classed).ids


def test_the_order_of_the_classes_can_be_given(classed: Path) -> None:
    source = folder(classed, classes=["emu", "bee", "dog", "cat"])
    assert source.labels.tolist() == [3, 3, 2, 2, 0, 0]
    with pytest.raises(InputError, match="label 'emu' is unknown; the classes are dog, cat"):
        folder(classed, classes=["dog", "cat"])


def test_grey_images_have_one_channel(classed: Path) -> None:
    expected = np.asarray(Image.fromarray(PIXELS[0]).convert("L"))
    assert np.array_equal(folder(classed, channels=1).pixels([0])[0, ..., 0], expected)


@pytest.mark.parametrize("layout", ["empty", "flat", "classes-without-images", "text-only"])
def test_folders_without_labelled_images_are_refused(tmp_path: Path, layout: str) -> None:
    if layout == "flat":
        save(tmp_path / "a.png", PIXELS[0])
    if layout in ("classes-without-images", "text-only"):
        (tmp_path / "cat").mkdir()
    if layout == "text-only":
        (tmp_path / "cat" / "a.txt").write_text("cat", encoding="utf-8")
    with pytest.raises(InputError, match=r"it holds neither labels\.csv nor class folders with images"):
        open_source(str(tmp_path))


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    save(tmp_path / "a.png", PIXELS[0])
    with pytest.raises(InputError, match="it is not a folder"):
        folder(tmp_path / "a.png")


def test_a_table_gives_labels_and_names(tmp_path: Path) -> None:
    table = "file,label,wnid,class_name\n2.png,3,n1,fox\n0.png,1,n2,owl\n1.png,3,n1,fox\n"
    source = folder(tabled(tmp_path, table))
    assert source.ids == ("2.png", "0.png", "1.png")
    assert source.labels.tolist() == [3, 1, 3]
    assert source.classes == ("0", "owl", "2", "fox")
    assert np.array_equal(source.pixels([0]), PIXELS[2:3])


@pytest.mark.parametrize(
    "table",
    [
        "filename,label\n0.png,b\n1.png,a\n",
        "image,label\n0.png,b\n1.png,a\n",
        "\ufefffile,label\r\n0.png,b\r\n1.png,a\r\n",
        "file, label\n0.png, b\n1.png , a\n",
        'label,note,path\nb,"one, two",0.png\na,,1.png\n',
        "file,label_text\n0.png,b\n1.png,a\n",
    ],
)
def test_tables_are_read_however_they_are_spelled(tmp_path: Path, table: str) -> None:
    source = folder(tabled(tmp_path, table))
    assert source.ids == ("0.png", "1.png")
    assert source.classes == ("a", "b")
    assert source.labels.tolist() == [1, 0]


def test_one_of_several_label_columns_must_be_named(tmp_path: Path) -> None:
    root = tabled(tmp_path / "birds", "file,label8,label1000,class_name\n0.png,0,13,junco\n1.png,1,129,spoonbill\n")
    assert open_source(f"{root}:label8").classes == ("junco", "spoonbill")
    assert open_source(f"{root}:label1000").labels.tolist() == [13, 129]
    with pytest.raises(OptionError, match=r"not clear; its columns are file, label8, .* as in birds:label8"):
        open_source(str(root))
    with pytest.raises(OptionError, match="column is 'label9'; its columns are"):
        open_source(f"{root}:label9")


def test_a_table_wins_over_sub_folders_and_names_files_in_them(classed: Path) -> None:
    (classed / "labels.csv").write_text("file,label\ndog\\a.png,0\n", encoding="utf-8")
    source = folder(classed)
    assert source.ids == ("dog/a.png",)
    assert np.array_equal(source.pixels([0]), PIXELS[2:3])


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("", "it lists no files"),
        ("file,label\n", "it lists no files"),
        ("picture,label\n0.png,1\n", "its columns are picture, label; one must be file or filename"),
        ("file,kind\n0.png,1\n", "the column of the labels is not clear; its columns are file, kind"),
        ("file,label\n0.png,\n", "line 2 has no label"),
        ("file,label\n0.png,1\n1.png\n", "line 3 has not as many words"),
        ("file,label\n0.png,1,2\n", "line 2 has not as many words"),
        ("file,label\n0.png,1\n0.png,2\n", "id '0.png' occurs twice"),
        ("file,label\n./0.png,1\n0.png,1\n", "id '0.png' occurs twice"),
        ("file,label\n../0.png,1\n", "line 2 names the file '../0.png'; it must lie in the table's folder"),
        ("file,label\n/etc/0.png,1\n", "line 2 names the file '/etc/0.png'"),
        ("file,label\nC:\\0.png,1\n", "line 2 names the file"),
        ("file,label\n,1\n", "line 2 names the file ''"),
        ("file,label,class_name\n0.png,1,owl\n1.png,1,fox\n", "label 1 is called 'owl' and 'fox'"),
        ('file,label\n"0.png,1\n', "it cannot be read as a table"),
    ],
)
def test_tables_that_do_not_fit_are_refused_with_the_line(tmp_path: Path, table: str, complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        folder(tabled(tmp_path, table))


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    tabled(tmp_path, "")
    (tmp_path / "labels.csv").write_bytes(b"file,label\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="it cannot be read as a table"):
        folder(tmp_path)


@pytest.mark.parametrize("label", ["-1", "1000000", "99999999999999999999999"])
def test_a_number_that_is_no_place_of_a_class_is_refused(label: str, tmp_path: Path) -> None:
    root = tabled(tmp_path, f"file,label\n0.png,0\n1.png,{label}\n2.png,1\n")
    with pytest.raises(InputError, match=f"line 3 has the label {label}; labels count classes from 0, 1,000,000 at"):
        folder(root)
    if len(label) < 19:
        with pytest.raises(InputError, match=f"label {label} is"):
            ArraySource("a", PIXELS[:2], np.array([0, int(label)]))


def test_a_table_cannot_name_its_own_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 3 names the file '\.'; it must lie in the table's folder"):
        folder(tabled(tmp_path, "file,label\n0.png,0\n.,1\n"))


def test_labels_outside_given_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="label 2 is unknown; there are 2 classes"):
        folder(tabled(tmp_path, "file,label\n0.png,2\n"), classes=["owl", "fox"])


def test_a_part_of_a_folder_without_a_table_is_refused(classed: Path) -> None:
    with pytest.raises(OptionError, match=r"part or column 'test' is named, but there is no labels\.csv; leave it out"):
        open_source(f"{classed}:test")
    with pytest.raises(OptionError, match=r"part or column 'label' is named, but there is no labels\.csv"):
        folder(classed, column="label")


def test_reading_goes_on_after_bad_files_and_lists_them(classed: Path) -> None:
    (classed / "cat" / "b.png").write_bytes(b"not an image")
    (classed / "dog" / "b.png").write_bytes((classed / "dog" / "a.png").read_bytes()[:60])
    Image.fromarray(PIXELS[4]).save(
        classed / "emu" / "a.png", save_all=True, append_images=[Image.fromarray(PIXELS[5])]
    )
    unreadable: list[UnreadableImage] = []
    images = read(folder(classed), None, unreadable)
    assert images.ids == ("cat/a.png", "dog/a.png", "emu/b.png")
    assert images.labels.tolist() == [0, 1, 2]
    assert np.array_equal(pixels_of(images), PIXELS[[0, 2, 5]])
    assert [image.file for image in unreadable] == ["cat/b.png", "dog/b.png", "emu/a.png"]
    assert str(unreadable[0]).startswith("cat/b.png: it is not an image")
    assert "frames" in unreadable[2].reason


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_batches_hold_the_same_images_whatever_their_size(classed: Path, size: int) -> None:
    (classed / "dog" / "a.png").write_bytes(b"")
    unreadable: list[UnreadableImage] = []
    parts = list(batches(folder(classed), [5, 2, 0, 1], unreadable, size=size))
    assert [name for batch in parts for name in batch.ids] == ["emu/b.png", "cat/a.png", "cat/b.png"]
    assert np.array_equal(np.concatenate([pixels_of(batch) for batch in parts]), PIXELS[[5, 0, 1]])
    assert all(0 < len(batch) <= size for batch in parts)
    assert [image.file for image in unreadable] == ["dog/a.png"]


def test_reading_without_a_list_ends_at_the_first_bad_file(classed: Path) -> None:
    (classed / "dog" / "a.png").write_bytes(b"")
    with pytest.raises(ImageError, match=re.escape(f"{classed / 'dog' / 'a.png'}: ")):
        read(folder(classed))


def test_listed_files_that_are_missing_are_refused_one_by_one(tmp_path: Path) -> None:
    source = folder(tabled(tmp_path, "file,label\n0.png,0\nnone.png,1\n1.png,1\n"))
    unreadable: list[UnreadableImage] = []
    read(source, None, unreadable)
    reason = "it cannot be opened (No such file or directory); check the name and the permissions"
    assert unreadable == [UnreadableImage("none.png", reason)]
    assert len(source.digest) == 64


def test_a_folder_of_which_nothing_can_be_read_is_refused(classed: Path) -> None:
    for file in FILES:
        (classed / file).write_bytes(b"")
    with pytest.raises(OptionError, match="none of its 6 files can be read"):
        read(folder(classed))
    with pytest.raises(ImageError, match=r"none of the 6 images asked for can be read; the first: cat/a\.png: "):
        read(folder(classed, size=5), None, [])


def test_array_sources_are_read_by_the_same_function() -> None:
    images = read(ArraySource("s", PIXELS, np.arange(6)), [3, 1])
    assert images.images.dtype == torch.uint8
    assert images.images.shape == (2, 3, 5, 7)
    assert np.array_equal(pixels_of(images), PIXELS[[3, 1]])
    assert images.ids == ("s/00003", "s/00001")


def test_mixed_sizes_are_found_before_anything_is_decoded(classed: Path) -> None:
    save(classed / "emu" / "c.png", PIXELS[0, :4])
    with pytest.raises(OptionError, match=r"its images have 2 sizes \(6 of 5×7, 1 of 4×7\); give size="):
        next(batches(folder(classed)))


def test_mixed_sizes_are_fitted_or_refused_by_name(classed: Path) -> None:
    save(classed / "emu" / "c.png", PIXELS[0, :4])
    unreadable: list[UnreadableImage] = []
    assert len(read(folder(classed, size=(5, 7)), None, unreadable)) == 6
    assert str(unreadable[0]).startswith("emu/c.png: the image is 4×7, not 5×7; resize it")
    stretched = pixels_of(read(folder(classed, size=(5, 7), resize="stretch")))
    assert np.array_equal(stretched[:6], PIXELS)
    expected = Image.fromarray(PIXELS[0, :4]).resize((7, 5), Image.Resampling.BILINEAR)
    assert np.array_equal(stretched[6], np.asarray(expected))
    cropped = read(open_source(str(classed), size=4, resize="shorter-side-crop"))
    assert cropped.images.shape == (7, 3, 4, 4)


def test_a_picture_that_has_the_size_is_never_resampled() -> None:
    picture = PIXELS[0]
    for rule in RESIZE_RULES:
        assert resize(picture, (5, 7), rule) is picture


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"resize": "crop"}, "resize is 'crop'; allowed: exact, shorter-side-crop, stretch"),
        ({"channels": 4}, "channels is 4; allowed: 1 for grey, 3 for colour"),
        ({"size": 0}, "size is 0; it must be a whole number"),
        ({"size": (5, 7, 3)}, "size is (5, 7, 3); it must be one whole number, or height and width"),
        ({"size": (5, 7.5)}, "size is 7.5"),
    ],
)
def test_options_outside_their_range_are_refused(classed: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=re.escape(complaint)):
        folder(classed, **options)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_the_stated_size_is_that_of_the_upright_picture(tmp_path: Path, orientation: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{ending}"
    save(path, PIXELS[0], exif=exif)
    assert read_size(path) == ((7, 5) if orientation in (6, 8) else (5, 7))


def test_the_digest_of_a_folder_changes_with_its_contents(classed: Path) -> None:
    digests = [folder(classed).digest, folder(classed, channels=1).digest, folder(classed, size=4).digest]
    assert folder(classed).digest == digests[0]
    (classed / "cat" / "a.png").rename(classed / "dog" / "c.png")
    digests.append(folder(classed).digest)
    save(classed / "dog" / "c.png", PIXELS[1])
    digests.append(folder(classed).digest)
    assert len(set(digests)) == 5


def test_each_image_has_its_own_credit(tmp_path: Path) -> None:
    root = tabled(
        tmp_path / "photos",
        "file,label,author\n0.png,0,O&#x27;Ann\n./1.png,1,{label} Bo\n2.png,1,Cāŗy\n",
    )
    credit = image_credits(f"{root}:label", "{author}, class {label}, CC BY")
    texts = [credit(name) for name in open_source(f"{root}:label").ids]
    assert texts == ["O'Ann, class 0, CC BY", "{label} Bo, class 1, CC BY", "Cāŗy, class 1, CC BY"]
    assert credit("of another source.png") == ""
    assert image_credits("digits", "by one and all")("7") == "by one and all"


def test_a_credit_whose_column_is_not_there_is_refused(tmp_path: Path) -> None:
    root = tabled(tmp_path / "photos", "file,label\n0.png,0\n1.png,1\n2.png,1\n")
    with pytest.raises(OptionError, match=r"but 'author' is no column of .*labels\.csv; allowed: file, label"):
        image_credits(str(root), "by {author}")
    with pytest.raises(OptionError, match=r"credit is 'by \{author\}', but digits has no labels\.csv with 'author'"):
        image_credits("digits", "by {author}")


def test_image_files_lists_images_in_order_and_leaves_out_hidden_and_other_files(classed: Path) -> None:
    (classed / "notes.txt").write_text("no image", encoding="utf-8")
    save(classed / ".hidden" / "a.png", PIXELS[0])
    save(classed / "cat" / ".b.png", PIXELS[0])
    assert image_files(classed) == [classed / name for name in FILES]
    assert image_files(str(classed / "none")) == []
