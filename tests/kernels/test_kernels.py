"""The three kernels agree: |fused − reference| ≤ max(1e-6, a tenth of ½√(π/M)), whatever the responses."""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from benfourier import kernels
from benfourier.errors import InputError, OptionError
from benfourier.theory import coefficient_magnitudes


def limit(entries: int) -> float:
    return max(1e-6, 0.05 * math.sqrt(math.pi / entries))


def worst(responses: Tensor, method: kernels.Method = "fused", **options: object) -> float:
    """Largest difference to the reference, in units of the allowed one."""
    exact = kernels.magnitudes(responses, method="reference", **options)  # type: ignore[arg-type]
    found = kernels.magnitudes(responses, method=method, **options)  # type: ignore[arg-type]
    assert found.shape == exact.shape
    return float((found.double() - exact).abs().max()) / limit(responses[0].numel())


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def blank_background(rows: int, channels: int, side: int) -> Tensor:
    """Maps that are constant, channel by channel, but for a patch: what convolutions make of a digit on black."""
    maps = normal(rows, channels, 1, 1).expand(rows, channels, side, side).clone()
    maps[:, :, side // 3 : side // 2, side // 3 : side // 2] = normal(rows, channels, side, side, seed=1)[
        :, :, side // 3 : side // 2, side // 3 : side // 2
    ]
    return maps


def kinds(rows: int, entries: int) -> dict[str, Tensor]:
    x = normal(rows, entries)
    levels = normal(9, seed=2)
    return {
        "Gaussian": x,
        "heavy-tailed": x.sign() * (x.abs() * 4).exp(),
        "ReLU, half zeros": x.relu(),
        "ReLU, 95 % zeros": (x - 1.645).relu(),
        "clipped at both ends": (6 * x).clamp(0, 6),
        "uniform": torch.rand(rows, entries, generator=torch.Generator().manual_seed(3)),
        "a small spread about a large mean": 1000 + 0.01 * x,
        "whole numbers": (3 * x).round(),
        "nine atoms": levels[torch.randint(0, 9, (rows, entries), generator=torch.Generator().manual_seed(4))],
        "denormal": 1e-40 * x,
        "huge": 1e35 * x,
        "float16": x.half(),
        "bfloat16": x.bfloat16(),
        "one outlier": torch.cat([1e8 * x[:, :1], x[:, 1:]], dim=1),
        "constant but for one": torch.cat([x[:, :1], torch.full_like(x[:, 1:], 0.1)], dim=1),
    }


@pytest.mark.parametrize("entries", [3, 10, 256, 257, 1000, 4096, 33333, 200_000])
@pytest.mark.parametrize("kind", kinds(1, 2))
def test_fused_agrees_with_the_reference_on_any_kind_of_response(kind: str, entries: int) -> None:
    assert worst(kinds(3, entries)[kind]) <= 1


def test_evenly_spread_rows_stay_far_within_the_bound() -> None:
    # the error's deviation is 1/18 of the bound at order 16 and less below; 0.25 is 4.5: 1 in 300 for 400 rows
    assert worst(normal(400, 4096)) < 0.25


