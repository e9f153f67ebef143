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
from benfourier.attacks.examples import MIXTURE, noise_draws
from benfourier.errors import ActivationError, ImageError, InputError, OptionError, StoreError
from benfourier.models.identity import NOISE_IMAGES, classifier_digest
from tests.attacks import maker
from tests.attacks.trained import Digits, digits, in_float64, unbeatable, unseen

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"attacks": "bim-fixed", "chunk": 5}
WEAK = bf.make_attack("cw-l2", iterations=20, lr=0.05)  # succeeds on some digits only
BOTH = {"bim": "bim", "deepfool": "deepfool"}


def examples_of(data: Digits | None = None, **options: Any) -> bf.Examples:
    data = data or digits()
    return bf.make_examples(data.classifier, data.images, data.labels, **{"attacks": "bim", "cache": False, **options})


def cached(folder: Path, data: Digits | None = None, **options: Any) -> int:
    """How many images came from the cache."""
    results: dict[str, bf.AttackResult] = {}
    examples_of(data, cache=folder, report=results.__setitem__, **{**QUICK, **options})
    return sum(result.cached for result in results.values())


def predicted(classifier: bf.Classifier, images: Tensor) -> Tensor:
    with torch.no_grad():
        return classifier.logits(images).argmax(1)


def lengths(images: Tensor, clean: Tensor) -> Tensor:
    return (images.double() - clean.double()).flatten(1).square().sum(1).sqrt()


def equal(one: bf.Examples, other: bf.Examples) -> bool:
    pairs = [(one.clean, other.clean), (one.noisy["noisy"], other.noisy["noisy"])]
    pairs += [(one.adversarial[name], other.adversarial[name]) for name in one.attacks]
    pairs += [(one.success[name], other.success[name]) for name in one.attacks]
    return one.ids == other.ids and all(torch.equal(a, b) for a, b in pairs)


def test_clean_and_noisy_images_are_classified_correctly_and_successes_are_not() -> None:
    data, examples = digits(), examples_of(attacks=BOTH)
    assert torch.equal(predicted(data.classifier, examples.clean), examples.labels)
    assert torch.equal(predicted(data.classifier, examples.noisy["noisy"]), examples.labels)
    for name in ("bim", "deepfool"):
        assert torch.equal(
            predicted(data.classifier, examples.adversarial[name]) != examples.labels, examples.success[name]
        )


def test_the_counts_say_how_many_images_each_step_leaves() -> None:
    examples = examples_of(attacks="bim-fixed")  # so much noise that some noisy twins are misclassified
    counts = dict(examples.counts)
    assert list(counts) == ["given", "classified correctly", "noisy twin too"]
    assert counts["given"] == 24
    assert counts["classified correctly"] == 24 - digits().wrong
    assert counts["noisy twin too"] == len(examples) < 22


def test_images_that_make_no_example_are_left_out_in_their_order() -> None:
    data, examples = digits(), examples_of(attacks="bim-fixed")
    assert examples.left_out is not None
    rows = [row for row in range(len(data.images)) if str(row) not in examples.ids]
    assert rows[: data.wrong] == list(range(data.wrong))
    assert len(rows) > data.wrong  # others have a noisy twin that is misclassified
    assert torch.equal(examples.left_out, data.images[rows])
    assert torch.equal(examples.for_attack("bim-fixed").left_out, examples.left_out)  # type: ignore[arg-type]


def test_rows_in_which_an_attack_failed_stay_and_are_masked() -> None:
    examples = examples_of(attacks={"bim": "bim", "cw-l2": WEAK})
    failed = ~examples.success["cw-l2"]
    assert 0 < int(failed.sum()) < len(examples)
    assert torch.equal(examples.adversarial["cw-l2"][failed], examples.clean[failed])
    assert examples.success["bim"].all()
    assert len(examples.for_attack("cw-l2")) == int((~failed).sum())


