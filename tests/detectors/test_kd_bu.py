import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from sklearn.neighbors import KernelDensity
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors import bandwidth, dropout
from benfourier.detectors.bandwidth import best_bandwidth
from benfourier.detectors.densities import Densities, Density
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.dropout import Doubt, dropouts, parts_late
from benfourier.detectors.kd_bu import KDBU, DensityAndDoubt, penultimate
from benfourier.detectors.listening import INPUT
from benfourier.detectors.method import Lessons, Listening, Measure
from benfourier.detectors.saving import load
from benfourier.errors import LayerError, OptionError, SubjectError
from benfourier.subjects.zoo import ZOO, network
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> Density:
    measure = KDBU(bu=False, **options).learn(toys().subject, Lessons(toys().fitted, None, False))  # type: ignore[arg-type]
    assert isinstance(measure, Density)
    return measure


def numbers(measure: Measure, images: Tensor, ids: list[str] | None = None) -> Tensor:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return numbers_of(toys().subject, [measure], images, names, show_progress=False)[0]


def last_hidden(images: Tensor) -> Floats:
    module: nn.Sequential = toys().subject.module  # type: ignore[assignment]
    with torch.no_grad():
        return np.asarray(module[:7](images).double())


def sklearn_density(points: Floats, width: float, rows: Floats) -> Floats:
    return np.asarray(KernelDensity(bandwidth=width).fit(points).score_samples(rows))


def test_kd_is_the_density_that_scikit_learn_finds() -> None:
    made, measure = toys(), learned()
    images = torch.cat([made.tested.clean, made.tested.attacked["bim"]])
    rows, points = last_hidden(images), last_hidden(made.fitted.clean)
    predicted = made.subject.logits(images).argmax(1).tolist()
    wanted = [
        -sklearn_density(points[made.fitted.labels.numpy() == label], measure.bandwidth, row[None])[0]
        for label, row in zip(predicted, rows, strict=True)
    ]
    assert np.allclose(numbers(measure, images)[:, 0], wanted, rtol=1e-6)


def test_an_image_is_no_point_of_its_own_density() -> None:
    made, measure = toys(), learned(bandwidth=0.8)
    fitted, points = made.fitted, last_hidden(made.fitted.clean)
    labels, ids = fitted.labels.numpy(), list(fitted.ids)
    others = [(labels == labels[row]) & (np.arange(len(labels)) != row) for row in range(20)]
    wanted = [-sklearn_density(points[mask], 0.8, points[row][None])[0] for row, mask in enumerate(others)]
    assert np.allclose(numbers(measure, fitted.clean[:20], ids[:20])[:, 0], wanted, rtol=1e-6)
    assert (numbers(measure, fitted.clean[:20])[:, 0].numpy() < wanted).all()


def some_points() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(40, 3, generator=draw).double(), torch.arange(4).repeat_interleave(10)


def test_a_class_without_points_has_the_density_of_all_less_the_log_of_their_number() -> None:
    points, labels = some_points()
    rows, nobody = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), torch.zeros(5, 40, dtype=torch.bool)
    found = Densities(points, labels, 0.5).log_density(rows, torch.full((5,), 9), nobody)
    assert np.allclose(found, sklearn_density(points.numpy(), 0.5, rows.numpy()) - math.log(40))


def test_a_class_whose_only_point_is_the_image_itself_counts_as_one_without_points() -> None:
    points, labels = some_points()
    labels[-1] = 7
    own = torch.zeros(1, 40, dtype=torch.bool)
    own[0, -1] = True
    found = Densities(points, labels, 0.5).log_density(points[-1:], torch.tensor([7]), own)
    wanted = sklearn_density(points[:-1].numpy(), 0.5, points[-1:].numpy()) - math.log(40)
    assert np.allclose(found, wanted)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images, measure = toys().tested.clean, learned()
    whole = numbers(measure, images)
    monkeypatch.setattr("benfourier.detectors.densities.BLOCK", 1)
    assert torch.allclose(numbers(measure, images), whole, rtol=1e-12)


def test_far_images_have_a_finite_density() -> None:
    points, labels = some_points()
    nobody = torch.zeros(1, 40, dtype=torch.bool)
    found = Densities(points, labels, 0.01).log_density(torch.full((1, 3), 1e4), labels[:1], nobody)
    assert found.isfinite().all()
    assert found < -1e11


