"""Where a command writes: checked before its work begins."""

from pathlib import Path

from benfourier.errors import StoreError


def check_out(out: Path, **inputs: Path | str | None) -> None:
    """Raises StoreError unless a file can be written there that is none of those that the command reads.

    Args:
        out: the file.
        inputs: by option, what the command reads; words that are no files do not matter.
    """
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise StoreError(f"{out}: it is a folder, or its folder does not exist; name a file in a folder that does")
    for option, given in inputs.items():
        files = [Path(word) for word in (str(given), str(given).rpartition(":")[0]) if given is not None and word]
        if any(out.exists() and file.exists() and out.samefile(file) for file in files):
            raise StoreError(
                f"{out}: this is what --{option} names, and it would be overwritten; write to another file"
            )