@pytest.mark.parametrize("noise", ["median", "mean"])
def test_noise_is_as_long_as_the_perturbations(noise: str) -> None:
    examples = examples_of(noise=noise)
    assert len(examples) == 22  # no noisy twin was dropped, so both are over the same images
    centre = torch.mean if noise == "mean" else lambda values: values.quantile(0.5)
    added, moved = (
        lengths(examples.noisy["noisy"], examples.clean),
        lengths(examples.adversarial["bim"], examples.clean),
    )
    assert float(centre(added)) == pytest.approx(float(centre(moved)), rel=1e-3)
    assert float(examples.noisy["noisy"].min()) == 0.0
    assert float(examples.noisy["noisy"].max()) == 1.0


def test_only_the_attacks_of_noise_from_set_the_level_of_the_noise() -> None:
    attacks = {"bim": "bim", "strong": bf.make_attack("bim-fixed", eps=0.3)}
    alone, both = examples_of(attacks="bim"), examples_of(attacks=attacks, noise_from=["bim"])
    assert both.attacks == ("bim", "strong")
    assert both.noise_levels["noisy"] == alone.noise_levels["noisy"]
    assert both.ids == alone.ids
    assert torch.equal(both.noisy["noisy"], alone.noisy["noisy"])
    assert int(both.success["strong"].sum()) > 10
    assert examples_of(attacks=attacks).noise_levels["noisy"] > alone.noise_levels["noisy"]


def test_several_attacks_share_the_median_of_their_noise() -> None:
    results: dict[str, bf.AttackResult] = {}
    attacks = {name: name for name in ("bim", "deepfool", "r-pgd")}
    examples = examples_of(attacks=attacks, report=results.__setitem__)
    middle = sorted(result.median_l2 for result in results.values())[1]
    assert float(lengths(examples.noisy["noisy"], examples.clean).quantile(0.5)) == pytest.approx(middle, rel=1e-3)
    assert list(results) == list(examples.attacks)


def test_levels_of_noise_may_be_given_with_or_without_attacks() -> None:
    levels = {"weak": 0.02, "strong": 0.5}
    benign = examples_of(attacks={}, noise=levels)
    assert benign.attacks == ()
    assert dict(benign.noise_levels) == levels
    assert benign.counts[-1] == ("noisy twin too", len(benign))
    assert len(benign) < 22  # the strong noise misleads on some digits
    for images in benign.noisy.values():
        assert torch.equal(predicted(digits().classifier, images), benign.labels)
    both = examples_of(attacks="bim-fixed", noise=levels)
    assert both.ids == benign.ids
    assert torch.equal(both.noisy["weak"], benign.noisy["weak"])
    plain = examples_of(attacks={}, noise={})
    assert plain.counts == (("given", 24), ("classified correctly", 22))


def test_noise_belongs_to_the_id_and_the_seed() -> None:
    one = noise_draws((1, 8, 8), 0, ["a", "b"])
    assert torch.equal(noise_draws((1, 8, 8), 0, ["b", "a", "c"])[:2], one.flip(0))
    assert not torch.equal(noise_draws((1, 8, 8), 1, ["a", "b"]), one)
    assert (
        abs(float(noise_draws((1, 8, 8), 0, list(map(str, range(100)))).std()) - 1) < 0.05
    )  # 6400 draws: 5 deviations


def test_eight_bit_examples_lie_on_the_grid() -> None:
    data = digits()
    examples = examples_of(
        Digits(data.classifier, (data.images * 255).round() / 255, data.labels, data.wrong), eight_bit=True
    )
    for images in (examples.noisy["noisy"], examples.adversarial["bim"][examples.success["bim"]]):
        assert torch.allclose(255 * images, (255 * images).round(), atol=1e-4)
    ours, theirs = (
        lengths(examples.noisy["noisy"], examples.clean),
        lengths(examples.adversarial["bim"], examples.clean),
    )
    assert float(ours.quantile(0.5)) == pytest.approx(float(theirs[examples.success["bim"]].quantile(0.5)), rel=0.05)


def test_another_batch_gives_the_same_successes() -> None:
    one, other = (
        examples_of(attacks={"bim": "bim", "cw-l2": WEAK}),
        examples_of(attacks={"bim": "bim", "cw-l2": WEAK}, batch=7),
    )
    assert one.ids == other.ids
    assert all(torch.equal(one.success[name], other.success[name]) for name in one.attacks)
    assert other.noise_levels["noisy"] == pytest.approx(one.noise_levels["noisy"], rel=0.01)


