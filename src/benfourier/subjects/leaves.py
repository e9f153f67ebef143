"""Which modules are heard as one, and which operations only pass numbers on."""

from collections.abc import Iterator

from torch import nn

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.DataParallel)
_PASSING_MODULES = (
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_PASSING_FUNCTIONS = frozenset(
    "alpha_dropout chunk clone contiguous detach dropout dropout1d dropout2d dropout3d expand expand_as "
    "feature_alpha_dropout flatten float double half getattr getitem identity movedim narrow pad permute reshape "
    "select size split squeeze stochastic_depth t to transpose type_as unbind unflatten unsqueeze view view_as".split()
)


def is_leaf(module: nn.Module) -> bool:
    """True for modules heard as one: those without children, and torch's own composites such as attention."""
    if isinstance(module, _CONTAINERS):
        return False
    own = type(module).__module__.startswith("torch.nn")
    return own or next(module.children(), None) is None


def leaves(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of all leaves, each module once."""
    inside: set[nn.Module] = set()
    for name, found in module.named_modules():
        if found not in inside and is_leaf(found):
            if found._modules:
                inside.update(found.modules())
            yield name or type(found).__name__, found


def is_pass_through(source: object) -> bool:
    """True for modules and functions that only pass numbers on in eval mode."""
    if isinstance(source, nn.Module):
        return isinstance(source, _PASSING_MODULES)
    return source in _PASSING_FUNCTIONS
