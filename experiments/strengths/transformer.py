"""A small vision transformer of the transformers library, for MNIST."""

from torch import nn


def small_vit(classes: int = 10) -> nn.Module:
    """Returns the network with random weights: patches of 4 × 4 pixels, four blocks, 64 features."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=28,
        patch_size=4,
        num_channels=1,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=classes,
    )
    module: nn.Module = ViTForImageClassification(config)
    return module
