"""Verdicts on many images, from files or a store to Parquet: by image id, resumable, in bounded memory."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from io import BytesIO
from itertools import islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
from torch import Tensor

from benfourier import progress
from benfourier.data.folders import SUFFIXES
from benfourier.data.images import UnreadableImage
from benfourier.errors import (
    ActivationError,
    ClassifierError,
    ImageError,
    InputError,
    StoreError,
    check_whole,
    optional_import,
)
from benfourier.executors import Executor, Serial, TaskFailure
from benfourier.guard.guard import Guard
from benfourier.guard.verdicts import Verdict
from benfourier.models.images import load_images
from benfourier.store.artifact import digest_of, inspect

ID, IMAGE = "id", "image"  # columns of a Parquet file of images
TABLE = ".parquet"
PREFIX = "part-"  # beginning of the names of files that are written
KEY = b"benfourier.guard"  # metadata of such a file: the digest of the guard
UNREADABLE = "unreadable"  # in the column `reason`
LISTED = 20  # images that could not be read, of those that are reported by name
# columns that are written, with their types; null for an image that could not be read but for the first three
COLUMNS = {  # names in pyarrow
    **{ID: "string", "accepted": "bool_", "reason": "string", "label": "int64", "name": "string"},
    **{"score": "float64", "threshold": "float64", "p_value": "float64", "error": "string"},
}


@dataclass(frozen=True)
class Detection:
    """What `detect` has written."""

    out: str
    images: int  # in all files of the folder
    rejected: int  # of them, as adversarial or unfamiliar
    unreadable: int  # of them
    new: int  # images that this call looked at
    duplicates: int  # entries of the source whose id came before; they were left out
    first_unreadable: tuple[UnreadableImage, ...]  # of this call; the column `error` names all
    failures: tuple[str, ...]  # why some images are not in the files yet; the same call tries them again


@dataclass(frozen=True)
class Part:
    """Images that are judged together; their verdicts become one file."""

    ids: tuple[str, ...]
    place: str  # folder of the image files, whose paths below it are their ids; or a Parquet file
    groups: tuple[int, ...] = ()  # row groups of the Parquet file that hold the images; none for image files
    rows: tuple[int, ...] = ()  # of the images, counted from the beginning of these groups


@dataclass(frozen=True)
class PartResult:
    """What became of the images of a part."""

    rejected: int
    unreadable: tuple[UnreadableImage, ...]  # the first ones


@dataclass(frozen=True, eq=False)
class DetectJob:
    """What all parts have in common; it is its own shared value."""

    guard: Guard
    files: Any  # fsspec file system of the source
    store: Any  # that of the results
    out: str
    batch: int
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _guard_digest(self.guard))

    @property
    def folder(self) -> str:
        """Where the results are written, as fsspec opens it."""
        return str(self.store.unstrip_protocol(self.out))

    def load(self) -> "DetectJob":
        """Returns itself."""
        return self


def detect(
    guard: Guard,
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    executor: Executor | None = None,
    batch: int = 16,
    chunk: int = 1024,
    show_progress: bool | None = None,
) -> Detection:
    """Judges all images of a source and writes one row per image to Parquet files in a folder.

    An image whose id is in the folder is not judged again, so that the same call goes on after an interruption. Images
    that cannot be read have a row with the reason "unreadable", and are not accepted. The columns are id, accepted,
    reason, label, name, score, threshold, p_value and error.

    Args:
        guard: what judges.
        source: a folder, a pattern such as "photos/**/*.png", a file, or any of these on a file system of fsspec, such
            as "s3://bucket/photos". Parquet files hold images as the bytes of image files, in a column `image`, or as
            Hugging Face datasets write them; a column `id` names them, otherwise the file and the row do. The id of an
            image file is its path below the folder, or below the part of the pattern that is fixed.
        out: folder that the files are written to, also one of fsspec; all processes must reach it.
        executor: where images are judged; by default in this process.
        batch: images at once.
        chunk: images per file; a row group of a larger Parquet file stays whole.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    check_whole("batch", batch)
    check_whole("chunk", chunk)
    _parquet()
    files, path = _file_system(source)
    store, folder = _file_system(out)
    job = DetectJob(guard, files, store, folder, batch)
    try:
        store.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out}: this folder cannot be made ({error}); give another one") from error
    known = {name for names, _ in _results(job) for name in names}
    parts, count, duplicates = _select(_parts(files, path, chunk), known)
    if not count:
        raise InputError(f"{source}: there are no images; give a folder, a pattern, image files or Parquet files")
    unreadable, failures = list[UnreadableImage](), list[str]()
    with progress.bar(sum(len(part.ids) for part in parts), "checked", show=show_progress) as advance:
        for part, result in (executor or Serial()).run(judge_part, job, parts):
            if isinstance(result, TaskFailure):
                failures.append(f"{len(part.ids)} images from {part.ids[0]} on: {result.error}")
            else:
                unreadable += result.unreadable[: LISTED - len(unreadable)]
            advance(len(part.ids))
    reasons = Counter(reason for _, column in _results(job) for reason in column)
    return Detection(
        out=str(out),
        images=reasons.total(),
        rejected=reasons.total() - reasons[""] - reasons[UNREADABLE],
        unreadable=reasons[UNREADABLE],
        new=sum(len(part.ids) for part in parts),
        duplicates=duplicates,
        first_unreadable=tuple(unreadable),
        failures=tuple(failures),
    )


