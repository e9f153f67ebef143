"""Exit codes, the same for every verb."""

from benfourier.errors import BenfourierError, MissingExtraError, StoreError

DONE = 0
ADVERSARIAL = 1  # detect only: adversarial images were found
USAGE = 2  # usage or bad input
MISSING_EXTRA = 3
BAD_FILE = 4  # a stored file is missing, damaged, or not what it should be
INTERNAL = 5
INCOMPLETE = 6  # finished, but some inputs or trials failed
INTERRUPTED = 130


def code_of(error: BenfourierError) -> int:
    """Returns the exit code of an error of our own."""
    if isinstance(error, MissingExtraError):
        return MISSING_EXTRA
    return BAD_FILE if isinstance(error, StoreError) else USAGE
