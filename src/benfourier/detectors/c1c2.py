"""C1, C2t and C2u: how an image bears noise, and pushes towards another class (Hu 2019, arXiv:1910.07629).

C1 = ‖p(x) − p(x + σ·noise)‖₁. C2t and C2u are the steps x ← clip(x − η∇L(x)) that the label withstands, with the raw
gradient of L = CE(Z(x), t), t a random other class, or L = −CE(Z(x), ŷ).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from benfourier.data.draws import generator, names_by_content
from benfourier.detectors.flips import Push, flips, logits
from benfourier.detectors.listening import finite
from benfourier.detectors.method import Lessons, Method, check_positive
from benfourier.detectors.ranks import ranks
from benfourier.detectors.tuning import benign_of, best
from benfourier.errors import check_choice, check_whole
from benfourier.subjects.hearing import soft_max, undisturbed
from benfourier.subjects.subject import Subject

CRITERIA = ("c1", "c2t", "c2u")
# Values to choose from, those of the authors among them. Large steps come first: small ones cost more.
GRIDS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "sigma": ("c1", (0.3, 0.1, 0.03, 0.01, 0.003)),
    "step_t": ("c2t", (0.5, 0.05, 0.005, 0.0005)),
    "step_u": ("c2u", (10.0, 3.0, 1.0, 0.1, 0.01)),
}


@dataclass(frozen=True, kw_only=True)
class C1C2(Method):
    """The three criteria, or one of them.

    Args:
        criteria: "all", "c1", "c2t" or "c2u"; the ids c1c2:c1, c1c2:c2t and c1c2:c2u stand for the single ones.
        sigma: standard deviation of the noise; None chooses it by the examples.
        step_t: times the gradient towards another class; None chooses it.
        step_u: times the gradient away from the label; None chooses it.
        radius: largest change of a pixel. All four are for pixels from 0 to 1, whatever the subject's bounds.
        cap_t: steps towards another class after which an image is given up.
        cap_u: the same for steps away from the label.
    """

    criteria: str = "all"
    sigma: float | None = None
    step_t: float | None = None
    step_u: float | None = None
    radius: float = 0.5
    cap_t: int = 200
    cap_u: int = 1000

    name: ClassVar[str] = "c1c2"
    lasting: ClassVar[bool] = True
    own: ClassVar[str] = "plain"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {word: {"criteria": word} for word in CRITERIA}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("criteria", self.criteria, ("all", *CRITERIA))
        for name in GRIDS:
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_positive("radius", self.radius)
        check_whole("cap_t", self.cap_t)
        check_whole("cap_u", self.cap_u)

    @property
    def needs(self) -> frozenset[str]:
        """Draws for C1 and C2t, gradients for C2t and C2u."""
        drawn = {"samples"} if self.criteria != "c2u" else set()
        return frozenset(drawn | ({"gradients", "searches"} if self.criteria != "c1" else set()))

    def learn(self, subject: Subject, lessons: Lessons) -> "Criteria":
        """Returns the criteria with noise and steps that tell the examples apart best."""
        words = CRITERIA if self.criteria == "all" else (self.criteria,)
        noise, steps = self.sigma or 0.0, (self.step_t or 0.0, self.step_u or 0.0)
        unranked = torch.zeros(0, len(words), dtype=torch.float64)
        measure = Criteria(words, noise, *steps, self.radius, (self.cap_t, self.cap_u), self.seed, unranked)
        for name, (word, grid) in GRIDS.items():
            if word in words and getattr(self, name) is None:
                trials = {value: measure.with_value(name, value, (word,)) for value in grid}
                found = best(self, subject, lessons, trials, f"{self.name}: {name}", measure.greatest(word))
                measure = measure.with_value(name, found, words)
        if self.final == "plain":
            measure = replace(measure, benign=benign_of(subject, measure, lessons, f"{self.name}: benign images"))
        return measure

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> "Criteria":
        """Returns the criteria as they were kept."""
        return Criteria(**{**kept, "words": tuple(kept["words"]), "caps": tuple(kept["caps"])})


@dataclass(frozen=True, eq=False)
class Criteria:
    """C1 and the logarithms of the steps, a column each; or one column: their greatest rank among benign rows.

    Args:
        words: the criteria.
        sigma: of the noise.
        step_t: of C2t.
        step_u: of C2u.
        radius: of both.
        caps: of C2t and C2u.
        seed: of noise and target, which belong to an image's pixels.
        benign: (B, criteria) to rank among; empty for no ranks.
    """

    words: tuple[str, ...]
    sigma: float
    step_t: float
    step_u: float
    radius: float
    caps: tuple[int, int]
    seed: int
    benign: Tensor

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the numbers (N, criteria), or (N, 1) if there are benign rows to rank among."""
        names = names_by_content(images)
        images = images.to(subject.device, subject.dtype)
        with torch.inference_mode(False), torch.no_grad(), undisturbed(subject.module):
            answers = finite(logits(subject, images), ids).to(images.device)
            numbers = torch.stack([self._column(word, subject, images, answers, names) for word in self.words], 1)
        if not len(self.benign):
            return numbers
        limits = torch.tensor([self.greatest(word) for word in self.words], dtype=torch.float64)
        return ranks(numbers, self.benign, torch.zeros_like(limits), limits).amax(1, keepdim=True)

    def with_value(self, name: str, value: float, words: tuple[str, ...]) -> "Criteria":
        """Returns some of the criteria with another noise or step."""
        changed: dict[str, Any] = {name: value}
        return replace(self, words=words, **changed)

    def divided(self) -> "tuple[Criteria, ...]":
        """Returns one measure per criterion, without the values of the others; ranks cannot be divided."""
        if len(self.benign):
            return (self,)
        without = dict.fromkeys(GRIDS, 0.0)
        own = {word: name for name, (word, _) in GRIDS.items()}
        return tuple(replace(self, words=(w,), **{**without, own[w]: getattr(self, own[w])}) for w in self.words)

    def greatest(self, word: str) -> float:
        """Returns what a criterion cannot exceed: C1 of two unlike answers, or the logarithm of the cap."""
        return 2.0 if word == "c1" else math.log(self.caps[word == "c2u"])

    def _column(self, word: str, subject: Subject, images: Tensor, answers: Tensor, names: list[str]) -> Tensor:
        """One criterion, float64 (N,)."""
        draws = [generator(self.seed, f"{word} {name}") for name in names]
        if word == "c1":
            low, high = subject.bounds
            noise = torch.stack([torch.randn(images.shape[1:], generator=draw) for draw in draws]).to(images)
            shaken = logits(subject, images + self.sigma * (high - low) * noise)
            return (soft_max(answers) - soft_max(shaken)).abs().sum(1).cpu()
        labels = answers.argmax(1)
        goals, push = labels, Push(-1, self.step_u, self.radius, self.caps[1])
        if word == "c2t":
            others = [int(torch.randint(1, answers.shape[1], (), generator=draw)) for draw in draws]
            goals = (labels + torch.tensor(others, device=labels.device)) % answers.shape[1]
            push = Push(1, self.step_t, self.radius, self.caps[0])
        return flips(subject, images, labels, goals, push).cpu().double().log()
