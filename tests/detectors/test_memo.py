"""The memo: numbers once, the same whoever asks first."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benfourier.attacks.identity import digest_of_subject
from benfourier.detectors.c1c2 import C1C2
from benfourier.detectors.catalogue import METHODS
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.fitting import fit
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import LID
from benfourier.detectors.mahalanobis import Mahalanobis
from benfourier.detectors.mbf import MBF
from benfourier.detectors.memo import CHUNK, WIDE, Memo
from benfourier.detectors.method import Lessons, Method, Staged
from benfourier.detectors.references import Pool
from benfourier.store.cache import open_cache
from benfourier.subjects.subject import Subject
from tests.detectors.toys import toys


@dataclass(frozen=True, eq=False)
class Counting:
    """Brightness, and how many images it was asked about."""

    factor: float = 1.0
    asked: list[int] = field(default_factory=list, init=False)

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        self.asked.append(len(images))
        return self.factor * images.flatten(1).mean(1, keepdim=True)


@dataclass(frozen=True)
class Repeated:
    """Brightness, many times."""

    times: int

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        return images.flatten(1).mean(1, keepdim=True).repeat(1, self.times)


def dropping() -> Subject:
    """A network with dropout, as it was made."""
    torch.manual_seed(0)
    layers = [
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    ]
    return Subject(nn.Sequential(*layers), size=8, channels=1)


def test_an_image_is_measured_once_however_often_it_is_asked_for() -> None:
    made, measure = toys(), Counting()
    images = made.fitted.clean
    memo = Memo("network", [images, images.flip(0)])
    found = memo.numbers(made.subject, measure, images)
    assert torch.equal(found[:, 0], images.flatten(1).mean(1).double())
    assert torch.equal(memo.numbers(made.subject, measure, images[[5, 3]]), found[[5, 3]])
    assert sum(measure.asked) == len(images)
    assert memo.numbers(made.subject, Counting(2.0), images[:3]).tolist() == (2 * found[:3]).tolist()


def test_numbers_are_the_same_bits_whoever_asks_first() -> None:
    made, images = toys(), toys().fitted.clean
    measure = MBF(orders=4).learn(made.subject, Lessons(made.fitted))
    one, other = (Memo("network", [images]) for _ in range(2))
    whole = one.numbers(made.subject, measure, images)
    few = other.numbers(made.subject, measure, images[[7, 99]])
    assert torch.equal(few, whole[[7, 99]])
    (plain,) = numbers_of(made.subject, [measure], images, made.fitted.ids, show_progress=False)
    assert torch.allclose(plain, whole, atol=1e-5)


def test_numbers_outlive_the_process_in_the_cache(tmp_path: Path) -> None:
    made, images, first, second = toys(), toys().fitted.clean[:10], Counting(), Counting()
    found = Memo("network", [images], open_cache(tmp_path)).numbers(made.subject, first, images)
    again = Memo("network", [images], open_cache(tmp_path)).numbers(made.subject, second, images)
    assert torch.equal(found, again)
    assert (first.asked, second.asked) == ([10], [])
    Memo("another", [images], open_cache(tmp_path)).numbers(made.subject, second, images)
    assert second.asked == [10]


def test_images_that_are_not_in_the_pool_are_refused() -> None:
    made = toys()
    with pytest.raises(KeyError):
        Memo("network", [made.fitted.clean]).numbers(made.subject, Counting(), made.tested.clean)


@pytest.mark.parametrize("name", ["mbf", "max-softmax", "lid", "kd-bu", "mahalanobis"])
def test_a_fit_with_a_memo_gives_the_same_detector(name: str) -> None:
    made = toys()
    examples = made.fitted.for_attack("bim")
    method = METHODS[name](C=1.0, gamma="scale")
    pool = [examples.clean, examples.noisy, examples.adversarial]
    memo = Memo(digest_of_subject(made.subject), pool)
    one = fit(method, made.subject, examples, show_progress=False)
    other = fit(method, made.subject, examples, show_progress=False, memo=memo)
    scores = [found.score(made.tested.clean, show_progress=False) for found in (one, other)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_criteria_are_kept_apart_so_that_one_can_change_alone(tmp_path: Path) -> None:
    made, images = toys(), toys().fitted.clean[:20]
    method = C1C2(sigma=0.03, step_t=0.05, step_u=1.0, cap_t=5, cap_u=5)
    measure = method.learn(made.subject, Lessons(made.fitted))
    memo = Memo("network", [images], open_cache(tmp_path))
    found = memo.numbers(made.subject, measure, images)
    (whole,) = numbers_of(made.subject, [measure], images, made.fitted.ids[:20], show_progress=False)
    assert torch.allclose(found, whole, atol=1e-6)
    files = set(tmp_path.rglob("*.safetensors"))
    other = method.learn(made.subject, Lessons(made.fitted)).with_value("sigma", 0.1, measure.words)
    changed = memo.numbers(made.subject, other, images)
    assert len(files) == 3
    assert len(set(tmp_path.rglob("*.safetensors")) - files) == 1
    assert torch.equal(changed[:, 1:], found[:, 1:])
    assert not torch.equal(changed[:, 0], found[:, 0])


@pytest.mark.parametrize(
    "method",
    [KDBU(), KDBU(bu=False), Mahalanobis(), LID(k=10, batch=30, references=2), LID(k=10, batch=40, official=True)],
)
def test_stages_give_the_numbers_of_the_whole_and_are_shared_by_fits(method: Method) -> None:
    made, network = toys(), dropping()
    memo = Memo(digest_of_subject(network), [made.fitted.clean, made.fitted.noisy])
    pool = Pool(made.fitted.clean, made.fitted.ids)
    for examples in (made.fitted.take(np.arange(60)), made.fitted.take(np.arange(40, 120))):
        measure = method.learn(network, Lessons(examples, pool=pool))
        assert isinstance(measure, Staged)
        (whole,) = numbers_of(network, [measure], made.fitted.noisy, made.fitted.ids, show_progress=False)
        found = memo.of(network, measure, made.fitted.noisy, made.fitted.ids)
        assert torch.allclose(found, whole, rtol=1e-4, atol=1e-6)
        strangers = memo.of(network, measure, made.fitted.noisy, [f"apart-{row}" for row in range(120)])
        same = isinstance(method, LID) and method.official
        assert torch.allclose(strangers, whole, rtol=1e-4) == same  # else none is compared with its own source
        assert len(memo._known) == -(-len(made.fitted) // CHUNK) * len(measure.stages())


def test_wide_numbers_stay_in_memory(tmp_path: Path) -> None:
    made = toys()
    images = made.fitted.clean[:10]
    memo = Memo("network", [images], open_cache(tmp_path))
    first = memo.numbers(made.subject, Repeated(WIDE + 1), images)
    assert torch.equal(memo.numbers(made.subject, Repeated(WIDE + 1), images), first)
    assert not list(tmp_path.rglob("*.safetensors"))
    memo.numbers(made.subject, Repeated(WIDE), images)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_wide_numbers_are_kept_where_they_take_no_more_than_the_image(tmp_path: Path) -> None:
    subject, images = Subject(nn.Flatten(), size=40, channels=1), torch.rand(3, 1, 40, 40)
    memo = Memo("network", [images], open_cache(tmp_path))
    memo.numbers(subject, Repeated(1601), images)
    assert not list(tmp_path.rglob("*.safetensors"))
    memo.numbers(subject, Repeated(1600), images)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_methods_say_whether_their_numbers_last() -> None:
    assert {name for name, kind in METHODS.items() if kind.lasting} >= {"c1c2", "defense-gan", "max-softmax", "mbf"}
    assert not {name for name, kind in METHODS.items() if kind.lasting} & {"kd-bu", "lid", "mahalanobis"}