@pytest.mark.parametrize("zeros", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("rows", [1, 2])
def test_fused_agrees_with_the_reference_at_three_million_entries(zeros: float, rows: int) -> None:
    threshold = math.sqrt(2) * torch.erfinv(torch.tensor(2 * zeros - 1)).item()
    assert worst((normal(rows, 3_200_000) - threshold).relu()) <= 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("side", [8, 32, 64])
def test_fused_agrees_where_a_blank_background_repeats_itself(side: int, layout: torch.memory_format) -> None:
    assert worst(blank_background(3, 16, side).contiguous(memory_format=layout)) <= 1


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("method", ["fused", "differentiable"])
def test_kernels_agree_on_what_becomes_of_zeros(method: kernels.Method, centre: bool, zeros: str) -> None:
    for entries in (40, 5000):
        for x in ((3 * normal(3, entries)).round(), normal(3, entries).relu(), torch.zeros(3, entries)):
            assert worst(x, method, centre=centre, zeros=zeros) <= 1


@pytest.mark.parametrize("orders", [1, 2, 7, 16, 17, 40])
@pytest.mark.parametrize("entries", [100, 3000, 100_000])
def test_kernels_agree_for_any_number_of_orders(orders: int, entries: int) -> None:
    assert worst(normal(3, entries), orders=orders) <= 1
    assert worst((5 * normal(3, entries)).round(), orders=orders) <= 1
    assert worst(normal(3, entries), "differentiable", orders=orders) <= 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=12),
    st.integers(1, 3000),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_fused_agrees_on_any_few_atoms(levels: list[float], entries: int, centre: bool, seed: int) -> None:
    pick = torch.randint(0, len(levels), (2, entries), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(levels, dtype=torch.float64).float()[pick]
    # an entry within float64 rounding of the mean has no phase that two summations must agree on
    spread = (x.double() - x.double().mean(dim=1, keepdim=True)).abs()
    size = x.double().abs().amax(dim=1, keepdim=True)
    assume(not (centre and bool(((spread < 1e-9 * size) & (spread > 0)).any())))
    assert worst(x, centre=centre) <= 1


@pytest.mark.parametrize("entries", [200, 257, 3000, 100_000])
@pytest.mark.parametrize("power", [-149, -130, -90, -60])
def test_rows_that_float32_hardly_holds_agree_once_centred(entries: int, power: int) -> None:
    bits = torch.randint(0, 2, (2, entries), generator=torch.Generator().manual_seed(0))
    assert worst((bits * 2.0**power).float()) <= 1
    assert worst((bits * 2.0**power).float(), centre=False) <= 1


def test_a_counter_that_overflows_to_nothing_leaves_other_rows_alone() -> None:
    x = normal(12, 16_384)
    x[::2, :8192] = 1.2345 * 2.0**-20  # 2^13 in one bin, alone in its octave
    assert worst(x, centre=False) <= 1


def test_magnitudes_of_gaussian_responses_are_those_of_theory() -> None:
    found = kernels.magnitudes(normal(64, 65536)).double().mean(dim=0)
    # E|â|² = |a|² + (1 − |a|²)/M, and 64 rows leave a deviation below 1/√(64·M) = 4.9e-4; five of them fail 1 in 10^6
    expected = torch.from_numpy(coefficient_magnitudes(2.0))
    assert float((found[:2] - expected[:2]).abs().max()) < 5 * 4.9e-4


def test_scale_and_order_of_entries_do_not_matter() -> None:
    x = normal(4, 20_000).relu()
    found = kernels.magnitudes(x)
    shuffled = kernels.magnitudes(x[:, torch.randperm(20_000, generator=torch.Generator().manual_seed(1))])
    assert float((found - shuffled).abs().max()) < limit(20_000)
    assert float((found - kernels.magnitudes(1e4 * x)).abs().max()) < limit(20_000)


@pytest.mark.parametrize("method", ["reference", "differentiable", "fused"])
@pytest.mark.parametrize("entries", [1, 10, 5000])
def test_a_response_without_any_spread_gives_zeros(method: kernels.Method, entries: int) -> None:
    for value in (0.0, 0.1, -1e30):
        found = kernels.magnitudes(torch.full((2, entries), value), method=method)
        assert float(found.abs().max()) < 2e-6  # the smooth root of the differentiable kernel is 1e-6 at zero


@pytest.mark.parametrize("method", ["reference", "differentiable", "fused"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("entries", [10, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_row_with_nan_or_infinity_comes_back_as_nan_and_others_do_not(
    method: kernels.Method, bad: float, entries: int, dtype: torch.dtype
) -> None:
    x = normal(3, entries).to(dtype)
    x[1, entries // 2] = bad
    found = kernels.magnitudes(x, method=method)
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()


def test_dense_layouts_are_read_in_place() -> None:
    x = normal(2, 8, 6, 4)
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.permute(0, 2, 1, 3)[:], x.transpose(1, 3)):
        assert kernels.rows_of(y).data_ptr() == y.data_ptr()
        assert worst(y) <= 1
    assert worst(x[:, :, ::2]) <= 1
    assert worst(x[:1].expand(3, -1, -1, -1)) <= 1


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append([kernels.magnitudes(normal(rows, 70_000)) for rows in (1, 3)])
        for one, two in zip(*found, strict=True):
            assert float((one - two).abs().max()) < limit(70_000)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_keeps_its_number_of_threads(threads: int) -> None:
    code = (
        "import torch; torch.set_num_threads({0}); from benfourier import kernels; "
        "kernels.magnitudes(torch.randn(4, 5000)); kernels.magnitudes(torch.randn(4, 9)); "
        "assert torch.get_num_threads() == {0}, torch.get_num_threads()"
    )
    subprocess.run([sys.executable, "-c", code.format(threads)], check=True)  # noqa: S603


def test_several_python_threads_may_ask_at_once() -> None:
    rows = [normal(4, 5000, seed=seed) for seed in range(16)]
    alone = [kernels.magnitudes(x) for x in rows]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(kernels.magnitudes, rows))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons warn of every fork beside threads")
def test_a_forked_child_can_still_use_the_fused_kernel() -> None:
    kernels.magnitudes(normal(4, 5000), method="fused")
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os._exit(0 if kernels.magnitudes(torch.ones(4, 5000), method="fused").eq(0).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_differentiable_kernel_has_the_gradient_of_finite_differences() -> None:
    x = normal(3, 40).double().requires_grad_()
    for zeros in ("drop", "count"):
        assert torch.autograd.gradcheck(
            lambda v: kernels.magnitudes(v, 6, zeros=zeros, method="differentiable"),  # noqa: B023
            (x,),
            eps=1e-8,
            atol=1e-4,
            rtol=1e-4,
        )


def test_the_gradient_stays_finite_at_zero_and_for_dead_responses() -> None:
    for x in (torch.zeros(2, 50), normal(2, 50).relu(), torch.full((2, 50), 0.1)):
        x = x.clone().requires_grad_()
        kernels.magnitudes(x).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_auto_keeps_the_gradient_and_is_fused_otherwise() -> None:
    x = normal(2, 5000).requires_grad_()
    assert kernels.magnitudes(x).requires_grad
    with torch.no_grad():
        assert torch.equal(kernels.magnitudes(x), kernels.magnitudes(x, method="fused"))


def test_bad_options_and_responses_are_refused_with_the_value() -> None:
    x = normal(2, 10)
    with pytest.raises(OptionError, match="orders is 0"):
        kernels.magnitudes(x, 0)
    with pytest.raises(OptionError, match=r"'fusd'.*did you mean 'fused'"):
        kernels.magnitudes(x, method="fusd")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="zeros is 'keep'"):
        kernels.magnitudes(x, zeros="keep")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="int64"):
        kernels.magnitudes(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(OptionError, match="CPU only"):
        kernels.magnitudes(x.to("meta"), method="fused")


def test_empty_responses_give_zeros() -> None:
    assert kernels.magnitudes(torch.empty(2, 0)).tolist() == [[0.0] * 16] * 2
    assert kernels.magnitudes(torch.empty(0, 5)).shape == (0, 16)


def test_without_torchs_openmp_python_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from benfourier.kernels import team

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        rows = [normal(5, entries) for entries in (40, 5000, 70_000)]
        expected = [kernels.magnitudes(x, method="fused") for x in rows]
        monkeypatch.setattr(torch, "__file__", "nowhere/__init__.py")
        team._torch_team.cache_clear()
        assert all(torch.equal(kernels.magnitudes(x, method="fused"), y) for x, y in zip(rows, expected, strict=True))
    finally:
        torch.set_num_threads(before)
        team._torch_team.cache_clear()
