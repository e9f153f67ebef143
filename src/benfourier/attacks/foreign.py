"""Attacks of other libraries: a model on [0, 1] that counts passes, and random draws that belong to the image."""

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from benfourier.attacks.run import AttackRun, margins
from benfourier.models.device import forked_generators, generator_states

ForeignAttack = Callable[["ForeignModel", Tensor, Tensor, int], Tensor]  # model, images in [0, 1], labels, seed


class OneByOneError(Exception):
    """Ends an attack on several images that should get each of them alone."""


class ForeignModel(nn.Module):
    """The classifier's logits of images in [0, 1]; every pass is counted for the rows that it serves."""

    def __init__(self, run: AttackRun, rows: Tensor, check: Callable[[], None]) -> None:
        super().__init__()
        self.training = False
        self.run, self.rows, self.check = run, rows, check

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits; their backward pass, if there is one, is counted as well."""

        def count(*_: Tensor) -> None:  # a library may show several copies of a row at once
            self.run.calls[self.rows] += -(-len(images) // len(self.rows))

        self.check()
        count()
        logits = self.run.forward(self.run.low + self.run.span * images)
        if logits.requires_grad:
            logits.register_hook(count)  # type: ignore[no-untyped-call]
        return logits


def run_foreign(run: AttackRun, attack: ForeignAttack, *, random: bool = False) -> None:
    """Records the adversarial images of another library's attack, which returns images in [0, 1].

    An attack that draws at random gets each image alone, under the image's own seed: its draws then belong to the image
    and not to the batch. One that is not said to be random gets all images at once, until it draws; then each alone.
    """
    if random or not _run_rows(run, attack, run.rows, may_draw=False):
        for row in run.rows:
            _run_rows(run, attack, row.view(1), may_draw=True)


def _run_rows(run: AttackRun, attack: ForeignAttack, rows: Tensor, *, may_draw: bool) -> bool:
    """Records the images of some rows; False, with nothing recorded, if the attack should get each of them alone."""
    unit = ((run.clean[rows] - run.low) / run.span).clamp(0, 1)
    seed = run.generators[int(rows[0])].initial_seed()
    with seeded_globals(seed, unit.device) as drew, torch.enable_grad():

        def check() -> None:
            if not may_draw and drew():
                raise OneByOneError

        try:
            images = attack(ForeignModel(run, rows, check), unit, run.labels[rows], seed).detach()
            check()
        except OneByOneError:
            return False
    images = run.clip(run.low + run.span * images.to(run.clean))
    run.record(images, rows, margins(run.logits(images, rows), run.labels[rows]) > 0)
    return True


@contextmanager
def seeded_globals(seed: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Seeds the global generators while the block runs, then restores them; yields whether anything was drawn."""

    def state() -> bytes:
        states = [each.numpy() for each in generator_states(device)]  # on the CPU, also that of a GPU
        return pickle.dumps((random.getstate(), np.random.get_state(), states))

    python, numpy = random.getstate(), np.random.get_state()
    with forked_generators(device):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            before = state()
            yield lambda: state() != before
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