def test_one_attack_can_be_run_at_several_strengths() -> None:
    examples = examples_of(attacks={f"bim-fixed@{eps}": bf.make_attack("bim-fixed", eps=eps) for eps in (0.1, 0.2)})
    assert examples.attacks == ("bim-fixed@0.1", "bim-fixed@0.2")
    assert [
        float((examples.adversarial[name] - examples.clean).abs().max()) for name in examples.attacks
    ] == pytest.approx([0.1, 0.2], rel=1e-5)
    assert examples.options["attacks"]["bim-fixed@0.2"] == {
        "attack": "bim-fixed",
        "options": {"eps": 0.2, "step": None, "iterations": 10},
    }


def test_one_image_is_enough() -> None:
    data = digits()
    examples = examples_of(Digits(data.classifier, data.images[5:6], data.labels[5:6], 0))
    assert len(examples) == 1
    added, moved = (
        lengths(examples.noisy["noisy"], examples.clean),
        lengths(examples.adversarial["bim"], examples.clean),
    )
    assert float(added) == pytest.approx(float(moved), rel=1e-4)


def test_a_network_in_float64_gives_examples_in_float32() -> None:
    data = in_float64()
    examples = examples_of(data)
    assert examples.clean.dtype == examples.adversarial["bim"].dtype == torch.float32
    assert (predicted(data.classifier, examples.adversarial["bim"].double()) != examples.labels).all()


def test_the_classifier_is_left_as_found() -> None:
    data = digits()
    module = data.classifier.module.train()
    before, state = deepcopy(module.state_dict()), torch.get_rng_state()
    try:
        examples_of()
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


def test_a_second_call_attacks_nothing_and_gives_the_same(tmp_path: Path) -> None:
    data, counting = digits(), Counting()
    classifier = bf.Classifier(nn.Sequential(counting, *data.classifier.module.children()), size=8, channels=1)
    counted = Digits(classifier, data.images, data.labels, data.wrong)
    first = examples_of(counted, attacks={"bim": "bim", "r-pgd": "r-pgd"}, cache=tmp_path)
    assert len(counting.passes) > 100
    counting.passes.clear()
    second = examples_of(counted, attacks={"bim": "bim", "r-pgd": "r-pgd"}, cache=tmp_path)
    assert sum(counting.passes) == NOISE_IMAGES + 24 + 22  # the digest, the clean images, their noisy twins
    assert equal(first, second)
    assert first.noise_levels["noisy"] == second.noise_levels["noisy"]


def test_what_is_in_the_cache_does_not_change_the_result(tmp_path: Path) -> None:
    assert equal(examples_of(cache=tmp_path, **QUICK), examples_of(**QUICK))
    for path in sorted(tmp_path.glob("??/*.safetensors"))[::2]:
        path.unlink()
    assert equal(examples_of(cache=tmp_path, **QUICK), examples_of(**QUICK))


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    first = examples_of(cache=tmp_path, **QUICK)
    for path in tmp_path.glob("??/*.safetensors"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert cached(tmp_path) == 0
    assert cached(tmp_path) == 22
    assert equal(examples_of(cache=tmp_path, **QUICK), first)


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"attacks": bf.make_attack("bim-fixed", iterations=9)}, {"eight_bit": True}, {"batch": 3}],
    ids=str,
)
def test_images_are_attacked_anew_with_other_options(tmp_path: Path, change: dict[str, Any]) -> None:
    assert cached(tmp_path) == 0
    assert cached(tmp_path, **change) == 0
    assert cached(tmp_path) == 22


