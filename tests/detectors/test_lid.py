import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors import lid, neighbours
from benfourier.detectors.catalogue import method
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.dimensions import Dimensions, Shared
from benfourier.detectors.fitting import fit, measured
from benfourier.detectors.held_out import auroc, some
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import KS, LID
from benfourier.detectors.listening import INPUT, listen
from benfourier.detectors.mahalanobis import Mahalanobis
from benfourier.detectors.memo import Memo
from benfourier.detectors.method import Lessons, Listening
from benfourier.detectors.neighbours import Neighbours, local_dimensions, matrix
from benfourier.detectors.references import Pool
from benfourier.detectors.saving import load
from benfourier.errors import InputError, LayerError, OptionError
from benfourier.store import artifact
from benfourier.subjects.zoo import ZOO, network
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> Dimensions:
    return LID(**options).learn(toys().subject, Lessons(toys().fitted, None, False))  # type: ignore[arg-type]


def numbers(measure: Dimensions, images: Tensor, ids: Sequence[str] | None = None) -> Floats:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return numbers_of(toys().subject, [measure], images, names, show_progress=False)[0].numpy()


def responses(images: Tensor) -> list[Floats]:
    """The image, every module's response, and the posteriors, straight from the toy network."""
    module: nn.Sequential = toys().subject.module  # type: ignore[assignment]
    found = [images]
    with torch.no_grad():
        for part in module:
            found.append(part(found[-1].clone()))
        found.append(torch.softmax(found[-1].double(), 1))
    return [response.double().flatten(1).numpy() for response in found]


def naive(rows: Floats, references: Floats, k: int, left_out: Sequence[int | None], official: bool = False) -> Floats:
    """The formula, image by image; left_out names the reference that does not count."""
    found = []
    for row, without in zip(rows, left_out, strict=True):
        distances = [math.dist(row, other) for place, other in enumerate(references) if place != without]
        nearest = [max(r, 1e-12) for r in sorted(distances)[int(official) :][:k]]
        found.append(-k / sum(math.log(r / nearest[-1]) for r in nearest))
    return np.array(found)


def test_the_numbers_are_those_of_a_plain_loop() -> None:
    made, measure = toys(), learned(batch=60)
    images = torch.cat([made.tested.clean[:15], made.tested.attacked["bim"][:15]])
    wanted = [naive(a, b, 20, [None] * 30) for a, b in zip(responses(images), responses(measure.images), strict=True)]
    assert np.allclose(numbers(measure, images), np.stack(wanted, 1), rtol=1e-3)


def test_an_image_is_no_neighbour_of_itself_or_of_its_twins() -> None:
    made, measure = toys(), learned(batch=60)
    rows = [made.fitted.ids.index(name) for name in measure.ids[:10]]
    images, ids = made.fitted.noisy[rows], measure.ids[:10]
    wanted = [naive(a, b, 20, range(10)) for a, b in zip(responses(images), responses(measure.images), strict=True)]
    assert np.allclose(numbers(measure, images, ids), np.stack(wanted, 1), rtol=1e-3)
    assert not np.allclose(numbers(measure, images), np.stack(wanted, 1), rtol=0.02)
    clean = measure.images[:10]
    wanted = [naive(a, b, 20, range(10)) for a, b in zip(responses(clean), responses(measure.images), strict=True)]
    assert np.allclose(numbers(measure, clean, ids), np.stack(wanted, 1), rtol=1e-3)


def test_the_official_way_leaves_the_nearest_out_whichever_it_is() -> None:
    made, measure = toys(), learned(batch=60, official=True)
    images = torch.cat([made.tested.clean[:10], measure.images[:5]])
    wanted = [
        naive(a, b, 20, [None] * 15, official=True)
        for a, b in zip(responses(images), responses(measure.images), strict=True)
    ]
    assert np.allclose(numbers(measure, images), np.stack(wanted, 1), rtol=1e-3)


