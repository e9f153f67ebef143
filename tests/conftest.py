from pathlib import Path


def drop_stale_kernels() -> None:
    kernels = Path(__file__).parents[1] / "src" / "benfourier" / "kernels"
    newest = max(source.stat().st_mtime for source in kernels.glob("*.py"))
    # numba compiles again when a function's own file changes, not when a file that it calls into does
    for compiled in (kernels / "__pycache__").glob("*.nb[ic]"):
        if compiled.stat().st_mtime < newest:
            compiled.unlink(missing_ok=True)


drop_stale_kernels()
