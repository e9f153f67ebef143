"""A Wasserstein GAN with gradient penalty for images of any size, and its training (Gulrajani 2017, arXiv:1704.00028).

For 28×28 and 32×32 the networks are those of Defense-GAN: 4×4 positions of 4w channels, then 2w, w, and the image, each
twice as high and wide as the one before; the critic has the same stages in reverse. A training that was interrupted
goes on from its checkpoint.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benfourier import progress
from benfourier.data.seeds import image_generator
from benfourier.errors import FitError, OptionError, StoreError
from benfourier.store import artifact
from benfourier.store.artifact import digest_of

LATENT = 128
KERNEL, STRIDE = 5, 2
SMALLEST = 4  # sides are halved until they are no longer than that
STAGES = 3  # at least
LEAK = 0.2
BATCH = 50
CRITIC_STEPS = 5
PENALTY = 10.0
BETAS = (0.5, 0.9)
KEEP = 20  # iterations from one checkpoint to the next
KIND = "benfourier-gan"
SCHEMA = 1
Shape = tuple[int, ...]  # (C, H, W), or (H, W)
Network = TypeVar("Network", "Generator", "Critic")


def stage_shapes(shape: Shape, width: int) -> tuple[list[Shape], list[int]]:
    """Returns the sides at every stage, odd ones halved upwards, and the channels: 4w, 2w, w, at last the image's."""
    sides = [shape[1:]]
    for _ in range(max(STAGES, math.ceil(math.log2(max(shape[1:]) / SMALLEST)))):
        sides.append(((sides[-1][0] + 1) // 2, (sides[-1][1] + 1) // 2))
    depths = [max(width, 4 * width >> stage) for stage in range(len(sides) - 1)]
    return sides[::-1], [*depths, shape[0]]


class Generator(nn.Module):
    """Latent vectors (N, 128) to images (N, C, H, W): from 0 to 1 if they have one channel, else from −1 to 1."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        sides, depths = stage_shapes(shape, width)
        self.first = (*sides[0], depths[0])  # channels last: convolutions are faster so
        self.bright = shape[0] == 1
        self.entries = sum(h * w * depth for (h, w), depth in zip(sides, depths, strict=True))  # of all stages
        self.start = nn.Linear(LATENT, math.prod(self.first))
        self.stages = nn.ModuleList()
        for (small, large), (come, go) in zip(pairwise(sides), pairwise(depths), strict=True):
            self.stages.append(nn.ConvTranspose2d(come, go, KERNEL, STRIDE, KERNEL // 2, _output_padding(small, large)))

    def forward(self, latent: Tensor) -> Tensor:
        """Returns images."""
        x = F.relu(self.start(latent)).view(-1, *self.first).permute(0, 3, 1, 2)
        for stage in self.stages[:-1]:
            x = F.relu(stage(x))
        last = self.stages[-1](x)
        return torch.sigmoid(last) if self.bright else torch.tanh(last)

    def scaled(self, images: Tensor, bounds: tuple[float, float]) -> Tensor:
        """Returns images of a classifier with those bounds as this generator would draw them."""
        low, high = bounds
        unit = (images.float() - low) / (high - low)
        return unit if self.bright else 2 * unit - 1


class Critic(nn.Module):
    """Images (N, C, H, W) to how real they look, (N,)."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        sides, depths = stage_shapes(shape, width)
        stages = [nn.Conv2d(come, go, KERNEL, STRIDE, KERNEL // 2) for come, go in pairwise(depths[::-1])]
        self.stages = nn.ModuleList(stages)
        self.end = nn.Linear(depths[0] * math.prod(sides[0]), 1)

    def forward(self, images: Tensor) -> Tensor:
        """Returns one number per image."""
        for stage in self.stages:
            images = F.leaky_relu(stage(images), LEAK)
        values: Tensor = self.end(images.flatten(1))
        return values[:, 0]

    def input_gradient(self, images: Tensor) -> Tensor:
        """Returns the gradient (N, C, H, W) of each image's number, from which the weights can learn."""
        # On either side of zero a leaky ReLU is linear: the gradient is a product of weights and constant slopes. So no
        # second derivative is needed, which saves a third of the training.
        x, slopes, sizes = images.detach(), [], []
        with torch.no_grad():
            for stage in self.stages:
                sizes.append(x.shape[2:])
                x = stage(x)
                slopes.append(torch.where(x > 0, x.new_tensor(1.0), x.new_tensor(LEAK)))
                x = x * slopes[-1]
        gradient = self.end.weight.view(1, *x.shape[1:])
        for stage, slope, size in list(zip(self.stages, slopes, sizes, strict=True))[::-1]:
            weight, padding = stage.get_parameter("weight"), _output_padding(slope.shape[2:], size)
            gradient = F.conv_transpose2d(gradient * slope, weight, None, STRIDE, KERNEL // 2, padding)
        return gradient


def gradient_penalty(gradient: Tensor) -> Tensor:
    """Returns the mean of (‖∇‖₂ − 1)², the norm over all pixels of an image's gradient."""
    lengths: Tensor = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    return (lengths - 1).square().mean()


def _output_padding(small: Sequence[int], large: Sequence[int]) -> tuple[int, int]:
    """What a transposed convolution must add to come from one size to the next; 0 for an odd one."""
    return (large[0] - 2 * small[0] + 1, large[1] - 2 * small[1] + 1)


def new_network(kind: type[Network], shape: Shape, width: int, draws: torch.Generator) -> Network:
    """Returns a network with drawn weights, uniform with variance 4 / (fan-in + fan-out); biases are 0."""
    # No draw is taken from torch's own generator.
    with torch.device("meta"):
        network = kind(shape, width)
    network = network.to_empty(device="cpu")
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                # a stride of 2 lets an entry of the larger side meet a quarter of the kernel
                share = 1 if isinstance(module, nn.Linear) else 1 / STRIDE**2
                limit = math.sqrt(12 / (module.weight[0].numel() + module.weight[:, 0].numel() * share))
                module.weight.uniform_(-limit, limit, generator=draws)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    return network


def load_generator(shape: Shape, width: int, weights: Mapping[str, Tensor]) -> Generator:
    """Returns the generator with those weights, channels last and without gradients."""
    with torch.device("meta"):
        network = Generator(shape, width).requires_grad_(False)
    network.load_state_dict(dict(weights), assign=True)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class GanTraining:
    """Generator, critic, and how far they are, from clean images (N, C, H, W) within the bounds."""

    # The width is that of the last hidden stage. Every iteration has draws of its own, so no state of them is stored.

    def __init__(
        self, images: Tensor, bounds: tuple[float, float], device: torch.device, width: int, lr: float, seed: int
    ) -> None:
        shape = tuple(images.shape[1:])
        self.images, self.bounds, self.device, self.seed = images, bounds, device, seed
        self.options = {"width": width, "lr": lr, "seed": seed}
        drawn = new_network(Generator, shape, width, image_generator(seed, "generator")).to(device)
        self.generator: Generator = drawn.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.critic = new_network(Critic, shape, width, image_generator(seed, "critic")).to(device)
        self.networks: dict[str, nn.Module] = {"generator": self.generator, "critic": self.critic}
        self.optimisers = {n: torch.optim.Adam(m.parameters(), lr=lr, betas=BETAS) for n, m in self.networks.items()}
        self.done, self.loss = 0, 0.0

    def run(self, iterations: int, checkpoint: Path | None = None, *, show_progress: bool | None = None) -> None:
        """Trains until the generator has so many iterations in all."""
        # The checkpoint is a file to go on from if it is there, and to write every KEEP iterations and at the end.
        if checkpoint is not None and checkpoint.exists():
            self._load(checkpoint, iterations)
        elif checkpoint is not None and not checkpoint.parent.is_dir():
            raise OptionError(f"checkpoint is {str(checkpoint)!r}, in a folder that does not exist; make the folder")
        with progress.bar(iterations, "defense-gan: training", show=show_progress) as advance:
            advance(self.done)
            while self.done < iterations:
                self._iterate()
                advance(1, f"critic {self.loss:.4f}")
                if checkpoint is not None and (self.done % KEEP == 0 or self.done == iterations):
                    self._save(checkpoint)

    def digest(self, iterations: int) -> str:
        """Returns a digest of images, options and length: trainings with the same one have the same result."""
        return digest_of(("gan", repr(self._identity), str(iterations)))

    def _iterate(self) -> None:
        """Steps of the critic, then one of the generator."""
        draws = image_generator(self.seed, f"iteration {self.done}")
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
        loss = seen_drawn.mean() - seen_real.mean() + PENALTY * gradient_penalty(self.critic.input_gradient(between))
        self._step("critic", loss)
        return float(loss.detach())

    def _step(self, name: str, loss: Tensor) -> None:
        """Lets one network learn; the other one's parameters get no gradient."""
        self.optimisers[name].zero_grad()
        torch.autograd.backward(loss, inputs=list(self.networks[name].parameters()))
        self.optimisers[name].step()

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What decides how the training goes, except for its length."""
        images = self.images.detach().cpu().contiguous().numpy()
        return {"images": digest_of([images]), "bounds": list(self.bounds), **self.options}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that learning changes, by name; the optimisers' are made if they are not there yet."""
        for name, network in self.networks.items():
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
                f"{path}: {manifest['done']} iterations are done there, and {iterations} were asked for; "
                "ask for at least as many, or give another checkpoint"
            )
        self.done, self.loss = manifest["done"], manifest["loss"]
        for name, tensor in self._tensors():
            tensor.copy_(torch.from_numpy(arrays[name]))
