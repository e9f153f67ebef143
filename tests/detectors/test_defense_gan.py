import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.defense_gan import detector as defense_gan
from benfourier.detectors.defense_gan.detector import DefenseGAN, ReconstructionError
from benfourier.detectors.defense_gan.gan import (
    KEEP,
    KIND,
    LATENT,
    SCHEMA,
    Critic,
    Generator,
    gradient_penalty,
    load_generator,
    new_network,
)
from benfourier.detectors.fit import fit
from benfourier.detectors.method import FitData
from benfourier.errors import OptionError, StoreError
from benfourier.store import artifact
from tests.detectors import small_gan
from tests.detectors.small_gan import stripes, training
from tests.detectors.toys import toys

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 17, 5), (3, 64, 48)]
SMALL: dict[str, Any] = {"iterations": 2, "width": 4, "search_steps": 3, "restarts": 2}


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def trained_extractor(iterations: int = 50) -> ReconstructionError:
    """The extractor after so many iterations of training."""
    digits = torch.from_numpy(load_digits().images[:400]).float().unsqueeze(1) / 16
    gan_training = training(digits, width=16)
    gan_training.run(iterations)
    weights = gan_training.generator.state_dict()
    return ReconstructionError(weights, (1, 8, 8), iterations, 400, gan_training.loss, 16, 20, 2, 10.0, 0.7, 0)


