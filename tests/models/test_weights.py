import hashlib
import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benfourier.errors import ClassifierError, InputError, StoreError
from benfourier.models.weights import fill_weights, load_weights, save_weights, weights_digest
from tests.models.networks import seeded


def small() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(name="module")
def seeded_module() -> nn.Sequential:
    return seeded(small)


@pytest.fixture(name="path")
def written_weights(module: nn.Sequential, tmp_path: Path) -> Path:
    save_weights(module, tmp_path / "w.safetensors", network="small", classes=3)
    return tmp_path / "w.safetensors"


def refused(path: Path, message: str, module: nn.Module | None = None) -> None:
    """The file is refused with that message, and the module keeps its weights."""
    target = small() if module is None else module
    before = state(target)
    with pytest.raises(StoreError, match=message):
        load_weights(target, path)
    assert same(before, state(target))


def test_weights_come_back_bit_equal_with_their_metadata(module: nn.Sequential, path: Path) -> None:
    other = small()
    assert load_weights(other, path) == {"network": "small", "classes": 3}
    assert same(state(other), state(module))


def test_tied_and_channels_last_weights_can_be_written(tmp_path: Path) -> None:
    module = seeded(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Conv2d(2, 4, 3)]))
    module[1].weight = module[0].weight
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    save_weights(module, tmp_path / "w.safetensors")
    weights = load_file(tmp_path / "w.safetensors")
    assert torch.equal(weights["0.weight"], weights["1.weight"])
    assert torch.equal(weights["2.weight"], module.get_parameter("2.weight"))


def test_a_file_with_the_right_digest_is_loaded(path: Path) -> None:
    load_weights(small(), path, hashlib.sha256(path.read_bytes()).hexdigest().upper())


def test_a_file_with_another_digest_is_refused_naming_both(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match=f"its SHA-256 is {digest}, not {'0' * 64}; get the right file"):
        load_weights(small(), path, "0" * 64)


def test_weights_stored_as_float16_are_cast_to_the_modules_dtype(module: nn.Sequential, tmp_path: Path) -> None:
    halves = {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in module.state_dict().items()}
    save_file(halves, tmp_path / "half.safetensors")
    other = small()
    assert load_weights(other, tmp_path / "half.safetensors") == {}
    assert other.get_parameter("0.weight").dtype == torch.float32
    assert torch.equal(other.get_parameter("0.weight"), halves["0.weight"].float())


def test_batch_counters_may_be_missing(module: nn.Sequential, tmp_path: Path) -> None:
    weights = {name: tensor for name, tensor in module.state_dict().items() if "num_batches" not in name}
    save_file(weights, tmp_path / "w.safetensors")
    other = small()
    load_weights(other, tmp_path / "w.safetensors")
    assert same(state(other), state(module))


def test_missing_and_unexpected_tensors_are_named(module: nn.Sequential, tmp_path: Path) -> None:
    weights = {f"net.{name}": tensor for name, tensor in module.state_dict().items() if not name.startswith("4.")}
    save_file(weights | {"4.weight": module.get_parameter("4.weight").detach()}, tmp_path / "w.safetensors")
    refused(
        tmp_path / "w.safetensors",
        r"it lacks 0\.weight, 0\.bias, 1\.weight and 4 more and also has net\.0\.bias, .* and 4 more; give the weights",
    )


def test_a_tensor_of_another_shape_is_named(module: nn.Sequential, tmp_path: Path) -> None:
    weights = state(module) | {"4.bias": torch.zeros(5)}
    save_file(weights, tmp_path / "w.safetensors")
    refused(tmp_path / "w.safetensors", r"4\.bias has shape \(5,\), and \(3,\) in the module; give the weights of this")


def test_whole_numbers_in_place_of_weights_are_refused(module: nn.Sequential, tmp_path: Path) -> None:
    save_file(state(module) | {"4.bias": torch.zeros(3, dtype=torch.int64)}, tmp_path / "w.safetensors")
    refused(tmp_path / "w.safetensors", r"4\.bias is torch\.int64, and torch\.float32 in the module")