def test_several_mini_batches_are_averaged() -> None:
    made, measure = toys(), learned(batch=40, references=2, k=10)
    assert len(set(measure.ids)) == 80
    images = made.tested.clean[:10]
    both = [
        np.stack(
            [
                naive(a, b[part], 10, [None] * 10)
                for a, b in zip(responses(images), responses(measure.images), strict=True)
            ],
            1,
        )
        for part in (slice(0, 40), slice(40, 80))
    ]
    assert np.allclose(numbers(measure, images), np.mean(both, 0), rtol=1e-3)


def test_mini_batches_beyond_the_images_that_are_there_share_some() -> None:
    measure = learned(batch=100, references=3)
    names = np.array(measure.ids).reshape(3, 100)
    assert all(len(set(batch)) == 100 for batch in names)
    assert len(set(measure.ids)) == len(toys().fitted)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_near_neighbours_keep_their_digits(gap: float) -> None:
    # float32 holds an entry to 6e-8 of itself, so a gap of 1e-6 to a few per cent, and its length to far better
    draw = torch.Generator().manual_seed(0)
    middle = torch.randn(1, 3000, generator=draw)
    rows = 5 + middle + torch.randn(50, 3000, generator=draw)
    queries = rows[:4] + gap * torch.randn(4, 3000, generator=draw)
    centre = rows.mean(0)
    found = Neighbours(rows - centre, centre).squared(queries).double()
    wanted = torch.cdist(queries.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    assert torch.allclose(found, wanted, rtol=0.02)
    assert torch.allclose(found[:, 4:], wanted[:, 4:], rtol=1e-5)


def test_copies_among_the_neighbours_give_finite_numbers() -> None:
    measure = learned(batch=60, k=10)
    images = measure.images[:1].repeat(3, 1, 1, 1)
    found = numbers(measure, images)
    assert np.isfinite(found).all()
    assert (found > 0).all()


def test_neighbours_that_all_coincide_have_no_dimension() -> None:
    assert local_dimensions(torch.zeros(1, 30), (20,), 50) == 0


def test_neighbours_that_are_all_equally_far_have_as_many_dimensions_as_there_are_entries() -> None:
    assert local_dimensions(torch.ones(1, 30), (20,), 50) == 50


def test_points_in_a_cube_have_its_dimension() -> None:
    # the estimate from k = 100 of 20000 points deviates by 10 %, the mean over 200 queries by less than 1 %
    draw = torch.Generator().manual_seed(0)
    points = torch.rand(20000, 3, generator=draw)
    queries = 0.3 + 0.4 * torch.rand(200, 3, generator=draw)
    found = local_dimensions(torch.cdist(queries, points).square(), (100,), 10)
    assert float(found.mean()) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(("name", "count"), [("lid-cifar10", 34), ("lid-svhn", 20), ("lid-mnist", 16)])
def test_the_authors_networks_give_one_number_per_layer_and_one_for_the_image(name: str, count: int) -> None:
    entry = ZOO[name]
    subject = bf.Subject(network(name), mean=entry.scaling[0], size=entry.size, channels=entry.channels)
    images = torch.rand(12, entry.channels, entry.size, entry.size, generator=torch.Generator().manual_seed(0))
    made = toys().fitted.take(np.arange(12))
    examples = bf.Examples(
        clean=images,
        noisy=images,
        attacked={"bim": images},
        success={"bim": torch.ones(12, dtype=torch.bool)},
        labels=made.labels,
        ids=made.ids,
        noise_level=0.0,
        funnel=made.funnel,
        seed=0,
    )
    measure = LID(batch=10, k=5).learn(subject, Lessons(examples, None, False))
    assert len(measure.layers) == count
    assert measure.layers[0] == INPUT
    (found,) = numbers_of(subject, [measure], images[10:], ["a", "b"], show_progress=False)
    assert found.shape == (2, count)


def test_layers_can_be_chosen() -> None:
    assert learned(pass_through=False).layers == (INPUT, "0", "1", "2", "3", "5", "6", "8", "soft-max")
    assert learned(layers=("type:Linear", INPUT)).layers == (INPUT, "5", "8")
    assert learned(layers=INPUT).layers == (INPUT,)
    with pytest.raises(LayerError, match="'conv9' not found"):
        learned(layers=("conv9",))


def test_the_image_is_heard_as_it_enters_the_module() -> None:
    made = toys()
    subject = bf.Subject(made.subject.module, mean=[0.5], std=[0.25], size=8, channels=1)
    measure = LID(layers=(INPUT,)).learn(subject, Lessons(made.fitted, None, False))
    known = measure.known[INPUT]
    assert torch.allclose(known.rows + known.middle, ((measure.images - 0.5) / 0.25).flatten(1), atol=1e-5)


def test_maps_become_rows_in_one_order_whatever_their_layout() -> None:
    maps = torch.rand(2, 3, 4, 5)
    assert torch.equal(matrix(maps), matrix(maps.contiguous(memory_format=torch.channels_last)))
    assert matrix(torch.rand(2, 7, 3)).shape == (2, 21)


def test_neighbours_are_clean_images_that_the_classifier_is_fitted_to() -> None:
    made = toys()
    detector = LID(C=1.0, gamma="scale", batch=50).fit(made.subject, made.fitted, show_progress=False)
    measure = detector.measure
    assert isinstance(measure, Dimensions)
    for name, image in zip(measure.ids, measure.images, strict=True):
        assert torch.equal(image, made.fitted.clean[made.fitted.ids.index(name)])
    assert detector.summary["learned"] == {"batch": 50, "k": 20, "official": False}


def test_a_mini_batch_shrinks_to_what_is_there_and_says_so() -> None:
    assert learned(batch=100).batch == 100
    assert learned(batch=1000).batch == len(toys().fitted)
    few = toys().fitted.take(np.arange(15))
    with pytest.raises(InputError, match="15 clean images to take neighbours from; 20 neighbours need at least 21"):
        LID().learn(toys().subject, Lessons(few, None, False))


def test_k_is_the_one_that_tells_held_out_sources_apart_best() -> None:
    made = toys()
    examples = made.fitted.for_attack("bim")
    lessons = Lessons(examples, None, False)
    found = {}
    for k in [k for k in KS if k < 60]:
        measure = LID(k=k, batch=60, layers=("3", "6")).learn(made.subject, lessons)
        rows = measured(made.subject, measure, some(examples, seed=0), "trial", show_progress=False)
        found[k] = auroc(rows.numbers.numpy(), rows, seed=0)
    assert LID(k="cv", batch=60, layers=("3", "6")).learn(made.subject, lessons).k == max(found, key=lambda k: found[k])


def test_a_file_holds_the_reference_images_and_not_the_responses(tmp_path: Path) -> None:
    made = toys()
    detector = LID(C=1.0, gamma="scale", batch=50).fit(made.subject, made.fitted, show_progress=False)
    detector.save(tmp_path / "lid.bf")
    again = load(tmp_path / "lid.bf", made.subject)
    ids = list(made.fitted.ids)
    assert np.array_equal(again.score(made.fitted.noisy, ids=ids), detector.score(made.fitted.noisy, ids=ids))
    _, arrays = artifact.read(tmp_path / "lid.bf", "benfourier-detector", 1)
    assert [name for name in arrays if name.startswith("measure/")] == ["measure/images"]


def test_responses_are_kept_in_half_precision_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    images = toys().tested.clean
    whole = numbers(learned(batch=60), images)
    monkeypatch.setattr(neighbours, "FULL", 0)
    monkeypatch.setattr(neighbours, "LARGE", 500)
    monkeypatch.setattr(neighbours, "PIECE", 100)
    measure = learned(batch=60)
    narrow = [name for name in measure.layers if measure.known[name].rows.dtype == torch.bfloat16]
    assert narrow == ["0", "1", "2"]
    assert np.allclose(numbers(measure, images), whole, rtol=0.03)
    monkeypatch.setattr(neighbours, "MOST", 1000)
    with pytest.raises(InputError, match="choose some layers, or a smaller mini-batch"):
        learned(batch=60)


def test_distances_to_a_pool_are_shared_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = toys()
    pool = Pool(made.fitted.clean, made.fitted.ids)

    def shared(pool: Pool, **options: Any) -> bool:
        lessons = Lessons(made.fitted.take(np.arange(60)), None, False, pool=pool)
        return isinstance(LID(k=10, **options).learn(made.subject, lessons), Shared)

    assert shared(pool, batch=30)
    assert not shared(pool, batch=29)  # a quarter of the pool at least
    assert not shared(Pool(pool.images[:59], pool.ids[:59]))
    assert not shared(Pool(pool.images.flip(3), pool.ids))
    monkeypatch.setattr(lid, "WIDEST", 120 * 10)
    assert not shared(pool)
    assert shared(pool, pass_through=False)
    monkeypatch.setattr(neighbours, "FULL", 4 * 60 * 64)
    assert not shared(pool, layers=(INPUT,))  # it would be kept in half precision, and the references are not
    monkeypatch.setattr(neighbours, "FULL", 4 * 120 * 64)
    assert shared(pool, layers=(INPUT,))
    monkeypatch.setattr(lid, "MOST", 2 * 120 * 64 - 1)
    assert not shared(pool, layers=(INPUT,))


def test_fits_that_share_distances_keep_one_set_of_responses_for_as_long_as_they_live(tmp_path: Path) -> None:
    made = toys()
    pool = Pool(made.fitted.clean, made.fitted.ids)
    examples = made.fitted.for_attack("bim")
    memo = Memo("network", [examples.clean, examples.noisy, examples.adversarial], references=pool)
    halves = [examples.take(np.arange(80)), examples.take(np.arange(30, 120))]
    found = [
        fit(LID(C=1.0, gamma="scale", batch=50), made.subject, half, show_progress=False, memo=memo) for half in halves
    ]
    one, other = (detector.measure for detector in found)
    assert isinstance(one, Shared)
    assert isinstance(other, Shared)
    assert one.stage is other.stage
    assert one.ids != other.ids
    assert list(pool.shared.values()) == [one.stage]
    plain = fit(LID(C=1.0, gamma="scale", batch=50), made.subject, halves[0], show_progress=False)
    wanted = plain.score(made.tested.clean, show_progress=False)
    assert found[0].score(made.tested.clean, show_progress=False) == pytest.approx(wanted, abs=1e-4)
    found[0].save(tmp_path / "lid.bf")
    again = load(tmp_path / "lid.bf", made.subject).score(made.tested.clean, show_progress=False)
    assert again == pytest.approx(wanted, abs=1e-4)
    del one, other, found
    assert not pool.shared


def test_gradients_reach_the_image_through_detectors_that_listen() -> None:
    made = toys()
    for chosen in (LID(), Mahalanobis(), KDBU(bu=False)):
        measure = chosen.learn(made.subject, Lessons(made.fitted, None, False))
        assert isinstance(measure, Listening)
        leaf = made.tested.clean[:3].clone().requires_grad_()
        _, (found,) = listen(made.subject, leaf, [measure], ["a", "b", "c"])
        (slope,) = torch.autograd.grad(found.sum(), leaf)
        assert slope.isfinite().all()
        assert (slope.flatten(1).abs().amax(1) > 0).all()


def test_the_authors_preset_scales_to_their_range() -> None:
    chosen = method("lid", preset="authors")
    assert (chosen.final, chosen.scaling) == ("logistic", "min-max")


@pytest.mark.parametrize(
    "options", [{"k": 100}, {"k": 1}, {"k": "best"}, {"batch": 20}, {"references": 0}, {"layers": ()}]
)
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        LID(**options)  # type: ignore[arg-type]
