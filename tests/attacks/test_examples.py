"""Example sets: what they hold, what the cache gives back, what is refused."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks.identity import digest_of_subject
from benfourier.attacks.noise import draws
from benfourier.attacks.stock import Crafted
from benfourier.errors import ImageError, InputError, OptionError, ResponseError, StoreError
from tests.attacks import maker
from tests.attacks.trained import Digits, digits, in_float64, unbeatable

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"attack": "bim-fixed", "chunk": 5}
WEAK = {"iterations": 20, "lr": 0.05}  # cw-l2 that succeeds on some digits only


def made(given: Digits | None = None, **options: Any) -> bf.Examples:
    held = given or digits()
    return bf.make_examples(held.subject, held.images, held.labels, **{"cache": False, **options})


def cached(folder: Path, given: Digits | None = None, **options: Any) -> int:
    """How many images came from the cache."""
    seen: list[Crafted] = []
    made(given, cache=folder, report=seen.append, **QUICK, **options)
    return sum(found.cached for found in seen)


def told(subject: bf.Subject, images: Tensor) -> Tensor:
    with torch.no_grad():
        return subject.logits(images).argmax(1)


def lengths(images: Tensor, clean: Tensor) -> Tensor:
    return (images.double() - clean.double()).flatten(1).square().sum(1).sqrt()


def equal(one: bf.Examples, other: bf.Examples) -> bool:
    pairs = [(one.clean, other.clean), (one.noisy, other.noisy)]
    pairs += [(one.attacked[name], other.attacked[name]) for name in one.attacks]
    pairs += [(one.success[name], other.success[name]) for name in one.attacks]
    return one.ids == other.ids and all(torch.equal(a, b) for a, b in pairs)


def test_clean_and_noisy_images_are_classified_correctly_and_successes_are_not() -> None:
    given, found = digits(), made(attack=["bim", "deepfool"])
    assert torch.equal(told(given.subject, found.clean), found.labels)
    assert torch.equal(told(given.subject, found.noisy), found.labels)
    for name in ("bim", "deepfool"):
        assert torch.equal(told(given.subject, found.attacked[name]) != found.labels, found.success[name])


def test_the_funnel_counts_what_fell() -> None:
    loud = made(attack="bim-fixed")  # so much noise that some noisy twins are misclassified
    counts = dict(loud.funnel.steps)
    assert list(counts) == ["given", "classified correctly", "noisy twin too"]
    assert counts["given"] == 24
    assert counts["classified correctly"] == 24 - digits().wrong
    assert counts["noisy twin too"] == len(loud) < 22


def test_rows_in_which_an_attack_failed_stay_and_are_masked() -> None:
    found = made(attack=["bim", "cw-l2"], options={"cw-l2": WEAK})
    lost = ~found.success["cw-l2"]
    assert 0 < int(lost.sum()) < len(found)
    assert torch.equal(found.attacked["cw-l2"][lost], found.clean[lost])
    assert found.success["bim"].all()
    assert len(found.for_attack("cw-l2")) == int((~lost).sum())


@pytest.mark.parametrize("noise", ["median", "mean"])
def test_noise_is_as_long_as_the_perturbations(noise: str) -> None:
    found = made(noise=noise)
    assert len(found) == 22  # no noisy twin fell, so that both are over the same images
    centre = torch.mean if noise == "mean" else lambda values: values.quantile(0.5)
    added, moved = lengths(found.noisy, found.clean), lengths(found.adversarial, found.clean)
    assert float(centre(added)) == pytest.approx(float(centre(moved)), rel=1e-3)
    assert float(found.noisy.min()) == 0.0
    assert float(found.noisy.max()) == 1.0


def test_attacks_that_stand_beside_do_not_move_the_noise() -> None:
    alone, both = made(attack="bim"), made(attack="bim", beside={"loud": ("bim-fixed", {"eps": 0.3})})
    assert both.attacks == ("bim", "loud")
    assert both.noise_level == alone.noise_level
    assert both.ids == alone.ids
    assert torch.equal(both.noisy, alone.noisy)
    assert int(both.success["loud"].sum()) > 10
    with pytest.raises(OptionError, match=r"attack and beside both hold 'bim'"):
        made(attack="bim", beside="bim")


def test_several_attacks_share_the_median_of_their_noise() -> None:
    seen: list[Crafted] = []
    found = made(attack=["bim", "deepfool", "r-pgd"], report=seen.append)
    middle = sorted(outcome.l2_centre() for outcome in seen)[1]
    assert float(lengths(found.noisy, found.clean).quantile(0.5)) == pytest.approx(middle, rel=1e-3)
    assert [outcome.entry.label for outcome in seen] == list(found.attacks)


def test_noise_belongs_to_the_id_and_the_seed() -> None:
    one = draws((1, 8, 8), 0, ["a", "b"])
    assert torch.equal(draws((1, 8, 8), 0, ["b", "a", "c"])[:2], one.flip(0))
    assert not torch.equal(draws((1, 8, 8), 1, ["a", "b"]), one)
    assert abs(float(draws((1, 8, 8), 0, list(map(str, range(100)))).std()) - 1) < 0.05  # 6400 draws: 5 deviations


def test_eight_bit_examples_lie_on_the_grid() -> None:
    given = digits()
    found = made(Digits(given.subject, (given.images * 255).round() / 255, given.labels, given.wrong), eight_bit=True)
    for images in (found.noisy, found.adversarial[found.success["bim"]]):
        assert torch.allclose(255 * images, (255 * images).round(), atol=1e-4)
    ours, theirs = lengths(found.noisy, found.clean), lengths(found.adversarial, found.clean)
    assert float(ours.quantile(0.5)) == pytest.approx(float(theirs[found.success["bim"]].quantile(0.5)), rel=0.05)


def test_another_batch_gives_the_same_successes() -> None:
    one, other = (
        made(attack=["bim", "cw-l2"], options={"cw-l2": WEAK}),
        made(attack=["bim", "cw-l2"], options={"cw-l2": WEAK}, batch=7),
    )
    assert one.ids == other.ids
    assert all(torch.equal(one.success[name], other.success[name]) for name in one.attacks)
    assert other.noise_level == pytest.approx(one.noise_level, rel=0.01)


def test_one_attack_can_be_had_at_several_strengths() -> None:
    found = made(attack={f"bim-fixed@{eps}": ("bim-fixed", {"eps": eps}) for eps in (0.1, 0.2)})
    assert found.attacks == ("bim-fixed@0.1", "bim-fixed@0.2")
    assert [float((found.attacked[name] - found.clean).abs().max()) for name in found.attacks] == pytest.approx(
        [0.1, 0.2], rel=1e-5
    )
    assert found.options["attacks"]["bim-fixed@0.2"] == {
        "attack": "bim-fixed",
        "options": {"eps": 0.2, "step": None, "iterations": 10},
    }


def test_one_image_is_enough() -> None:
    given = digits()
    found = made(Digits(given.subject, given.images[5:6], given.labels[5:6], 0))
    assert len(found) == 1
    added, moved = lengths(found.noisy, found.clean), lengths(found.adversarial, found.clean)
    assert float(added) == pytest.approx(float(moved), rel=1e-4)


def test_a_network_in_float64_gives_examples_in_float32() -> None:
    given = in_float64()
    found = made(given)
    assert found.clean.dtype == found.adversarial.dtype == torch.float32
    assert (told(given.subject, found.adversarial.double()) != found.labels).all()


def test_the_subject_is_left_as_found() -> None:
    given = digits()
    module = given.subject.module.train()
    before, state = deepcopy(module.state_dict()), torch.get_rng_state()
    try:
        made()
        assert module.training
        assert all(p.requires_grad for p in module.parameters())
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        module.eval()


class Counting(nn.Module):
    """Passes images on and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.passes.append(len(images))
        return images


