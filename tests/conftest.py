import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are many small steps: a second thread gains nothing, and beside other work its waiting costs minutes. What is
# tested on several threads asks for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def drop_stale_kernels() -> None:
    kernels = Path(__file__).parents[1] / "src" / "benfourier" / "kernels"
    newest = max(source.stat().st_mtime for source in kernels.glob("*.py"))
    # numba compiles again when a function's own file changes, not when a file that it calls into does
    for compiled in (kernels / "__pycache__").glob("*.nb[ic]"):
        if compiled.stat().st_mtime < newest:
            compiled.unlink(missing_ok=True)


drop_stale_kernels()


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor fill the cache of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENFOURIER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
