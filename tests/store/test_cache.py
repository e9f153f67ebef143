"""What a cache keeps, whatever becomes of its files and of the processes that share it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benfourier.errors import StoreError
from benfourier.store.artifact import Arrays, digest_of
from benfourier.store.cache import OLD, Cache, fetch, open_cache

KEY = digest_of(["a key"])
ARRAYS: Arrays = {"images": np.arange(12, dtype=np.float32).reshape(3, 4), "l2": np.array([1.5, np.inf])}
# writes ten keys over and over, each with content that only the key decides
WRITER = """
import sys
import numpy as np
from benfourier.store.cache import open_cache
from benfourier.store.artifact import digest_of
cache = open_cache(sys.argv[1])
for turn in range(int(sys.argv[2])):
    key = digest_of([str(turn % 10)])
    cache.put(key, {"numbers": np.full(50_000, turn % 10)})
"""


def opened(folder: Path) -> Cache:
    cache = open_cache(folder)
    assert cache is not None
    return cache


def same(one: Arrays | None, other: Arrays) -> bool:
    return one is not None and one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in other)


def whole(cache: Cache) -> list[bool]:
    """For every file that is visible, whether it holds what the writer meant."""
    expected = {digest_of([str(n)]): {"numbers": np.full(50_000, n)} for n in range(10)}
    return [same(cache.get(path.stem), expected[path.stem]) for path in cache.folder.glob("??/*.safetensors")]


def start(folder: Path, turns: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(turns)])  # noqa: S603


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, ARRAYS)
    assert same(cache.get(KEY), ARRAYS)


def test_a_value_is_computed_once_only(tmp_path: Path) -> None:
    cache, calls = opened(tmp_path), []

    def make() -> Arrays:
        calls.append(1)
        return ARRAYS

    assert [fetch(cache, KEY, make)[1] for _ in range(3)] == [False, True, True]
    assert len(calls) == 1
    assert [fetch(None, KEY, make)[1] for _ in range(2)] == [False, False]
    assert len(calls) == 3


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_file_that_is_cut_short_is_made_again(tmp_path: Path, length: int) -> None:
    cache = opened(tmp_path)
    cache.put(KEY, ARRAYS)
    cache.path(KEY).write_bytes(cache.path(KEY).read_bytes()[:length])
    assert cache.get(KEY) is None
    arrays, known = fetch(cache, KEY, lambda: ARRAYS)
    assert same(arrays, ARRAYS)
    assert not known
    assert same(cache.get(KEY), ARRAYS)


def test_a_file_with_one_wrong_bit_is_not_used(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    cache.put(KEY, ARRAYS)
    content = bytearray(cache.path(KEY).read_bytes())
    content[-3] ^= 1
    cache.path(KEY).write_bytes(content)
    assert cache.get(KEY) is None


def test_a_file_under_another_key_is_not_used(tmp_path: Path) -> None:
    cache, other = opened(tmp_path), digest_of(["another key"])
    cache.put(KEY, ARRAYS)
    cache.path(other).parent.mkdir(exist_ok=True)
    cache.path(KEY).rename(cache.path(other))
    assert cache.get(other) is None


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    for cache in (one, other):
        cache.put(KEY, ARRAYS)
    assert one.path(KEY).read_bytes() == other.path(KEY).read_bytes()


def test_the_default_folder_is_the_one_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_cache(True) == Cache(tmp_path / "own")
    monkeypatch.setenv("BENFOURIER_CACHE", "")
    assert open_cache(True) == Cache(tmp_path / "shared" / "benfourier")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert open_cache(True) == Cache(tmp_path / "home" / ".cache" / "benfourier")


def test_without_a_home_folder_another_is_asked_for() -> None:
    with pytest.raises(StoreError, match=r"Could not determine home directory.*; give another folder, set BENFOURIER"):
        open_cache("~nobody-of-this-name/cache")


def test_the_folder_is_made_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "some" / "where"))
    cache = open_cache(True)
    assert cache == Cache(tmp_path / "some" / "where")
    assert cache.folder.is_dir()
    assert open_cache(False) is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match=r"file.*: the cache cannot be written there .*set BENFOURIER_CACHE"):
            open_cache(folder)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that not even the administrator can write")
def test_a_folder_that_takes_no_files_is_named() -> None:
    with pytest.raises(StoreError, match="the cache cannot be written there"):
        open_cache("/proc/self")


def test_a_folder_that_is_gone_is_an_empty_cache_and_says_what_to_do_when_it_is_written_to(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    assert cache is not None
    cache.folder.rmdir()
    cache.folder.write_text("no folder any more")
    assert cache.get("ab") is None
    with pytest.raises(StoreError, match=r"this folder cannot be made .*give another folder, set BENFOURIER_CACHE"):
        cache.put("ab", {})


def test_what_killed_runs_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    cache.put(KEY, ARRAYS)
    left, fresh = (cache.path(KEY).with_name(f".{KEY}.safetensors.{n}") for n in ("0123abcd", "89abcdef"))
    for path in (left, fresh):
        path.write_bytes(b"half a fi")
    os.utime(cache.path(KEY), (0, 0))
    os.utime(left, (time.time() - 2 * OLD,) * 2)
    opened(tmp_path)
    assert not left.exists()
    assert fresh.exists()
    assert same(cache.get(KEY), ARRAYS)


def test_a_killed_writer_leaves_only_whole_files(tmp_path: Path) -> None:
    for turn in range(3):
        cache = opened(tmp_path / str(turn))
        writer = start(cache.folder, 10**6)
        deadline = time.monotonic() + 60
        while len(list(cache.folder.glob("??/*.safetensors"))) < 1 + 4 * turn:
            assert writer.poll() is None
            assert time.monotonic() < deadline
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        seen = whole(cache)
        assert len(seen) > 4 * turn
        assert all(seen)


def test_two_writers_at_once_leave_whole_files(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    writers = [start(tmp_path, 100) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert whole(cache) == [True] * 10
    assert list(tmp_path.glob("??/.*")) == []