def test_a_second_call_makes_no_forward_pass_and_gives_the_same(tmp_path: Path) -> None:
    given, counting = digits(), Counting()
    subject = bf.Subject(nn.Sequential(counting, *given.subject.module.children()), size=8, channels=1)
    counted = Digits(subject, given.images, given.labels, given.wrong)
    first = made(counted, attack=["bim", "r-pgd"], cache=tmp_path)
    assert len(counting.passes) > 100
    counting.passes.clear()
    second = made(counted, attack=["bim", "r-pgd"], cache=tmp_path)
    assert counting.passes == []
    assert equal(first, second)
    assert first.noise_level == second.noise_level


def test_what_is_in_the_cache_does_not_change_the_result(tmp_path: Path) -> None:
    assert equal(made(cache=tmp_path, **QUICK), made(**QUICK))
    for path in sorted(tmp_path.glob("??/*.safetensors"))[::2]:
        path.unlink()
    assert equal(made(cache=tmp_path, **QUICK), made(**QUICK))


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    first = made(cache=tmp_path, **QUICK)
    for path in tmp_path.glob("??/*.safetensors"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert cached(tmp_path) == 0
    assert cached(tmp_path) == 22
    assert equal(made(cache=tmp_path, **QUICK), first)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"options": {"bim-fixed": {"iterations": 9}}}, {"eight_bit": True}, {"batch": 3}], ids=str
)
def test_other_options_are_other_work(tmp_path: Path, change: dict[str, Any]) -> None:
    assert cached(tmp_path) == 0
    assert cached(tmp_path, **change) == 0
    assert cached(tmp_path) == 22