def test_other_images_and_ids_are_attacked_anew_in_their_chunks_only(tmp_path: Path) -> None:
    data = digits()
    cached(tmp_path)
    images = data.images.clone()
    images[-1] *= 0.999
    assert cached(tmp_path, Digits(data.classifier, images, data.labels, 2)) == 20  # the last chunk holds 2
    assert cached(tmp_path, ids=[str(n) if n else "x" for n in range(24)]) == 22  # misclassified anyway
    assert cached(tmp_path, ids=[str(n) if n < 23 else "x" for n in range(24)]) == 20
    more = Digits(data.classifier, torch.cat([data.images, data.images[2:3]]), data.labels[[*range(24), 2]], 2)
    assert cached(tmp_path, more) == 20


class Scaled(nn.Module):
    """The network of the tests with a functional operation and a factor in front."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.inner = deepcopy(digits().classifier.module)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(F.relu(images) * self.factor)
        return logits


class OtherOperation(Scaled):
    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(F.relu6(images) * self.factor)
        return logits


def nudged(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] += 1e-6
    return module


def test_another_network_has_another_digest() -> None:
    models = [
        bf.Classifier(Scaled()),
        bf.Classifier(Scaled(1.5)),
        bf.Classifier(OtherOperation()),
        bf.Classifier(nudged(Scaled())),
        bf.Classifier(Scaled().double()),
        bf.Classifier(Scaled(), bounds=(-1.0, 1.0)),
        bf.Classifier(Scaled(), mean=[0.1]),
        bf.Classifier(Scaled(), std=[0.1]),
    ]
    digests = {classifier_digest(classifier, (1, 8, 8)) for classifier in models}
    assert len(digests) == len(models)
    assert classifier_digest(bf.Classifier(Scaled()), (1, 8, 8)) == classifier_digest(models[0], (1, 8, 8))


class IndirectFactor(Scaled):
    """The same with a second factor, which a function returns."""

    def __init__(self, stored_factor: Callable[[], float]) -> None:
        super().__init__()
        self.stored_factor = stored_factor

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * self.stored_factor()


@pytest.mark.parametrize(
    "stored",
    [
        lambda factor: lambda: factor,
        lambda factor: partial(float, factor),
        lambda factor: SimpleNamespace(mean=torch.tensor(factor)).mean.item,
        lambda factor: {"factor": np.float64(factor)}["factor"].item,
    ],
    ids=["closure", "partial", "tensor", "array"],
)
def test_a_network_that_computes_with_other_numbers_has_another_digest(
    stored: Callable[[float], Callable[[], float]],
) -> None:
    digests = [
        classifier_digest(bf.Classifier(IndirectFactor(stored(factor))), (1, 8, 8)) for factor in (1.0, 1.0, 1.0 + 1e-6)
    ]
    assert digests[0] == digests[1] != digests[2]


def start(folder: Path, cache: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.attacks.maker", str(folder), str(cache), str(out)]
    return subprocess.Popen(command, cwd=ROOT)  # noqa: S603


def entries(cache: Path) -> int:
    return len(list(cache.glob("??/*.safetensors")))


def test_a_killed_run_goes_on_and_gives_what_an_undisturbed_one_gives(tmp_path: Path) -> None:
    maker.save_inputs(digits(), tmp_path)
    quiet, shared = tmp_path / "quiet", tmp_path / "shared"
    undisturbed = start(tmp_path, quiet, tmp_path / "undisturbed.bf")
    killed = start(tmp_path, shared, tmp_path / "killed.bf")
    deadline = time.monotonic() + 120
    while entries(shared) < 2:
        assert time.monotonic() < deadline
        with pytest.raises(subprocess.TimeoutExpired):  # it must not end by itself
            killed.wait(timeout=0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert undisturbed.wait() == 0
    assert not (tmp_path / "killed.bf").exists()
    assert 2 <= entries(shared) < entries(quiet)
    # two processes at once go on from there
    both = [start(tmp_path, shared, tmp_path / f"{n}.bf") for n in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    expected = (tmp_path / "undisturbed.bf").read_bytes()
    assert [(tmp_path / f"{n}.bf").read_bytes() == expected for n in range(2)] == [True, True]
    assert entries(shared) == entries(quiet)


def test_the_progress_bar_shows_success_and_distance(capsys: pytest.CaptureFixture[str]) -> None:
    examples_of(show_progress=True)
    output = capsys.readouterr().err
    assert "22/22" in output
    assert "success 1.000, median L2 0." in output


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"attacks": "bin"}, "attack is 'bin'; allowed: .*; did you mean 'bim'?"),
        ({"attacks": {}}, "attacks is empty, so that no perturbation sets the level of the noise"),
        ({"attacks": ["bim", "bim"]}, "attacks is .*; it must be an id, an Attack, or a mapping from labels to these"),
        ({"attacks": {"weak": ("bim",)}}, r"attack is \('bim',\); it must be an id"),
        ({"noise_from": ["cw-l2"]}, "label in noise_from is 'cw-l2'; allowed: bim"),
        ({"noise_from": []}, "noise_from is \\[\\]; it must be labels of attacks, among bim"),
        ({"noise_from": "bim"}, "noise_from is 'bim'; it must be labels of attacks"),
        ({"noise": {"weak": -1}}, r"noise\['weak'\] is -1"),
        ({"noise": {"weak": 1}, "noise_from": ["bim"]}, "the levels of the noise are given; leave one out"),
        ({"noise": "mode"}, "noise is 'mode'; allowed: median, mean"),
        ({"chunk": 0}, "chunk is 0; it must be a whole number of at least 1"),
        ({"batch": 0}, "batch is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_options_are_refused_before_any_work(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        examples_of(**options)


def test_options_that_no_file_can_hold_are_refused() -> None:
    with pytest.raises(OptionError, match="the options of foolbox:L2PGD cannot be written as JSON"):
        examples_of(attacks=bf.make_attack("foolbox:L2PGD", eps=1.0, abs_stepsize=torch.ones(1)))


def test_labels_that_the_network_never_gives_are_refused_before_any_attack() -> None:
    data = digits()
    never = (predicted(data.classifier, data.images) + 1 + torch.arange(24) % 9) % 10
    with pytest.raises(InputError, match=r"right about 0.0% of 24 images, hardly more often than by chance \(10.0%\)"):
        examples_of(Digits(data.classifier, data.images, never, 24), report=lambda *_: pytest.fail("attacked"))


def test_labels_in_another_order_than_the_classes_of_the_network_are_refused() -> None:
    labels = (unseen().labels - 1) % 10
    with pytest.raises(InputError, match=r"its classes in another order: label 0 where the network says 1 \(1\)"):
        bf.make_examples(digits().classifier, unseen().images, labels, attacks="bim")


def test_the_accuracy_is_said_before_the_first_attack() -> None:
    lines: list[str] = []
    examples_of(attacks="bim-fixed", say=lines.append, report=lambda label, _: lines.append(label))
    assert lines == ["the network is right about 91.7% (73.0 to 99.0) of 24 images", "bim-fixed"]


def test_attacks_that_never_succeed_are_named() -> None:
    images, labels = digits().images[:3], torch.zeros(3, dtype=torch.int64)
    with pytest.raises(InputError, match="bim, deepfool succeeded on none of the 3 images that are classified correct"):
        examples_of(Digits(unbeatable(), images, labels, 0), attacks=BOTH)


def test_an_attack_that_never_succeeds_beside_one_that_does_is_masked() -> None:
    examples = examples_of(attacks={"bim": "bim", "weak": bf.make_attack("bim-fixed", eps=1e-6)})
    assert not examples.success["weak"].any()
    assert equal(examples.for_attack("bim"), examples_of())


class Dark(nn.Module):
    """Predicts 1 where the mean brightness is above 0.8, which takes black images nearly to white, else 0."""

    def forward(self, images: Tensor) -> Tensor:
        bright = images.flatten(1).mean(1)
        return torch.stack([0.8 - bright, bright - 0.8], 1)


def test_noise_that_cannot_be_long_enough_is_refused() -> None:
    images = torch.zeros(4, 1, 8, 8)
    with pytest.raises(InputError, match=r"perturbations is 8, that of noise within the bounds \(0.0, 1.0\) at most 5"):
        examples_of(
            Digits(bf.Classifier(Dark()), images, torch.zeros(4).long(), 0),
            attacks=bf.make_attack("bim-fixed", eps=1.0),
        )


class NoiseSensitive(nn.Module):
    """Predicts 0 only where all pixels are nearly equal."""

    def forward(self, images: Tensor) -> Tensor:
        spread = images.flatten(1).var(1)
        return torch.stack([-spread, spread - 1e-6], 1)


def test_noisy_twins_that_are_all_misclassified_are_refused() -> None:
    images = torch.full((4, 1, 8, 8), 0.5) + torch.linspace(0, 1e-4, 64).view(1, 1, 8, 8)
    classifier = bf.Classifier(NoiseSensitive())
    with pytest.raises(InputError, match=r"with noise of level .* none of the 4 images is classified correctly"):
        examples_of(Digits(classifier, images, torch.zeros(4).long(), 0), attacks="bim-fixed")


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [(["a"] * 24, "labelled images"), (["a"], "24 images and 1 ids; each image needs one id")],
)
def test_ids_must_be_one_text_per_image(ids: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        examples_of(ids=ids)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda labels: labels[:3], r"whole numbers \(24,\)"),
        (lambda labels: labels.float(), "labels are torch.float32"),
        (lambda labels: labels + 5, "this classifier has 10 classes"),
    ],
)
def test_labels_of_another_form_are_refused(change: Callable[[Tensor], Tensor], complaint: str) -> None:
    data = digits()
    with pytest.raises(InputError, match=complaint):
        examples_of(Digits(data.classifier, data.images, change(data.labels), 0))


def test_images_that_the_classifier_does_not_take_are_refused() -> None:
    data = digits()
    with pytest.raises(ImageError, match="bounds"):
        examples_of(Digits(data.classifier, data.images * 2, data.labels, 0))


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4].log() * 0


def test_logits_that_are_not_finite_are_named_by_image() -> None:
    images = torch.ones(2, 1, 8, 8)
    images[1] = 0
    data = Digits(bf.Classifier(Broken()), images, torch.zeros(2).long(), 0)
    with pytest.raises(ActivationError, match="image 'second'"):
        examples_of(data, ids=["first", "second"])


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match="the cache cannot be written there"):
        examples_of(cache=tmp_path / "file")


def test_the_default_mixture_holds_weak_attacks_and_a_level_of_noise_for_each() -> None:
    examples = examples_of(attacks="default")
    assert examples.attacks == tuple(MIXTURE)
    levels = examples.noise_levels
    assert set(levels) == {"noisy", *(f"noisy, {label}" for label in MIXTURE)}
    assert levels["noisy, weak"] < levels["noisy"] < levels["noisy, strong"]
    for name, images in examples.noisy.items():
        assert torch.equal(predicted(digits().classifier, images), examples.labels), name


def test_images_that_cannot_bear_the_noise_of_an_attack_have_a_half_or_a_quarter_of_it() -> None:
    examples = examples_of(attacks="default")
    assert len(examples) == dict(examples.counts)["classified correctly"]  # with whole noise half of them would go
    drawn = noise_draws(examples.clean.shape[1:], examples.seed, examples.ids)
    for name, level in examples.noise_levels.items():
        shares = []
        for row, noisy in enumerate(examples.noisy[name]):
            fits = [
                halving
                for halving in range(6)
                if torch.equal((examples.clean[row] + level / 2**halving * drawn[row]).clamp(0, 1), noisy)
            ]
            shares += fits
        assert len(shares) == len(examples)
        assert (max(shares) > 0) == (name != "noisy, weak")


def test_noise_of_each_attack_is_as_long_as_that_attack() -> None:
    examples = examples_of(attacks=BOTH, noise="each")
    assert set(examples.noisy) == {"noisy", "noisy, bim", "noisy, deepfool"}
    for label in BOTH:
        own = lengths(examples.noisy[f"noisy, {label}"], examples.clean).quantile(0.5)
        attacked = lengths(examples.adversarial[label], examples.clean)[examples.success[label]].quantile(0.5)
        assert float(own) == pytest.approx(float(attacked), rel=0.2)  # images were left out after the level was found
