import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.errors import ClassifierError, InputError, OptionError, StoreError
from benfourier.models.weights import save_weights, weights_digest
from benfourier.models.zoo import ZOO

NAME = "named_networks"
TEXT = """
import torch
from torch import nn
import benfourier as bf

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def wide(classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def ready():
    return bf.Classifier(plain(), size=8, channels=1, mean=[0.25], classes=list("abcdefghij"))

def anything(**options):
    return nn.Linear(4, options["classes"])

def failing():
    raise RuntimeError("no such thing")

def empty():
    return {"a": 1}

def complaining():
    from benfourier.errors import MissingExtraError
    raise MissingExtraError("pip install something")

class Networks:
    @staticmethod
    def inner():
        return plain()

network = plain()
number = 3
"""


@pytest.fixture(name="here")
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / f"{NAME}.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    yield tmp_path
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize("name", ["lid-mnist", "lid-cifar10", "cifar-resnet20"])
def test_a_zoo_network_knows_its_images(name: str) -> None:
    classifier, entry = bf.open_classifier(name), ZOO[name]
    assert (classifier.size, classifier.channels, classifier.bounds) == (
        (entry.size, entry.size),
        entry.channels,
        (0.0, 1.0),
    )
    assert (classifier.mean, classifier.std) == entry.scaling
    assert not isinstance(classifier.module, bf.Classifier)


def test_the_callers_options_override_the_zoo() -> None:
    classifier = bf.open_classifier(
        "cifar-resnet20", mean=[0.5], std=None, bounds=(0.0, 255.0), resize="stretch", size=64
    )
    assert (classifier.mean, classifier.std, classifier.bounds) == ((0.5,), None, (0.0, 255.0))
    assert (classifier.resize, classifier.size, classifier.channels) == ("stretch", (64, 64), 3)


def test_a_number_of_classes_goes_to_the_factory() -> None:
    assert bf.open_classifier("cifar-resnet20", classes=7).logits(torch.rand(1, 3, 32, 32)).shape == (1, 7)
    with pytest.raises(OptionError, match="classes is 0; it must be a whole number of at least 2"):
        bf.open_classifier("cifar-resnet20", classes=0)


def test_names_of_classes_go_to_the_classifier_and_their_number_to_the_factory() -> None:
    classifier = bf.open_classifier("cifar-resnet20", classes=["cat", "dog"])
    assert classifier.classes == ("cat", "dog")
    assert classifier.logits(torch.rand(1, 3, 32, 32)).shape == (1, 2)


def test_a_zoo_network_with_fixed_classes_takes_that_number_and_no_other() -> None:
    assert bf.open_classifier("lid-mnist", classes=list("0123456789")).classes == tuple("0123456789")
    bf.open_classifier("lid-mnist", classes=10)
    with pytest.raises(OptionError, match="classes is 8, but lid-mnist takes no such option; leave it out"):
        bf.open_classifier("lid-mnist", classes=8)


def test_weights_are_loaded_with_their_digest(tmp_path: Path) -> None:
    module, path = ZOO["lid-mnist"].factory(), tmp_path / "w.safetensors"
    save_weights(module, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    classifier = bf.open_classifier("lid-mnist", weights=path, digest=digest)
    assert weights_digest(classifier.module) == weights_digest(module)
    with pytest.raises(StoreError, match="its SHA-256 is"):
        bf.open_classifier("lid-mnist", weights=path, digest="0" * 64)
    with pytest.raises(StoreError, match="lacks"):
        bf.open_classifier("lid-svhn", weights=path)


def test_a_digest_without_weights_is_refused() -> None:
    with pytest.raises(OptionError, match="digest is given without weights"):
        bf.open_classifier("lid-mnist", digest="0" * 64)


def test_an_option_that_classifiers_do_not_have_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"a classifier has no option 'sise'; its options: bounds, channels, .*; did you mean 'size'"
    ):
        bf.open_classifier("lid-mnist", sise=28)