def test_the_bandwidth_is_the_likeliest_when_points_are_left_out_in_turn() -> None:
    points, labels = some_points()
    points[20:] *= 0.2
    parts = [points[labels == label].numpy() for label in range(4)]
    spread = np.sqrt(np.mean([((part - part.mean(0)) ** 2).mean() for part in parts]))
    likelihood = {
        width: sum(
            sklearn_density(np.delete(part, row, 0), width, part[row][None])[0] for part in parts for row in range(10)
        )
        for width in spread * bandwidth.FACTORS
    }
    assert best_bandwidth(points, labels, seed=0) == pytest.approx(max(likelihood, key=lambda width: likelihood[width]))


def test_copies_of_a_point_do_not_shrink_the_bandwidth() -> None:
    points, labels = some_points()
    twice = points.repeat_interleave(2, 0), labels.repeat_interleave(2)
    assert best_bandwidth(*twice, seed=0) == pytest.approx(best_bandwidth(points, labels, seed=0))


@pytest.mark.parametrize("points", [torch.zeros(6, 3), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))])
def test_classes_of_one_image_still_give_a_bandwidth(points: Tensor) -> None:
    width = best_bandwidth(points.double(), torch.arange(6), seed=0)
    assert 0 < width < 10


@contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """torch's own dropout, and nothing else, in training mode."""
    modules = [m for m in module.modules() if isinstance(m, nn.Dropout | nn.Dropout2d)]
    for m in modules:
        m.train()
    try:
        yield
    finally:
        module.eval()


def by_torch(subject: bf.Subject, images: Tensor, passes: int) -> Tensor:
    with torch.random.fork_rng(devices=[]), torch.no_grad(), dropping(subject.module):
        torch.manual_seed(0)
        entering = subject.normalise(images)
        found = torch.stack([torch.softmax(subject.module(entering).double(), 1) for _ in range(passes)], 1)
    return found.var(1, correction=0).mean(1)


def test_bu_is_the_variance_that_torchs_own_dropout_gives() -> None:
    # 4000 passes: the relative deviation of a variance is about sqrt(kurtosis / 4000); 40 images of it average out, and
    # each of the two sums below deviates by less than 2 %. 10 % is five of these: false failure below 1e-6
    made = toys()
    images = made.tested.attacked["bim"][:40]
    ours = Doubt(4000, 0, late=True).of(made.subject, images)
    assert float(ours.sum()) == pytest.approx(float(by_torch(made.subject, images, 4000).sum()), rel=0.1)