def test_other_images_labels_and_ids_are_other_work_for_their_chunks_only(tmp_path: Path) -> None:
    given = digits()
    cached(tmp_path)
    images = given.images.clone()
    images[-1] *= 0.999
    assert cached(tmp_path, Digits(given.subject, images, given.labels, 2)) == 20  # the last chunk holds 2
    assert cached(tmp_path, ids=[str(n) if n else "x" for n in range(24)]) == 22  # misclassified anyway
    assert cached(tmp_path, ids=[str(n) if n < 23 else "x" for n in range(24)]) == 20
    more = Digits(given.subject, torch.cat([given.images, given.images[2:3]]), given.labels[[*range(24), 2]], 2)
    assert cached(tmp_path, more) == 20


class Scaled(nn.Module):
    """The network of the tests with a functional operation and a factor in front."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.inner = deepcopy(digits().subject.module)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(F.relu(images) * self.factor)
        return logits


class Otherwise(Scaled):
    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(F.relu6(images) * self.factor)
        return logits


class Held(Scaled):
    """The same with something else beside the factor."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held


def far(last: float) -> Tensor:
    """A tensor too long to be written out."""
    return torch.tensor([*[0.0] * 2000, last, *[0.0] * 2000])


def nudged(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] += 1e-6
    return module


def test_another_network_is_other_work() -> None:
    subjects = [
        bf.Subject(Scaled()),
        bf.Subject(Scaled(1.5)),
        bf.Subject(Otherwise()),
        bf.Subject(nudged(Scaled())),
        bf.Subject(Scaled().double()),
        bf.Subject(Scaled(), bounds=(-1.0, 1.0)),
        bf.Subject(Scaled(), mean=[0.1]),
        bf.Subject(Scaled(), std=[0.1]),
    ]
    assert len({digest_of_subject(subject) for subject in subjects}) == len(subjects)
    assert digest_of_subject(bf.Subject(Scaled())) == digest_of_subject(subjects[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor(0.1), torch.tensor(0.1 + 1e-7)),
        ((far(0.0), 1), (far(1.0), 1)),
        (np.zeros(2000), np.append(np.zeros(1999), 1.0)),
        ([1.0, [2.0]], [1.0, [3.0]]),
        ({"a": {1, 2}}, {"a": {1, 3}}),
        (lambda x: x, lambda x: x + 1),
        (partial(torch.add, torch.tensor(1.0)), partial(torch.add, torch.tensor(2.0))),
        (SimpleNamespace(mean=torch.tensor(0.0)), SimpleNamespace(mean=torch.tensor(0.5))),
    ],
)
def test_a_network_that_holds_other_numbers_is_other_work(one: object, other: object) -> None:
    digests = [digest_of_subject(bf.Subject(Held(held))) for held in (one, deepcopy(one), other)]
    assert digests[0] == digests[1] != digests[2]


def test_an_attribute_that_leads_back_to_itself_ends() -> None:
    ring: list[object] = [1]
    ring.append(ring)
    assert digest_of_subject(bf.Subject(Held(ring)))


