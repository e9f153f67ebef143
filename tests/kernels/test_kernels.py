"""The three backends agree: |numba − reference| is at most a tenth of ½√(π/M), whatever the activations."""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from benfourier import kernels
from benfourier.errors import InputError, OptionError
from benfourier.kernels import numba_kernel, sample
from benfourier.theory import coefficient_magnitudes
from benfourier.theory.coefficients import Zeros


def limit(entries: int) -> float:
    return max(1e-6, 0.05 * math.sqrt(math.pi / entries))


def worst(activations: Tensor, backend: kernels.Backend = "numba", **options: object) -> float:
    """Largest difference to the reference, in units of the allowed one."""
    exact = kernels.magnitudes(activations, backend="reference", **options)  # type: ignore[arg-type]
    answer = kernels.magnitudes(activations, backend=backend, **options)  # type: ignore[arg-type]
    assert answer.shape == exact.shape
    return float((answer.double() - exact).abs().max()) / limit(activations[0].numel())


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
def test_numba_agrees_with_the_reference_on_any_kind_of_activation(kind: str, entries: int) -> None:
    assert worst(kinds(3, entries)[kind]) <= 1


def nine_kinds(entries: int) -> dict[str, Tensor]:
    """Rows of which some break the bound where phases are counted without the sum of their offsets."""
    x = normal(4, entries)
    biases = normal(16, seed=5)[torch.arange(entries) % 16].expand(4, -1)
    pixels = torch.randint(0, 256, (4, entries), generator=torch.Generator().manual_seed(6)) / 255
    return {
        "Gaussian": x,
        "ReLU, half zeros": x.relu(),
        "ReLU, 95 % zeros": (x - 1.645).relu(),
        "16 biases on 80 % of a map": torch.where(torch.arange(entries) < 0.8 * entries, biases, x),
        "ReLU6": (6 * x).clamp(0, 6),
        "8-bit pixels": pixels.float(),
        "two values": (x > 1).float(),
        "1e-30": 1e-30 * x,
        "1e30": 1e30 * x,
    }


@pytest.mark.parametrize("entries", [300, 4096, 8192, 65_536, 400_000, 1_400_000])
@pytest.mark.parametrize("kind", nine_kinds(2))
def test_the_error_of_the_bins_is_within_its_bound(kind: str, entries: int) -> None:
    x = nine_kinds(entries)[kind]
    bins = numba_kernel._bins(entries, 16)
    exact = kernels.magnitudes(x, backend="reference")
    error = (kernels.magnitudes(x, backend="numba") - exact).abs().amax(dim=0)
    # rounding of phases adds at most 1e-7 turns at order 1, that of float32 sums 1e-6
    bound = [0.5 * (math.pi * n / bins) ** 2 + 2 * math.pi * n * 1e-7 + 1e-6 for n in range(1, 17)]
    assert bool((error <= torch.tensor(bound)).all())
    assert bound[-1] <= limit(entries)


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("entries", [1, 2, 10, 32, 33, 128, 256])
def test_short_rows_agree_with_the_reference_far_within_the_bound(entries: int, centre: bool, zeros: Zeros) -> None:
    x = normal(20, entries, seed=entries)
    for rows in (x, x.relu(), (3 * x).round(), x.sign() * (x.abs() * 9).exp(), torch.full_like(x, 0.1)):
        exact = kernels.magnitudes(rows, centre=centre, zeros=zeros, backend="reference")
        result = kernels.magnitudes(rows, centre=centre, zeros=zeros, backend="numba")
        assert float((result - exact).abs().max()) < 2e-5  # 16 orders, 1e-7 turns each, and as much again


@pytest.mark.parametrize("size", [1e-44, 1e-25, 1e32, 1e38])
def test_short_rows_near_the_limits_of_float32_are_as_exact_as_others(size: float) -> None:
    x = (normal(4, 40).double().clamp(-3, 3) * size).float()
    exact = kernels.magnitudes(x, backend="reference")
    assert float((kernels.magnitudes(x, backend="numba") - exact).abs().max()) < 2e-5


def test_many_orders_stay_within_the_bound() -> None:
    for entries in (256, 5000):
        assert worst(normal(2, entries), orders=1000) < 0.5


def test_pooled_rows_that_repeat_their_lowest_values_agree_with_the_reference() -> None:
    shift = normal(64, 1, 1)
    x = torch.maximum(normal(4, 64, 12, 12, seed=1), shift)
    x[:, :, :6] = normal(4, 64, 1, 1, seed=2).abs() + shift
    for layout in (torch.contiguous_format, torch.channels_last):
        assert worst(x.contiguous(memory_format=layout)) <= 1


@pytest.mark.parametrize("side", [12, 15, 21])
def test_channels_last_rows_that_are_no_whole_blocks_agree_with_the_reference(side: int) -> None:
    for x in (torch.full((3, 3, side, side), 0.1), blank_background(3, 3, side)):
        assert worst(x.contiguous(memory_format=torch.channels_last)) <= 1


