"""Plans: read with every default, and refused with the path of what is wrong."""

import json
import re
from pathlib import Path

import pytest

from benfourier.attacks.examples import MIXTURE
from benfourier.errors import PlanError
from benfourier.evaluation.network import check_files
from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.studies import STUDIES
from benfourier.store.vocabulary import RATES, ProtocolName, StudyName
from tests.evaluation.tiny import PLAN, changed, plan_in

ROOT = Path(__file__).parents[2]
NO_EXPERIMENTS = ("notes.toml", "paper.toml", "reproduce.toml")
PLANS = sorted(file for file in (ROOT / "experiments").glob("*.toml") if file.name not in NO_EXPERIMENTS)
STRENGTHS = sorted(file for file in (ROOT / "experiments" / "strengths").glob("*.toml") if file.name != "common.toml")


def test_a_plan_is_read_with_all_its_defaults(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path))
    assert (plan.name, plan.seed, plan.scale, plan.other, plan.studies) == ("tiny", 3, "here", (), ())
    assert [attack.label for attack in plan.attacks] == ["bim", "deepfool", "strong"]
    assert [attack.sources for attack in plan.attacks] == [70, 50, 70]
    assert plan.attack("strong").options["eps"] == 0.2
    assert plan.attack("bim").options["eps"] == 0.3
    assert plan.network.train is not None
    assert (plan.network.train["seed"], plan.network.train["epochs"], plan.network.share) == (3, 8, 0.5)
    assert plan.detector("mbf").options["orders"] == 2
    assert plan.detector("mbf").options["seed"] == 3


def test_the_baseline_detector_is_in_every_plan_once(tmp_path: Path) -> None:
    assert [entry.name for entry in read_plan(plan_in(tmp_path)).detectors] == ["max-softmax", "mbf"]
    text = changed(('name = "mbf"\norders = 2\nC = 1.0\ngamma = "scale"', 'name = "max-softmax"\nlabel = "doubt"'))
    assert [entry.label for entry in read_plan(plan_in(tmp_path, text)).detectors] == ["doubt"]


def test_a_label_names_the_options_that_were_changed(tmp_path: Path) -> None:
    text = changed(('eps = 0.2\nlabel = "strong"', 'eps = "8/255"'))
    (label,) = read_plan(plan_in(tmp_path, text)).labels("strength")
    assert label == "bim-fixed eps=0.03137"


def test_a_scale_is_laid_over_the_plan(tmp_path: Path) -> None:
    text = PLAN + "\n[scales.paper.sizes]\nsources = 600\n[scales.paper.network.train]\nepochs = 9\n"
    file = plan_in(tmp_path, text)
    plan = read_plan(file, scale="paper")
    assert (plan.scale, plan.sources, plan.calibration) == ("paper", 600, 220)
    assert plan.network.train is not None
    assert (plan.network.train["epochs"], plan.network.train["batch"]) == (9, 64)
    assert read_plan(file).sources == 70
    with pytest.raises(PlanError, match=r"there is no scale 'papr'; allowed: here, paper"):
        read_plan(file, scale="papr")