def test_weights_with_nan_are_refused(module: nn.Sequential, tmp_path: Path) -> None:
    save_file(state(module) | {"4.bias": torch.tensor([0.0, torch.nan, 0.0])}, tmp_path / "w.safetensors")
    refused(tmp_path / "w.safetensors", r"4\.bias holds NaN")


@pytest.mark.parametrize("length", [0, 7, 100, 800])
def test_a_file_that_is_cut_short_is_refused(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    refused(path, "it is cut short, damaged or no safetensors file")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    torch.save(small().state_dict(), tmp_path / "w.pth")
    refused(tmp_path / "w.pth", "it is cut short, damaged or no safetensors file")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.safetensors", "it cannot be opened")
    refused(tmp_path, "it cannot be opened")


def test_a_changed_byte_among_the_weights_is_noticed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    refused(path, "its tensors are not those that were written; it is damaged")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "9" * 5000])
def test_a_manifest_that_is_no_json_is_refused(module: nn.Sequential, tmp_path: Path, text: str) -> None:
    save_file(state(module), tmp_path / "w.safetensors", metadata={"manifest": text})
    refused(tmp_path / "w.safetensors", "its manifest is no JSON")


def test_metadata_of_another_program_is_not_ours(module: nn.Sequential, tmp_path: Path) -> None:
    save_file(state(module), tmp_path / "w.safetensors", metadata={"manifest": json.dumps({"kind": "x", "a": 1})})
    assert load_weights(small(), tmp_path / "w.safetensors") == {}


def test_a_failed_write_leaves_the_file_that_was_there(module: nn.Sequential, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match="the metadata cannot be written as JSON"):
        save_weights(module, path, when=object())
    with pytest.raises(InputError, match="metadata holds 'kind', a name that the file itself uses"):
        save_weights(module, path, kind="x")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_does_not_exist_is_an_error(module: nn.Sequential, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it cannot be written"):
        save_weights(module, tmp_path / "none" / "w.safetensors")


def test_the_digest_of_weights_does_not_depend_on_their_layout() -> None:
    module = seeded(lambda: nn.Conv2d(2, 4, 3))
    other = deepcopy(module)
    other.weight.data = other.weight.data.to(memory_format=torch.channels_last)
    assert other.weight.stride() != module.weight.stride()
    assert weights_digest(other) == weights_digest(module)


def test_the_digest_of_weights_depends_on_values_names_and_dtypes(module: nn.Sequential) -> None:
    changed = deepcopy(module)
    with torch.no_grad():
        changed.get_parameter("4.bias")[0] += 1e-6
    renamed = nn.Sequential(nn.Identity(), *deepcopy(module))
    digests = [weights_digest(m) for m in (module, changed, renamed, deepcopy(module).double())]
    assert len(set(digests)) == 4
    assert all(len(digest) == 64 for digest in digests)


def test_the_digest_tells_minus_zero_from_zero_and_takes_every_dtype() -> None:
    def holding(tensor: Tensor) -> nn.Module:
        module = nn.Module()
        module.register_buffer("values", tensor)
        return module

    kinds = [torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64]
    tensors = [torch.tensor(0.0), torch.tensor(-0.0), *(torch.zeros(2, dtype=kind) for kind in kinds)]
    assert len({weights_digest(holding(tensor)) for tensor in tensors}) == len(tensors)


def test_state_that_is_no_tensor_is_refused() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> str:
            return "words"

    with pytest.raises(ClassifierError, match="state holds _extra_state, a str; only tensors can be saved"):
        weights_digest(Extra(2, 2))


def test_a_part_of_the_weights_fills_a_part_of_the_module(module: nn.Sequential) -> None:
    other, weights = small(), state(module)
    before, part = state(other), {name: weights[name] for name in ("0.weight", "0.bias")}
    with pytest.raises(StoreError, match=r"it lacks 1\.weight"):
        fill_weights(other, part, "here")
    fill_weights(other, part, "here", part=True)
    assert same(state(other), before | part)
    with pytest.raises(StoreError, match=r"also has 0\.weigth"):
        fill_weights(other, {"0.weigth": part["0.weight"]}, "here", part=True)