def flat(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


def errors(extractor: ReconstructionError, images: Tensor) -> Tensor:
    return extractor.extract(toys().classifier, images, torch.empty(0), [""] * len(images))[:, 0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_networks_take_images_of_any_size(shape: tuple[int, ...]) -> None:
    images = new_network(Generator, shape, 2, draws())(torch.randn(3, LATENT, generator=draws()))
    assert images.shape == (3, *shape)
    assert new_network(Critic, shape, 2, draws())(images).shape == (3,)


@pytest.mark.parametrize(("shape", "least"), [((1, 28, 28), 0.0), ((3, 32, 32), -1.0)])
def test_the_networks_are_those_of_the_authors(shape: tuple[int, ...], least: float) -> None:
    generator, critic = new_network(Generator, shape, 64, draws()), new_network(Critic, shape, 64, draws())
    assert generator.start.out_features == 4 * 4 * 256
    up, down = ([tuple(s.get_parameter("weight").shape[:2]) for s in n.stages] for n in (generator, critic))
    assert up == [(256, 128), (128, 64), (64, shape[0])]
    assert down == [(64, shape[0]), (128, 64), (256, 128)]
    assert critic.end.in_features == 4 * 4 * 256
    low, high = generator(100 * torch.randn(20, LATENT, generator=draws())).detach().aminmax()
    assert float(low) == pytest.approx(least, abs=1e-3)
    assert float(high) == pytest.approx(1, abs=1e-3)
    bounds = generator.scaled(torch.tensor([-2.0, 0.0, 2.0]), (-2.0, 2.0))
    assert bounds.tolist() == [least, (least + 1) / 2, 1]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_input_gradient_of_the_critic_agrees_with_autograd_to_second_order(shape: tuple[int, ...]) -> None:
    critic = new_network(Critic, shape, 2, draws()).double()
    leaf = torch.rand(3, *shape, generator=draws(), dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(critic(leaf).sum(), leaf, create_graph=True)
    assert torch.allclose(critic.input_gradient(leaf), slope, rtol=1e-12, atol=1e-15)
    weights = [parameter for name, parameter in critic.named_parameters() if name.endswith("weight")]
    twice = torch.autograd.grad(gradient_penalty(slope), weights)
    once = torch.autograd.grad(gradient_penalty(critic.input_gradient(leaf)), weights)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-15) for a, b in zip(once, twice, strict=True))


def test_the_penalty_takes_the_norm_over_all_pixels() -> None:
    slope = torch.zeros(2, 3, 2, 2)
    slope[0, 0, 0, 0], slope[0, 2, 1, 1] = 3.0, 4.0  # norm 5
    slope[1, 1, :, :] = 0.5  # norm 1
    assert float(gradient_penalty(slope)) == pytest.approx((16 + 0) / 2)


def test_a_generator_is_restored_from_its_weights() -> None:
    network = new_network(Generator, (3, 32, 32), 4, draws())
    latent = torch.randn(2, LATENT, generator=draws())
    again = load_generator((3, 32, 32), 4, network.state_dict())
    assert torch.allclose(again(latent), network(latent), atol=1e-6)
    assert not any(parameter.requires_grad for parameter in again.parameters())


def test_training_brings_generated_images_nearer_to_clean_images() -> None:
    images = toys().tested.clean
    assert float(errors(trained_extractor(), images).mean()) < 0.5 * float(errors(trained_extractor(0), images).mean())


def test_images_that_are_no_digits_score_higher_than_digits() -> None:
    clean = toys().tested.clean
    noise = torch.rand(clean.shape, generator=draws())
    scores = torch.cat([errors(trained_extractor(), clean), errors(trained_extractor(), noise)])
    assert roc_auc_score(np.repeat([0, 1], len(clean)), scores.numpy()) > 0.95


def test_more_steps_and_more_restarts_come_nearer() -> None:
    images = toys().tested.clean
    short, long, often = (
        errors(replace(trained_extractor(), steps=s, restarts=r), images) for s, r in ((2, 2), (30, 2), (2, 6))
    )
    assert float(long.mean()) < float(short.mean())
    assert bool((often <= short + 1e-6).all())  # its first two starts are the same


def test_a_search_is_plain_descent_with_momentum() -> None:
    extractor, image = trained_extractor(), toys().tested.clean[:1]
    starts = torch.randn(1, 3, LATENT, generator=draws())
    for row, error in zip(starts[0], extractor.search(image, starts)[0], strict=True):
        latent = (row / LATENT**0.5).unsqueeze(0).requires_grad_()
        optimiser = torch.optim.SGD([latent], lr=10.0, momentum=0.7)
        for step in range(extractor.steps):
            optimiser.param_groups[0]["lr"] = 1.0 if step >= 16 else 10.0
            optimiser.zero_grad()
            torch.autograd.backward((extractor.network(latent) - image).square().mean())
            optimiser.step()
        alone = (extractor.network(latent) - image).square().mean().detach()
        assert float(error) == pytest.approx(float(alone), rel=1e-3)


def test_few_images_at_once_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = toys().tested.clean[:7]
    whole = errors(trained_extractor(), images)
    monkeypatch.setattr(defense_gan, "MEMORY", 1)
    assert torch.allclose(errors(trained_extractor(), images), whole, rtol=1e-3)


def test_training_leaves_torchs_own_generator_and_threads_alone() -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    training(stripes()).run(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_another_seed_draws_other_weights() -> None:
    assert not torch.equal(flat(training(stripes(), seed=1).generator), flat(training(stripes(), seed=2).generator))


def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "gan.bf"
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed = subprocess.Popen([sys.executable, small_gan.__file__, str(path)], env=os.environ | threads)  # noqa: S603
    deadline = time.monotonic() + 120
    while not path.exists():
        assert killed.poll() is None
        assert time.monotonic() < deadline
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    done = artifact.read(path, KIND, SCHEMA)[0]["done"]
    assert done >= KEEP
    resumed, straight = training(stripes()), training(stripes())
    resumed.run(done + 3, path)
    straight.run(done + 3)
    assert torch.equal(flat(resumed.generator), flat(straight.generator))
    assert torch.equal(flat(resumed.critic), flat(straight.critic))
    assert resumed.loss == straight.loss
    assert artifact.read(path, KIND, SCHEMA)[0]["done"] == done + 3


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gan.bf"
    training(stripes()).run(2, path)
    with pytest.raises(StoreError, match="other images or options"):
        training(stripes(), seed=1).run(3, path)
    with pytest.raises(StoreError, match="2 iterations are done there, and 1 were asked for"):
        training(stripes()).run(1, path)
    with pytest.raises(OptionError, match="make the folder"):
        training(stripes()).run(1, tmp_path / "none" / "gan.bf")


def test_fits_with_a_work_folder_share_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_data = toys()
    options = DefenseGAN(**SMALL)
    options.prepare(toy_data.classifier, FitData(toy_data.fitted, toy_data.clean, tmp_path, show_progress=False))
    (checkpoint,) = tmp_path.iterdir()
    monkeypatch.setattr("benfourier.detectors.defense_gan.gan.GanTraining._iterate", None)  # nothing is trained
    shorter = replace(options, search_steps=2)
    first, second = (
        fit(o, toy_data.classifier, toy_data.fitted, clean=toy_data.clean, work_dir=tmp_path)
        for o in (options, shorter)
    )
    weights = [dict(detector.extractor.weights) for detector in (first, second)]  # type: ignore[attr-defined]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    first.save(tmp_path / "detector.bf")
    assert str(tmp_path).encode() not in (tmp_path / "detector.bf").read_bytes()
    assert bf.load(tmp_path / "detector.bf", toy_data.classifier).method == options
    assert checkpoint.exists()


def test_nothing_is_prepared_without_a_folder_or_clean_images(tmp_path: Path) -> None:
    toy_data = toys()
    DefenseGAN().prepare(toy_data.classifier, FitData(toy_data.fitted, toy_data.clean))
    DefenseGAN().prepare(toy_data.classifier, FitData(toy_data.fitted, None, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_summary_states_how_long_the_training_was() -> None:
    toy_data = toys()
    learned = fit("defense-gan", toy_data.classifier, toy_data.fitted, clean=toy_data.clean, **SMALL).summary["learned"]
    assert learned["iterations"] == 2
    assert learned["images"] == len(toy_data.clean)


def test_the_progress_bar_shows_the_loss_of_the_critic(capsys: pytest.CaptureFixture[str]) -> None:
    gan_training = training(stripes())
    gan_training.run(2, show_progress=True)
    output = capsys.readouterr().err
    assert "2/2" in output
    assert f"critic {gan_training.loss:.4f}" in output


@pytest.mark.parametrize(
    "options", [{"iterations": 0}, {"width": 1.5}, {"restarts": 0}, {"lr": 0}, {"momentum": 1.0}, {"momentum": -0.1}]
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        make_method("defense-gan", **options)


def test_images_can_be_scored_in_inference_mode() -> None:
    images = toys().tested.clean[:3]
    expected = errors(trained_extractor(), images)
    with torch.inference_mode():
        assert torch.equal(errors(trained_extractor(), images.clone()), expected)
