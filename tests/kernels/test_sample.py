"""Which entries of an activation are read: one in each stratum, the same ones whatever the layout."""

import numpy as np
import pytest
import torch

from benfourier.kernels.sample import offsets_of, sample_rows, stratified_places


@pytest.mark.parametrize(("size", "entries"), [(10, 10), (10, 7), (1000, 999), (65_536, 8192), (802_816, 4096)])
def test_one_place_is_read_in_each_stratum(size: int, entries: int) -> None:
    places = stratified_places(size, entries)
    bounds = np.arange(entries + 1) * size // entries
    assert (np.searchsorted(bounds, places, side="right") - 1 == np.arange(entries)).all()
    assert places.max() < size


def test_the_sample_is_the_same_in_every_version() -> None:
    assert stratified_places(1000, 8).tolist() == [21, 242, 274, 408, 596, 644, 832, 932]


def test_every_channel_of_a_map_is_read_equally_often() -> None:
    x = torch.arange(64.0).view(1, 64, 1, 1).expand(1, 64, 32, 32).contiguous(memory_format=torch.channels_last)
    assert sample_rows(x, 8192)[0].long().bincount(minlength=64).tolist() == [128] * 64


def test_every_layout_gives_the_same_entries_in_the_same_order() -> None:
    x = torch.randn(3, 8, 9, 10, generator=torch.Generator().manual_seed(0))
    expected = x.flatten(1)[:, torch.from_numpy(stratified_places(720, 100))]
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(1, 3).contiguous().transpose(1, 3)):
        assert torch.equal(sample_rows(y, 100), expected)
    spread = torch.stack([x, x], dim=-1)[..., 0]  # not dense
    assert torch.equal(sample_rows(spread, 100), expected)
    assert torch.equal(sample_rows(x[:1].expand(3, -1, -1, -1), 100), expected[:1].expand(3, -1))


def test_offsets_are_none_where_everything_is_read() -> None:
    x = torch.zeros(2, 3, 4)
    assert offsets_of(x, None) is None
    assert offsets_of(x, 12) is None
    assert offsets_of(x, 11) is not None
