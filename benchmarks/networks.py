"""Networks of the zoo with sane responses, and images for them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.subjects.zoo import ZOO, network


@dataclass(frozen=True)
class Bench:
    """A network of the zoo as it is benchmarked, and how many images it takes at a time."""

    name: str
    batch: int

    def images(self) -> Tensor:
        """Returns a batch of images, uniform noise."""
        entry = ZOO[self.name]
        shape = (self.batch, entry.channels, entry.size, entry.size)
        return torch.rand(shape, generator=torch.Generator().manual_seed(0))

    def subject(self) -> bf.Subject:
        """Returns the network as a subject, with Kaiming weights and statistics of its own responses."""
        module = network(self.name)
        generator = torch.Generator().manual_seed(0)
        for part in module.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
        with torch.no_grad():
            module.train()
            for _ in range(2):
                module(self.images())
        entry = ZOO[self.name]
        return bf.Subject(module.eval(), size=entry.size, channels=entry.channels)


ALEXNET, VGG16, RESNET20 = Bench("alexnet", 8), Bench("vgg16", 2), Bench("cifar-resnet20", 64)
