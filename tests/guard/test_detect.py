"""Verdicts on many images: one row per id, whatever the source, the executor and the number of starts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor

import benfourier as bf
from benfourier.errors import InputError, StoreError
from benfourier.models.weights import save_weights
from tests.cli.calling import call
from tests.detectors.guarded import guard
from tests.detectors.toys import toys

ROOT = Path(__file__).parents[2]
COLUMNS = ["id", "accepted", "reason", "label", "name", "score", "threshold", "p_value", "error"]


def images() -> Tensor:
    """100 clean digits, 8×8, and 20 attacked ones."""
    return torch.cat([toys().clean.images[:100], toys().tested.adversarial["bim"][:20]])


def png(image: Tensor) -> bytes:
    return bf.encode_png(image, guard().classifier)


def folder(path: Path, pictures: Tensor) -> Path:
    """A folder of image files, in two folders."""
    for place, image in enumerate(pictures):
        file = path / ("even" if place % 2 == 0 else "odd") / f"{place:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(image))
    return path


def table(path: Path, columns: dict[str, Any], group: int = 32) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """The rows of all files by id, of which none may occur twice."""
    entries = pq.read_table(out).to_pylist()
    by_id = {entry["id"]: entry for entry in entries}
    assert len(by_id) == len(entries)
    return by_id


def detect(source: str | Path, out: Path, **options: Any) -> bf.Detection:
    return bf.detect(guard(), source, out, **{"chunk": 16, "show_progress": False, **options})


def test_every_image_of_a_folder_has_the_row_of_its_verdict(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images())
    result = detect(source, tmp_path / "out")
    files = sorted(source.rglob("*.png"))
    verdicts = guard().check(bf.load_images(files, guard().classifier))
    by_id = rows(tmp_path / "out")
    assert list(by_id[min(by_id)]) == COLUMNS
    assert sorted(by_id) == [file.relative_to(source).as_posix() for file in files]
    expected = dict(zip(sorted(by_id), verdicts, strict=True))
    for name, row in by_id.items():
        verdict = expected[name]
        assert (row["accepted"], row["reason"], row["label"]) == (verdict.accepted, verdict.reason, verdict.label)
        assert row["score"] == pytest.approx(verdict.score, abs=1e-3)
    rejected = int((~verdicts.accepted).sum())
    assert rejected > 5
    counts = (result.images, result.new, result.rejected, result.unreadable, result.duplicates, result.failures)
    assert counts == (120, 120, rejected, 0, 0, ())
    assert len(list((tmp_path / "out").iterdir())) == 8  # of 16 images at most, and nothing else


def test_only_images_without_a_row_are_judged_at_the_next_start(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images()[:40])
    detect(source, tmp_path / "out")
    before = rows(tmp_path / "out")
    folder(source, images()[:50])
    result = detect(source, tmp_path / "out")
    assert (result.images, result.new) == (50, 10)
    assert before.items() <= rows(tmp_path / "out").items()
    assert detect(source, tmp_path / "out").new == 0
    assert detect(f"{source}/even/*.png", tmp_path / "other").new == 25


@pytest.mark.parametrize("form", ["bytes", "as Hugging Face writes them"])
def test_images_in_a_parquet_file_are_those_of_its_ids_or_rows(tmp_path: Path, form: str) -> None:
    content: list[Any] = [png(image) for image in images()]
    if form != "bytes":
        content = [{"bytes": each, "path": None} for each in content]
    names = [f"name {place}" for place in range(120)]
    detect(table(tmp_path / "named.parquet", {"id": names, "image": content}), tmp_path / "named")
    detect(table(tmp_path / "plain.parquet", {"image": content}), tmp_path / "plain")
    folder(tmp_path / "all", images())
    detect(tmp_path / "all", tmp_path / "files")
    by_name, by_row, files = (rows(tmp_path / each) for each in ("named", "plain", "files"))
    for place, name in enumerate(names):
        file = files[f"{'even' if place % 2 == 0 else 'odd'}/{place:03d}.png"]
        for row in (by_name[name], by_row[f"plain.parquet:{place}"]):
            assert row["score"] == pytest.approx(file["score"], abs=1e-3)
    assert len(by_row) == 120


def test_of_images_with_one_id_the_first_is_judged(tmp_path: Path) -> None:
    content, names = [png(image) for image in images()[:60]], [str(place % 50) for place in range(60)]
    result = detect(table(tmp_path / "a.parquet", {"id": names, "image": content}, group=7), tmp_path / "out")
    assert (result.images, result.duplicates) == (50, 10)
    expected = guard().check(images()[:50].mul(255).round().div(255))
    by_id = rows(tmp_path / "out")
    assert [by_id[str(place)]["score"] for place in range(50)] == pytest.approx(expected.score.tolist(), abs=1e-3)


def test_images_that_cannot_be_read_have_a_row_that_says_why_and_are_not_accepted(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images()[:10])
    (source / "text.png").write_bytes(b"no image")
    (source / "half.png").write_bytes(png(images()[0])[:40])
    (source / ".hidden.png").write_bytes(b"no image")
    large = BytesIO()
    Image.new("L", (9, 9)).save(large, "PNG")
    (source / "large.png").write_bytes(large.getvalue())
    (source / "gone.png").symlink_to(tmp_path / "nowhere.png")
    table(source / "more.parquet", {"image": [png(images()[0]), None]})
    result = detect(source, tmp_path / "out")
    bad = {name: row for name, row in rows(tmp_path / "out").items() if row["reason"] == "unreadable"}
    assert sorted(bad) == ["gone.png", "half.png", "large.png", "more.parquet:1", "text.png"]
    assert {row["accepted"] for row in bad.values()} == {False}
    assert "the image is 9×9, not 8×8" in bad["large.png"]["error"]
    assert (result.images, result.unreadable) == (16, 5)
    assert sorted(image.file for image in result.first_unreadable) == sorted(bad)


def test_processes_write_what_one_process_writes(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images()[:60])
    detect(source, tmp_path / "one")
    assert detect(source, tmp_path / "two", executor=bf.LocalPool(2)).failures == ()
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert one.keys() == two.keys()
    assert all(one[name]["score"] == pytest.approx(two[name]["score"], abs=1e-3) for name in one)


def test_a_folder_with_verdicts_of_another_guard_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images()[:4])
    detect(source, tmp_path / "out")
    with pytest.raises(StoreError, match="another guard has written it; give another folder"):
        bf.detect(guard().at_rate(0.2), source, tmp_path / "out")
    (part,) = (tmp_path / "out").iterdir()
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(StoreError, match="it is damaged"):
        detect(source, tmp_path / "out")


def test_a_source_without_images_is_refused(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "none", tmp_path / "*.png", "noway://images"):
        with pytest.raises(InputError, match=r"there are no images|cannot be opened"):
            detect(source, tmp_path / "out")
    with pytest.raises(InputError, match="its columns are picture; images must be in a column 'image'"):
        detect(table(tmp_path / "a.parquet", {"picture": [b""]}), tmp_path / "out")
    (tmp_path / "b.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match="this is no Parquet file"):
        detect(tmp_path / "b.parquet", tmp_path / "out")


def command(source: Path, out: Path, *words: str) -> list[str]:
    """The verb, as another process runs it; the guard and the weights lie beside the source."""
    save_weights(toys().classifier.module, source.parent / "w.safetensors")
    guard().save(source.parent / "guard.bf")
    network = ["--model", "tests.attacks.trained:network", "--weights", str(source.parent / "w.safetensors")]
    return ["detect", str(source.parent / "guard.bf"), str(source), *network, "--out", str(out), *words]


def kill_after_first_file(words: Sequence[str], out: Path) -> None:
    """Runs a verb until its first file is there, and kills it."""
    program = [sys.executable, "-c", "from benfourier.cli.main import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with subprocess.Popen(program, env=environment, start_new_session=True) as process:  # noqa: S603
        until = time.monotonic() + 300
        while not list(out.glob("part-*")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_verb_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder(tmp_path / "all", images())
    (source / "text.png").write_bytes(b"no image")
    words = command(source, tmp_path / "out", "--chunk", "4", "--batch", "2")
    kill_after_first_file(words, tmp_path / "out")
    done = len(rows(tmp_path / "out"))
    result = call(capsys, *words, "--json")
    assert result.code == 1  # some are rejected
    assert (result.json["images"], result.json["new"]) == (121, 121 - done)
    assert 0 < done < 121
    assert result.json["first_unreadable"][0]["file"] == "text.png"
    assert len(rows(tmp_path / "out")) == 121
    again = call(capsys, *words)
    assert "121 images" in again.out
    assert "looked at 0 now" in again.out


def test_options_for_many_images_need_a_folder_and_one_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "all", images()[:1])
    words = command(source, tmp_path / "out")
    for more, problem in (
        ((str(source),), "there are 2 sources; with --out give one"),
        (("--address", "here:1"), "address is 'here:1', but the executor is local; add --executor ray"),
        (("--executor", "dask"), "executor is 'dask'; allowed: local, ray"),
        (("--executor", "ray", "--workers", "2"), "workers is 2, but Ray has as many as its cluster"),
    ):
        result = call(capsys, *words, *more)
        assert (result.code, problem in result.err) == (2, True), result.err
    result = call(capsys, *words[: words.index("--out")], "--workers", "2")
    assert (result.code, "name a folder for verdicts with --out" in result.err) == (2, True)


def test_without_pyarrow_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    source = folder(tmp_path / "all", images()[:1])
    code = "import sys; sys.modules['pyarrow'] = None; from benfourier.cli.main import main; main()"
    program = [sys.executable, "-c", code, *command(source, tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, "pip install 'benfourier[parquet]'" in done.stderr) == (3, True), done.stderr