def judge_part(job: DetectJob, part: Part) -> PartResult:
    """Judges the images of a part and writes their rows, as a whole or not at all."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    rejected, unreadable = 0, list[UnreadableImage]()
    images = _images(job, part)
    while batch := list(islice(images, job.batch)):
        for name, result in _judge(job.guard, batch, job.batch):
            for column, value in _row(name, result).items():
                columns[column].append(value)
            if isinstance(result, str):
                unreadable.append(UnreadableImage(name, result))
            else:
                rejected += not result.accepted
    _write(job, f"{PREFIX}{digest_of(part.ids)[:24]}{TABLE}", columns)
    return PartResult(rejected, tuple(unreadable[:LISTED]))


def _judge(guard: Guard, batch: Sequence[tuple[str, Tensor | str]], size: int) -> Iterator[tuple[str, Verdict | str]]:
    """Yields ids with a verdict, or why there is none; an image without a finite score does not stop the others."""
    good = [(name, image) for name, image in batch if isinstance(image, Tensor)]
    yield from ((name, image) for name, image in batch if isinstance(image, str))
    if not good:
        return
    try:
        verdicts = guard.judge([image for _, image in good], batch=size)
    except ActivationError as error:
        if len(good) == 1:
            yield good[0][0], str(error)
        else:
            for each in good:
                yield from _judge(guard, [each], size)
        return
    yield from zip((name for name, _ in good), verdicts, strict=True)


def _row(name: str, result: Verdict | str) -> dict[str, Any]:
    if isinstance(result, str):
        return {**dict.fromkeys(COLUMNS), ID: name, "accepted": False, "reason": UNREADABLE, "error": result}
    verdict = {column: getattr(result, column) for column in COLUMNS if column not in (ID, "error")}
    return {ID: name, **verdict, "reason": str(result.reason), "error": None}


def _images(job: DetectJob, part: Part) -> Iterator[tuple[str, Tensor | str]]:
    """Yields ids with images as the classifier takes them, or why one cannot be read."""
    classifier = job.guard.classifier
    for name, content in _rows_of(job.files, part) if part.groups else _contents(job.files, part):
        try:
            if not isinstance(content, bytes):
                raise ImageError(content or "it is empty")
            (image,) = load_images(content, classifier)
            classifier.layer_list(tuple(image.shape))  # a size that the network cannot run on
        except (ClassifierError, ImageError) as error:
            yield name, str(error).removeprefix("the image: ")
        else:
            yield name, image


def _contents(files: Any, part: Part) -> Iterator[tuple[str, bytes | str]]:
    """Yields the content of image files, or why one cannot be read; a store that fails is an error of the part."""
    if not files.isdir(part.place):  # not bad images, but a process that does not see them
        raise InputError(f"{part.place}: there is no such folder here; put images where all processes can read them")
    for name in part.ids:
        try:
            yield name, files.cat_file(f"{part.place}/{name}")
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            yield name, f"it cannot be opened ({error.strerror or error}); check the name and the permissions"


def _rows_of(files: Any, part: Part) -> Iterator[tuple[str, bytes | None]]:
    """Yields the content of images in a Parquet file, which is read in small batches."""
    names, first = dict(zip(part.rows, part.ids, strict=True)), 0
    with files.open(part.place, "rb") as file:
        table = _parquet().ParquetFile(file, pre_buffer=False, buffer_size=2**20)  # pages, not whole columns
        for batch in table.iter_batches(16, row_groups=list(part.groups), columns=[IMAGE]):
            for row, image in enumerate(batch.column(0), start=first):
                if row in names:
                    value = image.as_py()
                    yield names[row], value.get("bytes") if isinstance(value, dict) else value
            first += len(batch)


def _parts(files: Any, path: str, chunk: int) -> Iterator[Part]:
    """Yields the images of a source in parts, image files first; nothing but names and ids is read."""
    base, paths = _paths(files, path)
    tables = [each for each in paths if each.lower().endswith(TABLE)]
    images = (each.removeprefix(f"{base}/") for each in paths if each.lower().endswith(SUFFIXES))
    while names := tuple(islice(images, chunk)):
        yield Part(names, base)
    for table in tables:
        yield from _table_parts(files, table, table.removeprefix(f"{base}/"), chunk)


def _paths(files: Any, path: str) -> tuple[str, list[str]]:
    """The folder that ids start from, and the files of a source in order of name, hidden ones left out."""
    if files.isdir(path):
        base, matches = path.rstrip("/"), [path]
    elif has_magic(path):
        words = path.split("/")
        base = "/".join(words[: next(place for place, word in enumerate(words) if has_magic(word))])
        matches = files.glob(path)
    else:
        base, matches = path.rpartition("/")[0], [path]
    paths = {file for match in matches for file in _files_below(files, match)}
    return base, sorted(each for each in paths if "/." not in each.removeprefix(base))


def _files_below(files: Any, path: str) -> Iterator[str]:
    """Yields a file, or the files in a folder; folder by folder, since fsspec has a kilobyte for each that it lists."""
    if files.isfile(path):
        yield path
    for folder, _, names in files.walk(path):
        yield from (f"{folder.rstrip('/')}/{name}" for name in names)


def _table_parts(files: Any, path: str, name: str, chunk: int) -> Iterator[Part]:
    """Yields the images of a Parquet file in parts of whole row groups, so that none is read twice."""
    parquet = _parquet()
    with files.open(path, "rb") as file:
        try:
            table = parquet.ParquetFile(file)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these
            raise InputError(f"{path}: this is no Parquet file ({error})") from error
        columns = table.schema_arrow.names
        if IMAGE not in columns:
            raise InputError(f"{path}: its columns are {', '.join(columns)}; images must be in a column {IMAGE!r}")
        ids, groups, row = list[str](), list[int](), 0
        for group in range(table.num_row_groups):
            count = table.metadata.row_group(group).num_rows
            if groups and len(ids) + count > chunk:
                yield Part(tuple(ids), path, tuple(groups), tuple(range(len(ids))))
                ids, groups = [], []
            own = table.read_row_group(group, [ID]).column(0).to_pylist() if ID in columns else [None] * count
            ids += [f"{name}:{place}" if each is None else str(each) for place, each in enumerate(own, start=row)]
            groups.append(group)
            row += count
        if groups:
            yield Part(tuple(ids), path, tuple(groups), tuple(range(len(ids))))


def _select(parts: Iterable[Part], known: set[str]) -> tuple[list[Part], int, int]:
    """Parts without images that have a row already or whose id came before; numbers of all ids and of repeated ones."""
    selected, seen, total = list[Part](), set[str](), 0
    for part in parts:
        new = list[int]()
        for place, name in enumerate(part.ids):
            if name not in seen and name not in known:
                new.append(place)
            seen.add(name)
        total += len(part.ids)
        if new:
            rows = tuple(part.rows[place] for place in new) if part.groups else ()
            selected.append(Part(tuple(part.ids[place] for place in new), part.place, part.groups, rows))
    return selected, len(seen), total - len(seen)


def _write(job: DetectJob, name: str, columns: dict[str, list[Any]]) -> None:
    """Writes a file under another name and moves it: readers never see half of one."""
    arrow = _arrow()
    fields = [(column, getattr(arrow, kind)()) for column, kind in COLUMNS.items()]
    schema = arrow.schema(fields, metadata={KEY: job.digest})
    content = BytesIO()
    _parquet().write_table(arrow.table(columns, schema=schema), content)
    temporary = f"{job.out}/.{name}"
    job.store.pipe_file(temporary, content.getvalue())
    job.store.mv(temporary, f"{job.out}/{name}")


def _results(job: DetectJob) -> Iterator[tuple[list[str], list[str]]]:
    """Yields ids and reasons of every file in the folder, or raises StoreError if another guard has written one."""
    job.store.invalidate_cache()  # other processes have written files
    for path in sorted(job.store.ls(job.out, detail=False)):
        if not path.rpartition("/")[2].startswith(PREFIX):
            continue
        with job.store.open(path, "rb") as file:
            try:
                table = _parquet().read_table(file, columns=[ID, "reason"])
            except (OSError, ValueError) as error:
                advice = "remove it, and its images are judged again"
                raise StoreError(f"{path}: it is damaged ({error}); {advice}") from error
        if (table.schema.metadata or {}).get(KEY) != job.digest.encode():
            raise StoreError(f"{path}: another guard has written it; give another folder")
        yield table.column(ID).to_pylist(), table.column("reason").to_pylist()


def _guard_digest(guard: Guard) -> str:
    """A digest of what decides the verdicts."""
    with TemporaryDirectory() as folder:
        guard.save(Path(folder, "guard.bf"))
        manifest = inspect(Path(folder, "guard.bf")).manifest
    parts = [manifest[name] for name in ("method", "options", "classifier", "threshold")]
    return digest_of([manifest["digests"]["arrays"], json.dumps(parts, sort_keys=True)])


def _file_system(path: str | PathLike[str]) -> tuple[Any, str]:
    """The file system of a path or address, and the path on it."""
    try:
        return fsspec.url_to_fs(str(path))  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise InputError(f"{path}: it cannot be opened ({error})") from error


def _arrow() -> Any:
    with optional_import("verdicts are written by pyarrow", "parquet"):
        import pyarrow
    return pyarrow


def _parquet() -> Any:
    with optional_import("verdicts are written by pyarrow", "parquet"):
        import pyarrow.parquet
    return pyarrow.parquet
