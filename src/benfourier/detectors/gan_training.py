"""The training of a Wasserstein GAN with gradient penalty, which can be killed and goes on where it was."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benfourier import progress
from benfourier.data.draws import generator
from benfourier.detectors.gan import LATENT, Critic, Generator, penalty
from benfourier.detectors.gan_weights import channels_last, made
from benfourier.errors import FitError, OptionError, StoreError
from benfourier.store import artifact
from benfourier.store.digest import digest_of

BATCH = 50
CRITIC_STEPS = 5
PENALTY = 10.0
BETAS = (0.5, 0.9)
KEEP = 20  # iterations from one checkpoint to the next
SMALL = 2**18  # parameters; with fewer, threads wait for one another longer than they work
KIND = "benfourier-gan"
SCHEMA = 1


class Training:
    """Generator, critic, and how far they are.

    Args:
        images: clean ones (N, C, H, W) within the bounds.
        bounds: least and greatest pixel value.
        device: to learn on.
        width: numbers per place at the last hidden stage.
        lr: rate of both.
        seed: of weights and batches; every iteration has draws of its own, so that no state of them is kept.
    """

    def __init__(
        self, images: Tensor, bounds: tuple[float, float], device: torch.device, width: int, lr: float, seed: int
    ) -> None:
        shape = tuple(images.shape[1:])
        self.images, self.bounds, self.device, self.seed = images, bounds, device, seed
        self.options = {"width": width, "lr": lr, "seed": seed}
        self.generator = channels_last(made(Generator, shape, width, generator(seed, "generator")).to(device))
        self.critic = made(Critic, shape, width, generator(seed, "critic")).to(device)
        self.optimisers = {
            name: torch.optim.Adam(network.parameters(), lr=lr, betas=BETAS)
            for name, network in self._networks().items()
        }
        self.done, self.loss = 0, 0.0

    def run(self, iterations: int, checkpoint: Path | None = None, *, show_progress: bool | None = None) -> None:
        """Trains until so many iterations are done in all, from a checkpoint on if there is one.

        Args:
            iterations: of the generator.
            checkpoint: file to go on from, and to write every KEEP iterations and at the end.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        if checkpoint is not None and checkpoint.exists():
            self._load(checkpoint, iterations)
        elif checkpoint is not None and not checkpoint.parent.is_dir():
            raise OptionError(f"checkpoint is {str(checkpoint)!r}, in a folder that does not exist; make the folder")
        bar = progress.bar(iterations, "defense-gan: training", show=show_progress)
        with _fitting_threads(self.critic), bar as advance:
            advance(self.done)
            while self.done < iterations:
                self._iterate()
                advance(1, f"critic {self.loss:.4f}")
                if checkpoint is not None and (self.done % KEEP == 0 or self.done == iterations):
                    self._save(checkpoint)

    def _iterate(self) -> None:
        """Steps of the critic, then one of the generator."""
        draws = generator(self.seed, f"iteration {self.done}")
        with torch.inference_mode(False), torch.enable_grad():
            losses = [self._teach_critic(draws) for _ in range(CRITIC_STEPS)]
            latent = torch.randn(BATCH, LATENT, generator=draws).to(self.device)
            self._step("generator", -self.critic(self.generator(latent)).mean())
        self.done, self.loss = self.done + 1, sum(losses) / CRITIC_STEPS
        if not math.isfinite(self.loss):
            raise FitError(f"the critic's loss became {self.loss} in iteration {self.done}; give more clean images")

    def _teach_critic(self, draws: torch.Generator) -> float:
        """One step of the critic; its loss."""
        rows = torch.randint(len(self.images), (BATCH,), generator=draws)
        latent, mix = torch.randn(BATCH, LATENT, generator=draws), torch.rand(BATCH, 1, 1, 1, generator=draws)
        real = self.generator.scaled(self.images[rows].to(self.device), self.bounds)
        with torch.no_grad():
            drawn = self.generator(latent.to(self.device)).contiguous()
        seen_real, seen_drawn = self.critic(torch.cat([real, drawn])).chunk(2)
        between = real + mix.to(self.device) * (drawn - real)
        loss = seen_drawn.mean() - seen_real.mean() + PENALTY * penalty(self.critic.slope(between))
        self._step("critic", loss)
        return float(loss.detach())

    def _step(self, name: str, loss: Tensor) -> None:
        """Lets one network learn; the other one's parameters get no gradient."""
        self.optimisers[name].zero_grad()
        torch.autograd.backward(loss, inputs=list(self._networks()[name].parameters()))
        self.optimisers[name].step()

    def _networks(self) -> dict[str, nn.Module]:
        return {"generator": self.generator, "critic": self.critic}

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What decides how the training goes, except for its length."""
        images = self.images.detach().cpu().contiguous().numpy()
        return {"images": digest_of([images]), "bounds": list(self.bounds), **self.options}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that learning changes, by name; the optimisers' are made if they are not there yet."""
        for name, network in self._networks().items():
            steps = self.done * (CRITIC_STEPS if name == "critic" else 1)
            for place, parameter in network.named_parameters():
                state = self.optimisers[name].state[parameter]
                state["step"] = torch.tensor(float(steps))
                yield f"{name}/{place}", parameter.detach()
                for moment in ("exp_avg", "exp_avg_sq"):
                    yield f"{name}/{place}/{moment}", state.setdefault(moment, torch.zeros_like(parameter.detach()))

    def _save(self, path: Path) -> None:
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._tensors()}
        manifest = {"identity": self._identity, "done": self.done, "loss": self.loss}
        artifact.write(path, KIND, SCHEMA, manifest, arrays)

    def _load(self, path: Path, iterations: int) -> None:
        manifest, arrays = artifact.read(path, KIND, SCHEMA)
        if manifest["identity"] != self._identity:
            raise StoreError(f"{path}: it is of a training with other images or options; give another checkpoint")
        if manifest["done"] > iterations:
            raise StoreError(
                f"{path}: {manifest['done']} iterations are done there, and {iterations} are wanted; "
                "ask for at least as many, or give another checkpoint"
            )
        self.done, self.loss = manifest["done"], manifest["loss"]
        for name, tensor in self._tensors():
            tensor.copy_(torch.from_numpy(arrays[name]))


@contextmanager
def _fitting_threads(network: nn.Module) -> Iterator[None]:
    """Keeps the learning of a small network to one thread while the block runs."""
    before = torch.get_num_threads()
    try:
        if sum(parameter.numel() for parameter in network.parameters()) < SMALL:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