def start(folder: Path, cache: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.attacks.maker", str(folder), str(cache), str(out)]
    return subprocess.Popen(command, cwd=ROOT)  # noqa: S603


def entries(cache: Path) -> int:
    return len(list(cache.glob("??/*.safetensors")))


def test_a_killed_run_goes_on_and_gives_what_an_undisturbed_one_gives(tmp_path: Path) -> None:
    maker.keep(digits(), tmp_path)
    quiet, shared = tmp_path / "quiet", tmp_path / "shared"
    undisturbed = start(tmp_path, quiet, tmp_path / "undisturbed.bf")
    killed = start(tmp_path, shared, tmp_path / "killed.bf")
    classified = -(-24 // maker.CHUNK)  # chunks of the first pass over the network
    deadline = time.monotonic() + 120
    while entries(shared) < classified + 2:
        assert time.monotonic() < deadline
        with pytest.raises(subprocess.TimeoutExpired):  # it must not end by itself
            killed.wait(timeout=0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert undisturbed.wait() == 0
    assert not (tmp_path / "killed.bf").exists()
    assert classified + 2 <= entries(shared) < entries(quiet)
    # two processes at once go on from there
    both = [start(tmp_path, shared, tmp_path / f"{n}.bf") for n in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    wanted = (tmp_path / "undisturbed.bf").read_bytes()
    assert [(tmp_path / f"{n}.bf").read_bytes() == wanted for n in range(2)] == [True, True]
    assert entries(shared) == entries(quiet)


def test_the_bar_tells_success_and_distance(capsys: pytest.CaptureFixture[str]) -> None:
    made(show_progress=True)
    drawn = capsys.readouterr().err
    assert "22/22" in drawn
    assert "success 1.000, median L2 0." in drawn


def shifted(given: Digits) -> Tensor:
    return (told(given.subject, given.images) + 1) % 10


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"attack": "bin"}, "attack is 'bin'; allowed: .*; did you mean 'bim'?"),
        ({"attack": []}, "attack is empty; name at least one"),
        ({"attack": ["bim", "bim"]}, "attack names 'bim' twice; give each a label"),
        ({"attack": {"weak": ("bim",)}}, r"attack 'weak' is \('bim',\); it must be an id, or a pair of id and options"),
        ({"options": {"cw-l2": {}}}, "label in options is 'cw-l2'; allowed: bim"),
        ({"options": {"bim": {"epsilon": 1}}}, "bim has no option 'epsilon'; .*; did you mean 'eps'?"),
        ({"noise": "mode"}, "noise is 'mode'; allowed: median, mean"),
        ({"chunk": 0}, "chunk is 0; it must be a whole number of at least 1"),
        ({"batch": 0}, "batch is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_options_are_refused_before_any_work(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        made(**options)


def test_options_that_no_file_can_hold_are_refused() -> None:
    with pytest.raises(OptionError, match="the options of foolbox:L2PGD cannot be written as JSON"):
        made(attack="foolbox:L2PGD", options={"foolbox:L2PGD": {"eps": 1.0, "abs_stepsize": torch.ones(1)}})


def test_images_that_are_all_misclassified_are_refused() -> None:
    given = digits()
    with pytest.raises(InputError, match="classifies none of the 24 images correctly; check the labels"):
        made(Digits(given.subject, given.images, shifted(given), 24))


def test_attacks_that_never_succeed_are_named() -> None:
    images, labels = digits().images[:3], torch.zeros(3, dtype=torch.int64)
    with pytest.raises(InputError, match="bim, deepfool succeeded on none of the 3 images that are classified correct"):
        made(Digits(unbeatable(), images, labels, 0), attack=["bim", "deepfool"])


def test_an_attack_that_never_succeeds_beside_one_that_does_is_masked() -> None:
    found = made(attack={"bim": "bim", "weak": ("bim-fixed", {"eps": 1e-6})})
    assert not found.success["weak"].any()
    assert equal(found.for_attack("bim"), made())


class Dark(nn.Module):
    """Tells the share of bright pixels: nearly black images are 0, and all pixels must turn white for 1."""

    def forward(self, images: Tensor) -> Tensor:
        bright = images.flatten(1).mean(1)
        return torch.stack([0.8 - bright, bright - 0.8], 1)


def test_noise_that_cannot_be_long_enough_is_refused() -> None:
    images = torch.zeros(4, 1, 8, 8)
    with pytest.raises(InputError, match=r"perturbations is 8, that of noise within the bounds \(0.0, 1.0\) at most 5"):
        made(
            Digits(bf.Subject(Dark()), images, torch.zeros(4).long(), 0),
            attack="bim-fixed",
            options={"bim-fixed": {"eps": 1.0}},
        )


class Nervous(nn.Module):
    """Tells 0 for even images only."""

    def forward(self, images: Tensor) -> Tensor:
        spread = images.flatten(1).var(1)
        return torch.stack([-spread, spread - 1e-6], 1)


def test_noisy_twins_that_are_all_misclassified_are_refused() -> None:
    images = torch.full((4, 1, 8, 8), 0.5) + torch.linspace(0, 1e-4, 64).view(1, 1, 8, 8)
    subject = bf.Subject(Nervous())
    with pytest.raises(InputError, match=r"with noise of level .* none of the 4 images is classified correctly"):
        made(Digits(subject, images, torch.zeros(4).long(), 0), attack="bim-fixed")


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [(["a"] * 24, "24 values, 1 of them different"), (["a"], "one text per image, 24 in all")],
)
def test_ids_must_be_one_text_per_image(ids: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        made(ids=ids)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda labels: labels[:3], r"whole numbers of shape \(24,\)"),
        (lambda labels: labels.float(), "labels are torch.float32"),
        (lambda labels: labels + 5, "this subject has 10 classes"),
    ],
)
def test_labels_of_another_form_are_refused(change: Callable[[Tensor], Tensor], complaint: str) -> None:
    given = digits()
    with pytest.raises(InputError, match=complaint):
        made(Digits(given.subject, given.images, change(given.labels), 0))


def test_images_that_the_subject_does_not_take_are_refused() -> None:
    given = digits()
    with pytest.raises(ImageError, match="bounds"):
        made(Digits(given.subject, given.images * 2, given.labels, 0))


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4].log() * 0


def test_logits_that_are_not_finite_are_named_by_image() -> None:
    images = torch.ones(2, 1, 8, 8)
    images[1] = 0
    given = Digits(bf.Subject(Broken()), images, torch.zeros(2).long(), 0)
    with pytest.raises(ResponseError, match="image 'second'"):
        made(given, ids=["first", "second"])


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match="the cache cannot be written there"):
        made(cache=tmp_path / "file")