class Wide(nn.Module):
    """A residual network: copies of an image meet the image itself behind the dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.drop, self.again, self.head = nn.Dropout2d(0.3), nn.Dropout(0.4), nn.Linear(6, 10)

    def forward(self, images: Tensor) -> Tensor:
        found = torch.relu(self.first(images))
        found = found + self.second(self.drop(found))
        return self.head(self.again(found.mean((2, 3))))  # type: ignore[no-any-return]


def wide() -> bf.Subject:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return bf.Subject(Wide().eval(), size=8, channels=1)


def test_passes_part_at_the_first_dropout_where_they_can() -> None:
    made = toys()
    images = made.tested.clean[:6]
    assert parts_late(made.subject, images, seed=0)
    early, late = (torch.cat(list(Doubt(5, 0, late=late).posteriors(made.subject, images))) for late in (False, True))
    assert early.shape == (6, 5, 10)
    assert torch.allclose(early, late, atol=1e-6)


def test_passes_part_at_the_image_where_copies_would_meet_it() -> None:
    subject, images = wide(), toys().tested.clean[:20]
    assert not parts_late(subject, images[:3], seed=0)
    # as above: 2000 passes, 20 images, within 10 %
    ours = Doubt(2000, 0, late=False).of(subject, images)
    assert float(ours.sum()) == pytest.approx(float(by_torch(subject, images, 2000).sum()), rel=0.1)


def test_dropout_of_channels_drops_whole_ones() -> None:
    subject, images, seen = wide(), toys().tested.clean[:2], []
    module: Wide = subject.module  # type: ignore[assignment]
    handle = module.second.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    list(Doubt(8, 0, late=False).posteriors(subject, images))
    handle.remove()
    dropped = seen[-1].flatten(2) == 0  # (images · passes, channels, positions)
    whole = dropped.all(2)
    assert 0.1 < whole.double().mean() < 0.5
    relu = torch.relu(module.first(images)).repeat_interleave(8, 0).flatten(2)
    assert torch.allclose(seen[-1].flatten(2)[~whole], relu[~whole] / 0.7, rtol=1e-4)


def test_masks_belong_to_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    made = toys()
    images = made.tested.attacked["bim"][:9]
    whole = Doubt(7, 0, late=True).of(made.subject, images)
    alone = torch.cat([Doubt(7, 0, late=True).of(made.subject, image[None]) for image in images])
    assert torch.allclose(whole, alone, rtol=1e-4)
    assert not torch.allclose(whole, Doubt(7, 1, late=True).of(made.subject, images), rtol=1e-2)
    for name in ("CACHED", "MEMORY"):
        monkeypatch.setattr(dropout, name, 3 * 32 * 4 * 3)  # three rows at once: passes in three parts
    assert torch.allclose(whole, Doubt(7, 0, late=True).of(made.subject, images), rtol=1e-4)


def test_hooks_are_gone_when_a_pass_fails() -> None:
    subject = wide()
    plan = subject.plan()
    handle = subject.module.head.register_forward_hook(lambda *_: 1 / 0)  # type: ignore[union-attr]
    with pytest.raises(ZeroDivisionError):
        Doubt(2, 0, late=False)._once(subject, plan, toys().tested.clean[:2], dropout._Masks(["a", "b"], 0))
    handle.remove()
    assert sum(len(m._forward_hooks) for m in subject.module.modules()) == 0


class Functional(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.head, self.drop = nn.Linear(64, 10), nn.Dropout(p)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(F.dropout(self.drop(images.flatten(1)), 0.5, self.training))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("p", "names"), [(0.0, []), (0.2, ["drop"])])
def test_only_modules_that_drop_count_as_dropout(p: float, names: list[str]) -> None:
    subject = bf.Subject(Functional(p), size=8, channels=1)
    assert list(dropouts(subject.module, subject.plan())) == names


def test_a_network_without_dropout_gets_kd_alone_and_says_so(tmp_path: Path) -> None:
    made = toys()
    subject = bf.Subject(Functional(0.0).eval(), size=8, channels=1)
    examples = made.fitted.for_attack("bim")
    detector = KDBU(C=1.0, gamma="scale").fit(subject, examples, show_progress=False)
    assert isinstance(detector.measure, Listening)
    assert detector.needs == {"listens"} < detector.method.needs
    assert "no Dropout module" in detector.summary["learned"]["bu"]
    detector.save(tmp_path / "kd.bf")
    ids = list(examples.ids)
    again = load(tmp_path / "kd.bf", subject)
    assert np.array_equal(again.score(examples.clean, ids=ids), detector.score(examples.clean, ids=ids))
    with pytest.raises(SubjectError, match="functional dropout is not seen"):
        KDBU(bu=True).fit(subject, examples, show_progress=False)


def test_both_numbers_are_higher_for_attacked_images() -> None:
    made = toys()
    measure = KDBU().learn(made.subject, Lessons(made.fitted, None, False))
    assert isinstance(measure, DensityAndDoubt)
    clean, attacked = numbers(measure, made.tested.clean), numbers(measure, made.tested.attacked["bim"])
    assert (attacked.median(0).values > clean.median(0).values).all()


def test_points_come_from_images_beyond_the_examples_under_the_authors_rules() -> None:
    made = toys()
    measure = KDBU(rules="authors", bu=False).learn(made.subject, Lessons(made.fitted, made.clean, False))
    assert sorted(measure.ids) == sorted(made.clean.ids)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("lid-mnist", "11"),
        ("lid-cifar10", "29"),
        ("lid-svhn", "15"),
        ("cifar-resnet20", "mean()"),
        ("alexnet", "classifier.5"),
    ],
)
def test_the_last_hidden_layer_is_found(name: str, layer: str) -> None:
    entry = ZOO[name]
    subject = bf.Subject(network(name), size=entry.size, channels=entry.channels)
    assert penultimate(subject.plan().layers) == layer


def test_a_network_without_hidden_layers_is_heard_at_its_input() -> None:
    made = toys()
    subject = bf.Subject(Functional(0.0).eval(), size=8, channels=1)
    measure = KDBU().learn(subject, Lessons(made.fitted, None, False))
    assert measure.layer == INPUT
    order = made.fitted.labels.argsort(stable=True)
    assert torch.equal(measure.points, made.fitted.clean.flatten(1)[order])


def test_another_layer_can_be_named() -> None:
    assert learned(layer="3").points.shape[1] == 128
    with pytest.raises(LayerError, match="layer '33' not found"):
        learned(layer="33")
    with pytest.raises(OptionError, match="which 2 layers match"):
        learned(layer="type:Linear")


@pytest.mark.parametrize("options", [{"bandwidth": 0.0}, {"bandwidth": "auto"}, {"passes": 1}, {"bu": "yes"}])
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        KDBU(**options)  # type: ignore[arg-type]
