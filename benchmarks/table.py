"""The results as a Markdown table, put into README.md between its markers: `python -m benchmarks.table`."""

import argparse
import re
import sys
from pathlib import Path

from benchmarks.results import RESULTS, Case, Environment, load

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main() -> int:
    """Returns the exit code: 1 if --check finds another table in README.md than the results give."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--readme", type=Path, default=README)
    options = parser.parse_args()
    if not options.json.exists():
        print(f"{options.json} is not there; write it with `make bench`")
        return 0 if options.check else 1
    page = options.readme.read_text(encoding="utf-8")
    fresh = rewrite(page, render(*load(options.json)))
    if options.check and fresh != page:
        print(f"{options.readme} does not show {options.json}; refresh it with `python -m benchmarks.table`")
        return 1
    if not options.check:
        options.readme.write_text(fresh, encoding="utf-8")
    return 0


def rewrite(page: str, table: str) -> str:
    """Returns the page with the table between its markers."""
    fresh, found = BLOCK.subn(lambda block: block[1] + table + block[2], page)
    if found != 1:
        raise ValueError(f"the page has {found} blocks between <!-- bench --> and <!-- /bench -->; it must have one")
    return fresh


def render(environment: Environment, cases: list[Case]) -> str:
    """Returns the lines between the markers."""
    e = environment
    return "\n".join(
        [
            "| measured | result | limit | holds |",
            "|---|---|---|---|",
            *(_row(case) for case in cases),
            "",
            f"{e.cpu}, {e.threads} threads, Python {e.python}, torch {e.torch}, NumPy {e.numpy}, numba {e.numba}, "
            f"{e.date}. Times are medians of calls that take turns, {e.rounds} rounds.",
            "",
        ]
    )


def _row(case: Case) -> str:
    limit = f"{case.sense} {_amount(case, case.limit)}"
    return f"| {_sentence(case)} | {_amount(case, case.value)} | {limit} | {'yes' if case.holds else 'no'} |"


def _sentence(case: Case) -> str:
    """What was measured, with the figures behind it."""
    room, subject = case.name.split("/")
    f = case.figures
    if room == "features":
        return (
            f"time that features of all layers add to the forward pass of {subject}: {f['plain_ms_per_image']:.3g} → "
            f"{f['features_ms_per_image']:.3g} ms per image (images channels-last in both: "
            f"{f['added_same_layout']:+.0%})"
        )
    if room == "kernel":
        return (
            f"fused kernel beside the definition in torch, {subject.replace('x', ' × ')} responses: "
            f"{f['naive_ms']:.3g} → {f['fused_ms']:.3g} ms"
        )
    if room == "attacks":
        return _attack(subject, case)
    if room == "detectors":
        return (
            f"time that {subject} adds to the forward pass of lid-mnist, {f['shared_ms_per_image']:.3g} ms per image "
            f"as detectors share it, counted in what mbf adds: {f['mbf_added_ms']:.3g} → {f['added_ms']:.3g} ms"
        )
    if room == "service":
        return (
            f"requests per second of the service beside the bare network behind the same server, {subject}, "
            f"{f['images']:.0f} images a request: {f['bare_requests_per_second']:.3g} → "
            f"{f['service_requests_per_second']:.3g}; p50 {f['bare_p50_ms']:.0f} → {f['service_p50_ms']:.0f} ms, p99 "
            f"{f['bare_p99_ms']:.0f} → {f['service_p99_ms']:.0f} ms"
        )
    if case.name == "svm/fit":
        return (
            f"fit of mbf's SVM to {f['rows']:.0f} × {f['features']:.0f} features of GGD samples: "
            f"{f['fit_seconds']:.3g} s, {f['support_vectors']:.0f} support vectors; AUROC on other sources"
        )
    if room == "svm":
        return (
            f"memory that scoring {subject.removeprefix('score ').replace('x', ' rows by ')} support vectors takes, "
            f"{f['extra_mb']:.0f} MB and {f['seconds']:.3g} s, counted in blocks of kernel values"
        )
    return (
        f"memory that features of {subject} take beyond the forward pass, in the layout of images where that takes "
        f"less, counted in largest responses of {f['largest_response_mb']:.3g} MB"
    )


def _attack(name: str, case: Case) -> str:
    """An attack beside Foolbox 3: its time and what that is made of, or its strength."""
    f = case.figures
    if case.limited == "distance":
        return (
            f"median distance of {name.removesuffix('-distance')} beside Foolbox 3: {f['foolbox_l2']:.4g} → "
            f"{f['ours_l2']:.4g}, with successes {f['foolbox_success']:.0%} → {f['ours_success']:.0%}"
        )
    parts = list(f)[list(f).index("speed_up") + 1 :]
    told = ", ".join(f"{part.replace('_', ' ')} {f[part]:.2f}" for part in parts)
    return (
        f"{name} beside Foolbox 3, {f['images']:.0f} images: {f['foolbox_seconds']:.3g} → {f['ours_seconds']:.3g} s; "
        f"the factor's parts: {told}"
    )


def _amount(case: Case, value: float) -> str:
    """The limited figure as text: a share, a factor or a number."""
    if case.limited == "added":
        return f"{value:+.0%}"
    if case.limited == "distance":
        return f"{value - 1:+.1%}"
    if case.limited in ("speed_up", "beside_mbf"):
        return f"{value:.0f}×" if value >= 10 else f"{value:.2g}×"
    return f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