def test_a_scale_reaches_attacks_and_detectors_by_their_labels(tmp_path: Path) -> None:
    scale = """
[scales.paper.attacks.deepfool]
sources = 60
[scales.paper.attacks.strong]
eps = 0.25
[scales.paper.attacks.expensive]
name = "cw-l2"
[scales.paper.detectors.mbf]
orders = 16
"""
    file = plan_in(tmp_path, PLAN + scale)
    plan, here = read_plan(file, scale="paper"), read_plan(file)
    assert [(attack.label, attack.sources) for attack in plan.attacks] == [
        ("bim", 70), ("deepfool", 60), ("strong", 70), ("expensive", 70)
    ]  # fmt: skip
    assert (plan.attack("strong").options["eps"], plan.attack("expensive").name) == (0.25, "cw-l2")
    assert [attack.sources for attack in here.attacks] == [70, 50, 70]
    assert (plan.detector("mbf").options["orders"], here.detector("mbf").options["orders"]) == (16, 2)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ("[scales.paper.attacks.bin]\nsources = 60", r"attacks.bin is laid .* labels: bim, deepfool, strong;"),
        ("[scales.paper.attacks]\nbim = 3", r"attacks.bim is 3; it must be a table of what changes in that entry"),
        ("[scales.paper.attacks.bim]\nepz = 3", r"at scale 'paper': attacks\[0\].epz: bim has no option 'epz'"),
    ],
)
def test_what_is_wrong_in_a_scale_is_reported_with_its_path(tmp_path: Path, scale: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_plan(plan_in(tmp_path, PLAN + "\n" + scale), scale="paper")


ABOVE = """
extends = "tiny.toml"
attacks = ["bim", { label = "strong", eps = 0.25 }, { name = "r-pgd" }]
[sizes]
calibration = 100
[detectors.mbf]
orders = 3
[detectors.more]
name = "mbf"
orders = 5
"""


def above(folder: Path, text: str, below: str = PLAN) -> Path:
    plan_in(folder, below)
    (folder / "above.toml").write_text(text, encoding="utf-8")
    return folder / "above.toml"


def test_a_plan_is_laid_over_the_one_that_it_extends(tmp_path: Path) -> None:
    scales = "\n[scales.paper.attacks]\nbim = { sources = 60 }\ndeepfool = { sources = 60 }\n"
    file = above(tmp_path, ABOVE, PLAN.replace('name = "tiny"\n', "") + scales)
    plan = read_plan(file)
    assert (plan.name, plan.seed, plan.sources, plan.calibration) == ("above", 3, 70, 100)
    assert [(attack.label, attack.role) for attack in plan.attacks] == [
        ("bim", "boundary"), ("strong", "strength"), ("r-pgd", "boundary")
    ]  # fmt: skip
    assert plan.attack("strong").options["eps"] == 0.25
    assert [(entry.label, entry.options.get("orders")) for entry in plan.detectors] == [
        ("max-softmax", None), ("mbf", 3), ("more", 5)
    ]  # fmt: skip
    # the scale below also changes deepfool, which is not in this plan
    assert [attack.sources for attack in read_plan(file, scale="paper").attacks] == [60, 70, 70]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends = 3", r"above.toml: extends is 3; it must be the name of a file beside this one"),
        ('extends = "above.toml"', r"above.toml: extends is 'above.toml', which extends this file"),
        ('extends = "no.toml"', r"no.toml: it cannot be read"),
        (
            'extends = "tiny.toml"\nattacks = ["bin"]',
            r"above.toml: attacks\[0\] is 'bin', which is not .* labels: bim, ",
        ),
        ('extends = "tiny.toml"\n[attacks.bim]\nepz = 1', r"above.toml: attacks\[0\].epz: bim has no option 'epz'"),
    ],
)
def test_what_is_wrong_in_a_plan_that_extends_another_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_plan(above(tmp_path, text))


def test_an_expensive_detector_takes_fewer_images_also_for_its_threshold(tmp_path: Path) -> None:
    text = changed(("calibration = 220", "calibration = 900"), ("orders = 2", "orders = 2\nsources = 40"))
    plan = read_plan(plan_in(tmp_path, text))
    assert (plan.detector("mbf").sources, plan.detector("mbf").calibration) == (40, 200)
    assert (plan.detector("max-softmax").sources, plan.detector("max-softmax").calibration) == (70, 900)


def test_settings_hold_everything_but_the_folders_of_a_machine(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path), data_dir=tmp_path)
    settings = json.dumps(plan.settings())
    assert str(tmp_path) not in settings
    assert '"orders": 2' in settings
    assert '"eps": 0.2' in settings