def test_a_factory_of_the_current_folder_is_found_and_the_search_path_is_left_alone(here: Path) -> None:
    before = list(sys.path)
    classifier = bf.open_classifier(f"{NAME}:plain", size=8, channels=1)
    assert classifier.logits(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert sys.path == before


def test_a_factory_inside_a_class_and_one_of_an_installed_package_are_found(here: Path) -> None:
    assert isinstance(bf.open_classifier(f"{NAME}:Networks.inner").module, nn.Sequential)
    assert bf.open_classifier("benfourier.models.zoo.resnet:cifar_resnet20", classes=3).size is None


def test_a_ready_classifier_keeps_its_image_format_unless_an_option_changes_it(here: Path) -> None:
    classifier = bf.open_classifier(f"{NAME}:ready")
    assert (classifier.size, classifier.mean, classifier.classes) == ((8, 8), (0.25,), list("abcdefghij"))
    other = bf.open_classifier(f"{NAME}:ready", mean=[0.5])
    assert (other.size, other.mean) == ((8, 8), (0.5,))


def test_a_user_factory_gets_classes_if_it_takes_them(here: Path) -> None:
    assert bf.open_classifier(f"{NAME}:wide", classes=4, size=8, channels=1).logits(torch.rand(1, 1, 8, 8)).shape == (
        1,
        4,
    )
    assert isinstance(bf.open_classifier(f"{NAME}:anything", classes=5).module, nn.Linear)
    assert bf.open_classifier(f"{NAME}:plain", classes=list("0123456789")).classes == tuple("0123456789")
    with pytest.raises(OptionError, match=f"classes is 4, but {NAME}:plain takes no such option"):
        bf.open_classifier(f"{NAME}:plain", classes=4)
    with pytest.raises(OptionError, match="classes is 1; it must be a whole number of at least 2"):
        bf.open_classifier(f"{NAME}:wide", classes=1)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("lid-mnits", InputError, r"no network of the zoo and not of the form .* did you mean 'lid-mnist'\?"),
        ("vgg-16", InputError, r"in the zoo: lid-mnist, .*did you mean 'vgg16'\?"),
        ("", InputError, "no network of the zoo"),
        (f"{NAME}:", InputError, "no network of the zoo"),
        (":plain", InputError, "no network of the zoo"),
        ("../evil:plain", InputError, "no network of the zoo"),
        ("not_there:plain", InputError, r"module 'not_there' cannot be imported \(ModuleNotFoundError"),
        (f"{NAME}.deeper:plain", InputError, f"module '{NAME}.deeper' cannot be imported"),
        ("broken_networks:plain", InputError, r"module 'broken_networks' cannot be imported \(ZeroDivisionError"),
        ("leaving_networks:plain", InputError, r"module 'leaving_networks' cannot be imported \(SystemExit: 3"),
        (f"{NAME}:plaim", InputError, rf"module '{NAME}' has no 'plaim'; did you mean 'plain'\?"),
        (f"{NAME}:Networks.outer", InputError, f"module '{NAME}' has no 'Networks.outer'"),
        (f"{NAME}:number", InputError, f"{NAME}:number is a int; it must be a function that returns a module"),
        (f"{NAME}:network", InputError, f"{NAME}:network is a Sequential; it must be a function"),
        (f"{NAME}:failing", ClassifierError, f"{NAME}:failing failed: RuntimeError: no such thing"),
        (
            f"{NAME}:empty",
            ClassifierError,
            f"{NAME}:empty returned a dict; it must return a torch.nn.Module or a Classifier",
        ),
        (f"{NAME}:complaining", bf.BenfourierError, "pip install something"),
    ],
)
def test_what_names_no_network_is_refused(here: Path, model: str, error: type[Exception], message: str) -> None:
    (here / "broken_networks.py").write_text("1 / 0", encoding="utf-8")
    (here / "leaving_networks.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(error, match=message):
        bf.open_classifier(model)


def test_a_seed_gives_the_same_weights_and_leaves_torchs_generator_alone() -> None:
    state = torch.random.get_rng_state()
    digests = [weights_digest(bf.open_classifier("lid-mnist", seed=seed).module) for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]
    assert torch.equal(torch.random.get_rng_state(), state)
