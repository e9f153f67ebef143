import io
import re
import threading
import time

import pytest

import benfourier as bf
from benfourier import progress
from tests.attacks.trained import first


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, show: bool | None) -> str:
    """What a bar of three steps writes to a stream that stands for standard error."""
    monkeypatch.setattr("sys.stderr", stream)
    with progress.bar(3, "counting", show=show) as advance:
        advance(1)
        advance(2)
    return stream.getvalue()


def test_a_bar_is_drawn_on_a_terminal_and_cleared_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = drawn(Terminal(), monkeypatch, None)
    assert "counting" in text
    assert "3/3" in text
    assert text.endswith("\x1b[2K")  # the last thing sent is "erase this line"


def test_nothing_is_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(io.StringIO(), monkeypatch, None) == ""


def test_nothing_is_drawn_on_a_terminal_when_silence_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(Terminal(), monkeypatch, False) == ""


def test_one_plain_line_is_drawn_elsewhere_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(io.StringIO(), monkeypatch, True)
    assert re.fullmatch(r"counting .* 3/3 \S+ < \S+ *\n", text)


def test_a_note_stands_behind_the_bar_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.bar(3, "counting", show=True) as advance:
        advance(1, "loss 0.7")
        advance(1, "loss 0.5 [red]")
        advance(1)
    assert re.fullmatch(r"counting .* 3/3 \S+ < \S+ loss 0\.5 \[red\] *\n", stream.getvalue())


def test_a_bar_that_is_not_drawn_takes_notes_too() -> None:
    with progress.bar(3, "counting", show=False) as advance:
        advance(1, "loss 0.7")
        advance(2, note="loss 0.5")


@pytest.mark.parametrize("show", [True, False])
def test_a_failure_inside_the_block_is_not_hidden(capsys: pytest.CaptureFixture[str], show: bool) -> None:
    with pytest.raises(KeyError, match="inside"), progress.bar(3, "counting", show=show):
        raise KeyError("inside")
    assert ("counting" in capsys.readouterr().err) is show


def test_the_spinner_shows_its_label_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with progress.spinner("thinking"):
            pass
        assert ("thinking" in stream.getvalue()) is seen


def test_the_spinner_is_silent_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.spinner("thinking", show=False):
        pass
    assert stream.getvalue() == ""


def test_plain_lines_say_how_far_the_outermost_bar_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.05)
    with progress.progress_lines(), progress.bar(3, "fits") as advance, progress.bar(1000, "images") as inner:
        advance(2, "mbf")
        inner(7)
        wait_for_line(stream)
    going, done = r"0 s: fits: 2 of 3, [\d.]+ (a second|s each), 0 s left, mbf\n", r"fits: 2 done in 0 s\n"
    assert re.fullmatch(f"({going})+{done}", stream.getvalue())
    assert "images" not in stream.getvalue()
    lines = stream.getvalue().count("\n")
    with progress.bar(3, "later") as advance:
        advance(1)
    assert stream.getvalue().count("\n") == lines


def test_plain_lines_name_work_without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.05)
    with progress.progress_lines(), progress.spinner("head, 60 rows"):
        wait_for_line(stream)
    assert stream.getvalue() == "0 s: head, 60 rows\nhead, 60 rows: done in 0 s\n"


def test_a_stage_that_ends_before_the_first_line_prints_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.progress_lines(), progress.bar(3, "short") as advance:
        advance(3)
    assert stream.getvalue() == ""


def test_a_bar_moves_while_one_of_its_steps_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.bar(3, "waiting"):
        deadline = time.monotonic() + 30
        while "0:00:01" not in stream.getvalue() or "0:00:02" not in stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("total", "done", "text"),
    [
        (300, 0, "images: 0 of 300"),
        (3000, 1000, "images: 1,000 of 3,000, 100 a second, 20 s left"),
        (100, 2, "images: 2 of 100, 5 s each, 8 min left"),
        (10_000, 2, "images: 2 of 10,000, 5 s each, 13.9 h left"),
        (None, 1000, "images: 1,000, 100 a second"),
    ],
)
def test_a_plain_line_has_count_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, total: int | None, done: int, text: str
) -> None:
    count = progress.Count("images", total, done, start=0.0)
    monkeypatch.setattr("time.monotonic", lambda: 10.0)
    assert str(count) == text


def test_the_first_plain_line_comes_after_ten_seconds_and_then_one_in_30_or_more() -> None:
    assert (progress.FIRST_SECONDS, progress.LINE_SECONDS) == (10, 30)
    elapsed, lines = progress.FIRST_SECONDS, 1
    while elapsed < 3600:
        elapsed += max(progress.LINE_SECONDS, progress.LINE_GROWTH * elapsed)
        lines += 1
    assert lines <= 40


def test_there_are_no_plain_lines_on_a_terminal_or_for_silent_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    before = threading.active_count()
    with progress.progress_lines():
        assert threading.active_count() == before
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress.progress_lines(), progress.bar(3, "silent", show=False) as advance:
        advance(1)
        assert progress._counts == []


def wait_for_line(stream: io.StringIO) -> None:
    deadline = time.monotonic() + 30
    while "\n" not in stream.getvalue():
        assert time.monotonic() < deadline


def test_passes_move_the_innermost_bar_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar(2, "outer", show=True) as outer, progress.bar(1, "silent", show=False) as silent:
        progress.add_pass()
        progress.add_pass()
        assert (outer.passes, silent.passes) == (2, 0)
        assert str(outer).endswith("0 of 2, 2 passes")
        outer(1, "a note")
        assert str(outer).endswith("a note")  # the next step begins anew
    progress.add_pass()
    assert outer.passes == 0
    capsys.readouterr()


def test_an_attack_counts_its_passes() -> None:
    data = first(4)
    with progress.bar(1, "attack", show=True) as advance:
        bf.attack("bim", data.classifier, data.images, data.labels, show_progress=False)
        assert advance.passes > 10