def test_sources_are_found_from_the_folder_of_the_plan_or_of_the_data(tmp_path: Path) -> None:
    text = changed(('source = "digits"', 'source = "{data}/x.npz:test"\nother = "y.npz"'))
    plan = read_plan(plan_in(tmp_path, text), data_dir=tmp_path / "far")
    assert plan.locate(plan.source) == str(tmp_path / "far" / "x.npz:test")
    (tmp_path / "y.npz").touch()
    assert plan.locate(plan.other[0]) == str(tmp_path / "y.npz")
    with pytest.raises(PlanError, match=r"data.source: .*x\.npz:test' is neither an embedded one nor a file"):
        check_files(plan)
    with pytest.raises(PlanError, match=r"there is no folder for \{data\}; give it with --data-dir"):
        check_files(read_plan(plan_in(tmp_path, text)))


def test_weights_may_lie_in_the_folder_of_the_data(tmp_path: Path) -> None:
    old = "train = { epochs = 8, share = 0.5, shift = 0, batch = 64, bf16 = false }"
    text = changed((old, 'weights = "{data}/w.st"'))
    plan = read_plan(plan_in(tmp_path, text), data_dir=tmp_path / "there")
    assert plan.weights_path == tmp_path / "there" / "w.st"


def test_a_credit_that_the_source_does_not_have_is_reported_before_anything_runs(tmp_path: Path) -> None:
    text = changed(('source = "digits"', 'source = "digits"\ncredit = "by {author}"'))
    with pytest.raises(PlanError, match=r"data.credit is 'by \{author\}', but digits has no labels.csv"):
        check_files(read_plan(plan_in(tmp_path, text)))