@pytest.mark.parametrize("shape", [(4, 3, 3), (16, 9, 7), (8, 40, 40)])
@pytest.mark.parametrize("entries", [None, 100, 300, 700])
def test_magnitudes_do_not_depend_on_batch_layout_or_order(shape: tuple[int, ...], entries: int | None) -> None:
    x = normal(6, *shape) + 0.1
    expected = kernels.magnitudes(x, entries=entries)
    assert torch.equal(kernels.magnitudes(x.contiguous(memory_format=torch.channels_last), entries=entries), expected)
    assert torch.equal(kernels.magnitudes(x.transpose(1, 3).contiguous().transpose(1, 3), entries=entries), expected)
    assert torch.equal(torch.cat([kernels.magnitudes(row[None], entries=entries) for row in x]), expected)
    assert torch.equal(kernels.magnitudes(x.flip(0), entries=entries).flip(0), expected)


@pytest.mark.parametrize("backend", ["reference", "numba", "torch"])
def test_reading_at_least_all_entries_is_exact(backend: kernels.Backend) -> None:
    for x in (normal(3, 500), normal(3, 8, 20, 20), normal(3, 500).half()):
        every = kernels.magnitudes(x, backend=backend)
        for entries in (x[0].numel(), x[0].numel() + 1, 10**9):
            assert torch.equal(kernels.magnitudes(x, entries=entries, backend=backend), every)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_backends_agree_on_a_sample(backend: kernels.Backend, dtype: torch.dtype) -> None:
    x = normal(3, 8, 30, 30).relu().to(dtype)
    exact = kernels.magnitudes(x, entries=1000, backend="reference")
    for layout in (torch.contiguous_format, torch.channels_last):
        result = kernels.magnitudes(x.contiguous(memory_format=layout), entries=1000, backend=backend)
        assert float((result - exact).abs().max()) <= limit(1000)


@pytest.mark.parametrize("zeros", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("rows", [1, 2])
def test_numba_agrees_with_the_reference_at_three_million_entries(zeros: float, rows: int) -> None:
    threshold = math.sqrt(2) * torch.erfinv(torch.tensor(2 * zeros - 1)).item()
    assert worst((normal(rows, 3_200_000) - threshold).relu()) <= 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("side", [8, 32, 64])
def test_numba_agrees_where_a_blank_background_repeats_itself(side: int, layout: torch.memory_format) -> None:
    assert worst(blank_background(3, 16, side).contiguous(memory_format=layout)) <= 1


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_kernels_agree_on_every_rule_for_zeros(backend: kernels.Backend, centre: bool, zeros: str) -> None:
    for entries in (40, 5000):
        for x in ((3 * normal(3, entries)).round(), normal(3, entries).relu(), torch.zeros(3, entries)):
            assert worst(x, backend, centre=centre, zeros=zeros) <= 1


@pytest.mark.parametrize("orders", [1, 2, 7, 16, 17, 40])
@pytest.mark.parametrize("entries", [100, 3000, 100_000])
def test_kernels_agree_for_any_number_of_orders(orders: int, entries: int) -> None:
    assert worst(normal(3, entries), orders=orders) <= 1
    assert worst((5 * normal(3, entries)).round(), orders=orders) <= 1
    assert worst(normal(3, entries), "torch", orders=orders) <= 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=12),
    st.integers(1, 3000),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_numba_agrees_on_any_few_atoms(levels: list[float], entries: int, centre: bool, seed: int) -> None:
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


def test_magnitudes_of_gaussian_activations_are_those_of_theory() -> None:
    result = kernels.magnitudes(normal(64, 65536)).double().mean(dim=0)
    # E|â|² = |a|² + (1 − |a|²)/M, and 64 rows leave a deviation below 1/√(64·M) = 4.9e-4; five of them fail 1 in 10^6
    expected = torch.from_numpy(coefficient_magnitudes(2.0))
    assert float((result[:2] - expected[:2]).abs().max()) < 5 * 4.9e-4


def test_scale_and_order_of_entries_do_not_matter() -> None:
    x = normal(4, 20_000).relu()
    result = kernels.magnitudes(x)
    shuffled = kernels.magnitudes(x[:, torch.randperm(20_000, generator=torch.Generator().manual_seed(1))])
    assert float((result - shuffled).abs().max()) < limit(20_000)
    assert float((result - kernels.magnitudes(1e4 * x)).abs().max()) < limit(20_000)


@pytest.mark.parametrize("backend", ["reference", "torch", "numba"])
@pytest.mark.parametrize("entries", [1, 10, 5000])
def test_activations_without_any_spread_give_zeros(backend: kernels.Backend, entries: int) -> None:
    for value in (0.0, 0.1, -1e30):
        result = kernels.magnitudes(torch.full((2, entries), value), backend=backend)
        assert float(result.abs().max()) < 2e-6  # the smooth root of the torch kernel is 1e-6 at zero