def test_missing_weights_are_reported_before_anything_runs(tmp_path: Path) -> None:
    text = changed(("train = { epochs = 8, share = 0.5, shift = 0, batch = 64, bf16 = false }", 'weights = "w.st"'))
    with pytest.raises(PlanError, match=r"network.weights is 'w.st'; there is no such file"):
        check_files(read_plan(plan_in(tmp_path, text)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "tiny"', 'name = "tiny', r"tiny.toml, line 2: .*; correct the line"),
        ("seed = 3", "seed = 3 4", r"tiny.toml, line 3: "),
        ("seed = 3", 'seed = "3"', r"seed is '3'; it must be a whole number"),
        ("seed = 3", "seed = true", r"seed is True; it must be a whole number"),
        ("seed = 3", "sed = 3", r"sed is no key of a plan; allowed: .*seed.*; did you mean 'seed'\?"),
        ('"mixed"', '"mixd"', r"protocols\[3\] is 'mixd'; allowed: non-transfer, .*; did you mean 'mixed'\?"),
        ('"mixed"', '"non-transfer"', r"protocols\[3\] is 'non-transfer' again"),
        (
            '"mixed"]',
            '"mixed"]\nstudies = ["kss"]',
            r"studies\[0\] is 'kss'; allowed: ks, profile, layers, cost, pictures",
        ),
        ('"mixed"]', '"data-transfer"]', r"data.other is missing; data-transfer needs a second source"),
        ("orders = 2", 'twins = "all"', r"detectors\[0\].twins is 'all'; allowed: one, every"),
        ("tests.evaluation.tiny:network", "lid-mnis", r"network.model is 'lid-mnis'; .*did you mean 'lid-mnist'\?"),
        ("epochs = 8", "epochs = 0", r"network.train.epochs is 0; it must be a whole number of at least 1"),
        ("epochs = 8", "epoch = 8", r"network.train.epoch is no key of a plan; .*did you mean 'epochs'\?"),
        ("share = 0.5", "share = 1.5", r"network.train.share is 1.5; it must be from 0.05 to 0.95"),
        ("bf16 = false }", "bf16 = false }\nbound = 1", r"network.bound is no key .*did you mean 'bounds'\?"),
        ('source = "digits"', "source = 1", r"data.source is 1; it must be text"),
        ('source = "digits"', 'source = "digits"\nother = ["a", 1]', r"data.other\[1\] is 1; it must be text"),
        ('source = "digits"', 'source = "digits"\nskip = -1', r"data.skip is -1; it must be a number of images, or"),
        ('source = "digits"', 'source = "digits"\nskip = ["9"]', r"data.skip is \['9'\]; it must be .* ranges"),
        ('source = "digits"', 'source = "digits"\ngroups = { a = [0] }', r"data.groups are a; a network needs two"),
        ('source = "digits"', 'source = "digits"\ngroups = { a = [], b = [1] }', r"data.groups.a is empty; it must"),
        (
            'source = "digits"',
            'source = "digits"\ngroups = { a = [0, 1.5], b = [1] }',
            r"data.groups.a\[1\] is 1.5; it",
        ),
        ('source = "digits"', 'source = "digits"\ngroups = { a = [1], b = ["0-3"] }', r"data.groups .* b holds 1, and"),
        (
            "share = 0.5",
            "share = 0.5, detection = 'all'",
            r"network.train.detection is 'all'; allowed: held-out, learned",
        ),
        (
            "share = 0.5",
            "share = 0.5, until_all_correct = 1",
            r"train.until_all_correct is 1; it must be true or false",
        ),
        ("share = 0.5", "share = 0.5, new_layers = {}", r"network.train.new_layers is .* give weights too"),
        (
            "bf16 = false }",
            'bf16 = false, new_layers = { epochs = 0 } }\nweights = "w"',
            r"network.train.new_layers.epochs is 0; it",
        ),
        (
            "bf16 = false }",
            'bf16 = false, new_layers = { seed = 1 } }\nweights = "w"',
            r"network.train.new_layers.seed is 1; both",
        ),
        ("bf16 = false }", 'bf16 = false }\nweights = "zoo"', r"network.weights is 'zoo', and .*: alexnet, vgg16"),
        ("bf16 = false }", "bf16 = false }\nbounds = [1, 0]", r"network.bounds are \[1, 0\]; they must be two finite"),
        ("bf16 = false }", 'bf16 = false }\nsize = "x"', r"network.size is 'x'; it must be a whole number"),
        ("sources = 70", "sources = 4", r"sizes.sources is 4; it must be a whole number of at least 10"),
        ("calibration = 220", "other = 90", r"sizes.other is 90; it must be .* at least 10 and at most 70"),
        ("sources = 50", "sources = 80", r"attacks\[1\].sources is 80; .* at least 10 and at most 70"),
        ("eps = 0.2", "eps = -1", r"attacks\[2\].eps is -1; it must be a number above 0"),
        ("eps = 0.2", "epz = 0.2", r"attacks\[2\].epz: bim-fixed has no option 'epz'; .*did you mean 'eps'\?"),
        ('name = "deepfool"', 'name = "deepfol"', r"attacks\[1\].name is 'deepfol'; .*did you mean 'deepfool'\?"),
        ('name = "deepfool"', 'label = "x"', r"attacks\[1\].name is missing; it must be text"),
        ('label = "strong"', 'label = "bim"', r"attacks\[2\].label is 'bim' again"),
        ('label = "strong"', 'label = "noisy"', r"attacks\[2\].label is 'noisy', which names images"),
        ('role = "strength"', 'role = "strong"', r"attacks\[2\].role is 'strong'; allowed: boundary, strength"),
        ('role = "strength"', "", r"protocols hold strength-transfer, but no attack has role = 'strength'"),
        ('name = "bim"\n', 'name = "bim"\ntransfer = 9\n', r"attacks\[0\].transfer is 9; .* false, or .* least 10"),
        ('name = "bim"\n', 'name = "bim"\ntransfer = 71\n', r"attacks\[0\].transfer is 71; .* and at most 70"),
        ('name = "bim"\n', 'name = "bim"\ntransfer = "no"\n', r"attacks\[0\].transfer is 'no'; it must be true, false"),
        ('role = "strength"', 'role = "strength"\nown_noise = true', r"attacks\[2\].own_noise is true; a strength"),
        ('name = "bim"\n', 'name = "bim"\nown_noise = true\n', r"attacks\[2\].sources is 70; .*allowed: 50"),
        ('role = "strength"', 'role = "strength"\nsources = 60', r"attacks\[2\].sources is 60; .*allowed: 50, 70"),
        ('name = "mbf"', 'name = "mbv"', r"detectors\[0\].name is 'mbv'; allowed: c1c2, .*did you mean 'mbf'\?"),
        ("orders = 2", "orders = 0", r"detectors\[0\].orders is 0; it must be a whole number of at least 1"),
        ("orders = 2", "order = 2", r"detectors\[0\].order: mbf has no option 'order'; .*did you mean 'orders'\?"),
        ("orders = 2", 'preset = "papr"', r"detectors\[0\]: preset of mbf is 'papr'; allowed: paper"),
        ("[[detectors]]", "[detectors]", r"detectors is \{.*; it must be one table .* under \[\[detectors"),
    ],
)
def test_what_is_wrong_is_reported_with_its_path(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_plan(plan_in(tmp_path, changed((old, new))))


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"no.toml: it cannot be read \(No such file or directory\)"):
        read_plan(tmp_path / "no.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match=r"it is no UTF-8 text"):
        read_plan(tmp_path / "b.toml")


def test_the_plan_on_the_page_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    block, taught = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    entries = '[data]\nsource = "photos"\n[[attacks]]\nname = "bim"\n[[detectors]]\nname = "mbf"\n'
    network = read_plan(plan_in(tmp_path, taught + entries)).network
    assert (network.classes, network.until_all_correct, network.detection) == (["bird", "mammal"], True, "learned")
    plan = read_plan(plan_in(tmp_path, block), scale="paper")
    assert (plan.sources, plan.labels("strength")) == (8175, ("bim-fixed 0.1",))
    for word in (*ProtocolName, *StudyName, *RATES):
        assert f"`{word}`" in page or f"@{word}`" in page


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_an_experiment_at_the_papers_scale_has_every_attack_and_detector_whole(file: Path) -> None:
    plan = read_plan(file, scale="paper", data_dir=file.parent)
    here = read_plan(file, data_dir=file.parent)
    assert plan.sources > here.sources
    assert {attack.sources for attack in plan.attacks} == {plan.sources}
    assert {attack.label for attack in here.attacks} <= {attack.label for attack in plan.attacks}
    counts = {entry.sources for entry in plan.detectors if not re.search(r"\d sources$", entry.label)}
    assert counts == {plan.sources}
    assert {attack.reduced for attack in plan.attacks if attack.role == "boundary"} == {""}
    excused = {"KD alone: the network has no dropout", "GAN trained on the few images that are left over"}
    assert {entry.reduced for entry in plan.detectors} <= {"", *excused}


@pytest.mark.parametrize("file", STRENGTHS, ids=lambda file: file.stem)
def test_a_plan_of_every_strength_fits_to_the_default_mixture_on_images_that_served_for_no_choice(file: Path) -> None:
    plan = read_plan(file, data_dir=file.parent)
    mixture = {attack.label: (attack.name, attack.options) for attack in plan.attacks if attack.role == "mixture"}
    default = {label: (attack.name, attack.as_dict()) for label, attack in MIXTURE.items()}
    if file.stem.endswith("farther"):  # the mixture that was not chosen
        default["weak"] = ("r-pgd-beyond", {**MIXTURE["weak"].as_dict(), "factor": 2.0})
    assert mixture == default
    assert "mixture" in plan.protocols
    # choices were made on test images of CIFAR-10 and of MNIST, prototypes also on SVHN and photographs; never on the
    # embedded digits, which are of MNIST's training images
    on_choices = plan.source == "{data}/mnist-test.npz"
    assert plan.skip or plan.source == "mnist-5k" or on_choices
    assert on_choices == file.stem.startswith("choices-mnist")


def test_every_study_that_a_plan_may_name_exists() -> None:
    assert list(STUDIES) == list(StudyName)