@pytest.mark.parametrize("backend", ["reference", "torch", "numba"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("entries", [10, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_row_with_nan_or_infinity_comes_back_as_nan_and_others_do_not(
    backend: kernels.Backend, bad: float, entries: int, dtype: torch.dtype
) -> None:
    x = normal(3, entries).to(dtype)
    x[1, entries // 2] = bad
    result = kernels.magnitudes(x, backend=backend)
    assert result[1].isnan().all()
    assert result[[0, 2]].isfinite().all()


def test_dense_layouts_are_read_in_place() -> None:
    x = normal(2, 8, 6, 4)
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.permute(0, 2, 1, 3)[:], x.transpose(1, 3)):
        assert sample.rows_of(y).data_ptr() == y.data_ptr()
        assert worst(y) <= 1
    assert worst(x[:, :, ::2]) <= 1
    assert worst(x[:1].expand(3, -1, -1, -1)) <= 1


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        result = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            result.append([kernels.magnitudes(normal(rows, 70_000)) for rows in (1, 3)])
        for one, two in zip(*result, strict=True):
            assert torch.equal(one, two)
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


def test_several_python_threads_may_call_at_once() -> None:
    rows = [normal(4, 5000, seed=seed) for seed in range(16)]
    alone = [kernels.magnitudes(x) for x in rows]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(kernels.magnitudes, rows))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_can_use_the_numba_kernel_of_its_parent() -> None:
    code = """
import os, sys, torch
from benfourier import kernels
torch.set_num_threads(2)
x = torch.randn(16, 9000, generator=torch.Generator().manual_seed(0))
expected = kernels.magnitudes(x, backend="numba")  # starts the threads that a child does not have
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(kernels.magnitudes(x, backend="numba"), expected) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)  # noqa: S603


def test_where_no_folder_can_be_written_to_the_torch_kernel_answers() -> None:
    code = """
import numba.core.caching, torch, warnings
from benfourier import kernels
numba.core.caching.CacheImpl._locator_classes = []  # those that need a folder, of which none can be written to
x = torch.randn(3, 6000, generator=torch.Generator().manual_seed(0))
with warnings.catch_warnings(record=True) as caught:
    assert torch.equal(kernels.magnitudes(x), kernels.magnitudes(x, backend="torch"))
assert "cannot cache" in str(caught[0].message), caught
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)  # noqa: S603


def test_the_kernel_compiles_for_a_generic_processor(tmp_path: Path) -> None:
    code = """
import time, torch
from benfourier import kernels
x = torch.randn(3, 6000, generator=torch.Generator().manual_seed(0))
began = time.process_time()
error = (kernels.magnitudes(x, backend="numba") - kernels.magnitudes(x, backend="reference")).abs().max()
assert time.process_time() - began < 10, time.process_time() - began  # 5 s on a busy machine
assert error < 0.05 * (torch.pi / 6000) ** 0.5, error
"""
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)  # noqa: S603


@pytest.mark.parametrize("entries", [None, 100])
def test_the_torch_kernel_never_asks_for_a_value_so_a_gpu_need_not_wait(entries: int | None) -> None:
    # tensors of the device "meta" have no values: reading or copying one of them fails
    activations = torch.empty(4, 8, 16, 16, device="meta")
    for zeros in ("drop", "count", "one"):
        result = kernels.magnitudes(activations, 16, zeros=zeros, entries=entries)
        assert (result.device.type, tuple(result.shape)) == ("meta", (4, 16))


def test_the_torch_kernel_has_the_gradient_of_finite_differences() -> None:
    x = normal(3, 40).double().requires_grad_()
    for zeros in ("drop", "count"):
        assert torch.autograd.gradcheck(
            lambda v: kernels.magnitudes(v, 6, zeros=zeros, backend="torch"),  # noqa: B023
            (x,),
            eps=1e-8,
            atol=1e-4,
            rtol=1e-4,
        )


def test_the_gradient_stays_finite_at_zero_and_for_dead_activations() -> None:
    for x in (torch.zeros(2, 50), normal(2, 50).relu(), torch.full((2, 50), 0.1)):
        x = x.clone().requires_grad_()
        kernels.magnitudes(x).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_auto_keeps_the_gradient_and_is_numba_otherwise() -> None:
    x = normal(2, 5000).requires_grad_()
    assert kernels.magnitudes(x).requires_grad
    with torch.no_grad():
        assert torch.equal(kernels.magnitudes(x), kernels.magnitudes(x, backend="numba"))


def test_bad_options_and_activations_are_refused_with_the_value() -> None:
    x = normal(2, 10)
    with pytest.raises(OptionError, match="orders is 0"):
        kernels.magnitudes(x, 0)
    with pytest.raises(OptionError, match=r"'nunba'.*did you mean 'numba'"):
        kernels.magnitudes(x, backend="nunba")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="zeros is 'keep'"):
        kernels.magnitudes(x, zeros="keep")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="entries is 0"):
        kernels.magnitudes(x, entries=0)
    with pytest.raises(InputError, match="int64"):
        kernels.magnitudes(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(OptionError, match="CPU only"):
        kernels.magnitudes(x.to("meta"), backend="numba")


def test_empty_activations_give_zeros() -> None:
    assert kernels.magnitudes(torch.empty(2, 0)).tolist() == [[0.0] * 16] * 2
    assert kernels.magnitudes(torch.empty(0, 5)).shape == (0, 16)
