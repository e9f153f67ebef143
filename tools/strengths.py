"""docs/strengths.md from the ledgers in experiments/strengths/results: one detector for every strength of attack.

Ledgers named choices… are of the development images, on which the default was chosen; the others test that choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benfourier.attacks.examples import MIXTURE as MIXTURE_ATTACKS
from benfourier.report import Results, drawing
from benfourier.report.detection_tables import by_attack, other_strength
from benfourier.report.registry import build
from benfourier.report.render import escape, line, table_lines
from benfourier.report.results import AUROC, MEAD, WORST, CellRef, find_cell
from benfourier.report.table import NOTHING, Entry, join, percent, plural
from benfourier.store.ledger import read
from benfourier.store.records import Estimate, Outcome
from benfourier.store.vocabulary import BASELINE, CHANGES, DEFAULT_RATE, MBF, MISCLASSIFIED, ProtocolName
from tools.experiments import Experiment, facts

FOLDER = "experiments/strengths"
EARLIER = " (the choice before this one)"
CHOICES = "choices"  # beginning of the names of ledgers of development images
VIEWS = "views"
SAME_ATTACK, OTHER_ATTACK, MIXTURE = ProtocolName.SAME_ATTACK, ProtocolName.OTHER_ATTACK, ProtocolName.MIXTURE
UNSEEN, LEFT_OUT = ProtocolName.UNSEEN, ProtocolName.LEFT_OUT
ALARMS = {"clean": "clean", MISCLASSIFIED: "misclassified", "noise": "noise of ±8/255", "jpeg": "JPEG, quality 75"}
ALARMS |= {kind: title.lower() for kind, title in CHANGES.items() if kind not in ALARMS}
REJECTED = {  # kinds of images that the README says the share of
    "noise": "images with noise of ±8/255",
    "jpeg": "JPEG images",
    MISCLASSIFIED: "the images that the network itself gets wrong",
}
README_EXPERIMENT = "cifar10-resnet20"  # whose figure the README shows
HEADLINE = (
    line("network", "`views`: lowest AUROC, %", "all caught, %", "attacks of other kinds", "`mbf`", "`max-softmax`"),
    line("---", *["---:"] * 5),
)
HEADLINE_NOTE = (
    "Fitted to the default mixture of attacks, tested on nine others on other images. Lowest AUROC: that of the attack "
    "under which the detector does worst, with its 95 % interval. All caught: share of the images whose every "
    "successful attack is caught, at 5 % false alarms. Attacks of other kinds: the lowest AUROC over attacks of kinds "
    "that are not in the fit. All tables: [strengths](docs/strengths.md)."
)
FIGURE = "docs/figures/worst-case.svg"
FIGURE_NOTE = (
    "CIFAR-10, ResNet-20: one dot per attack, the worst one filled. Every detector is fitted to the same mixture of "
    "attacks, but for `views, no attacks`, which has seen none."
)
ATTACKS: Sequence[tuple[str, str, str, dict[str, str]]] = (  # rows of the README's table; costs by label in the ledger
    (
        "`bim`, `bim-fixed`",
        "gradient signs, least eps or a set one",
        "[Kurakin et al. 2017](https://arxiv.org/abs/1607.02533)",
        {"bim": "`bim`"},
    ),
    (
        "`r-pgd`, `r-pgd-fixed`, `r-pgd-beyond`",
        "the same from a random start",
        "[Madry et al. 2018](https://arxiv.org/abs/1706.06083)",
        {"r-pgd": "`r-pgd`", "r-pgd 8/255": "`-fixed`", "weak": "`-beyond`"},
    ),
    (
        "`deepfool`",
        "steps to the nearest boundary",
        "[Moosavi-Dezfooli et al. 2016](https://arxiv.org/abs/1511.04599)",
        {"deepfool": "`deepfool`"},
    ),
    (
        "`cw-l2`",
        "least L2 distance by optimisation",
        "[Carlini & Wagner 2017](https://arxiv.org/abs/1608.04644)",
        {"cw-l2": "`cw-l2`"},
    ),
    (
        "`autoattack`, `foolbox:…`",
        "AutoAttack, any attack of Foolbox 3",
        "[Croce & Hein 2020](https://arxiv.org/abs/2003.01690)",
        {"Square": "Square", "EAD": "EAD", "HopSkipJump": "HopSkipJump"},
    ),
)
INTRO = """# One detector for every strength

Attacks that stop at the decision boundary leave the network uncertain; attacks of a fixed strength leave it certain and
wrong. A detector that catches the one kind often misses the other ([results](results.md)). `views`, the default of
`benfourier fit`, fitted to the default mixture of attacks, is meant to hold for both. This page measures it.
`python -m tools.docs` writes it from the ledgers in `experiments/strengths/results/`; their plans stand in the folder
above.

- Every detector is fitted once, to the default mixture of attacks, and tested on nine attacks on other images. AUROC in
  percent with 95 % intervals, drawn by source image.
- All caught: share of the images whose every successful attack is caught. Thresholds are for 5 % false alarms and come
  from separate clean images, misclassified ones among them.
- Views, head, mixture and all constants were chosen on CIFAR-10 test images 0 to 999, and on digits of MNIST's test set
  ([how](#how-it-was-chosen)). Those images are in no other table here; the other data sets took the choice unchanged.
- "Other kinds" are attacks of kinds that no detector was fitted to. On MNIST, EAD was among those that the choice
  looked at, on other digits.
- "The choice before this one" had a blur in the place of coarse pixels, and a weak attack that goes twice as far as it
  must: these ledgers are still to be made again.
- `views, fast` has two forward passes instead of six. `views, no attacks` has seen no attacked image."""


CHOSEN = """CIFAR-10 test images 0 to 999 were used, with ResNet-20 and with LID's network, and digits of MNIST's test
set, with a network that learned from some of them; the embedded digits, which are tested above, are from its training
set. The tables show what was compared; differences within an interval decided nothing.

- **Head**: logistic regression. Boosted trees do worse under weak attacks and catch fewer images under all attacks.
  An SVM does no better on both CIFAR-10 networks. Squares of the margins help on digits as far as attacks are like
  those of the fit, and lose nearly all under EAD.
- **Views**: all six. Two margins of each view instead of one reject fewer clean images that are noisy or stored as
  JPEG; a third adds nothing. The coarse view took the place of a blur: on CIFAR-10 they do alike, on digits two levels
  remove most of what an attack added, and without them a strongly attacked digit keeps larger margins than a clean one
  in all views, so that a linear head cannot tell weak and strong attacks from clean images alike.
- **Levels**: the fewest that keep half of the labels, as for every view. Eight instead of four on CIFAR-10 are as good;
  three instead of two on digits fail under attacks of eps 0.3.
- **Mixture**: `r-pgd-beyond` at 1.2 and 8 times the least eps of each image. A fit to the weaker alone does not carry
  over to strong attacks, a fit to the stronger alone loses weak ones, a fit to a boundary attack loses nearly all.
  Twice instead of 1.2 times does alike on CIFAR-10 and loses EAD and attacks at the boundary on digits. Attacks of a
  set eps do as well on one network, but eps would have to be set for each.
- **Without attacks**: the drop of the margins. A Gaussian mixture does worse under weak attacks.
- **Tried, and not taken**, since they lost more than they gained: JPEG images among the benign images of the fit;
  ratios, square roots and sorted margins as features; a smaller C."""


def load(root: Path) -> tuple[Experiment, ...]:
    """Returns the experiments, those of development images last."""
    paths = sorted((root / FOLDER / "results").glob("*.jsonl"), key=lambda path: (_is_choice(path.stem), path.stem))
    return tuple(Experiment(path.stem, Results.from_records(read(path))) for path in paths)


def _is_choice(name: str) -> bool:
    return name.startswith(CHOICES)


def page(experiments: Sequence[Experiment]) -> str:
    """Returns docs/strengths.md."""
    tested = [each for each in experiments if not _is_choice(each.name)]
    lines = [INTRO, "", "## In short", "", *_worst_lines(tested), "", "## False alarms", "", *_alarm_lines(tested)]
    lines += ["", "## Beside the paper", "", *_paper_lines(tested), "", "## Cost", "", *_cost_lines(tested)]
    for experiment in tested:
        lines += ["", f"## {escape(experiment.name)}", *_experiment_lines(experiment)]
    lines += ["", "## How it was chosen", "", CHOSEN]
    for experiment in (each for each in experiments if _is_choice(each.name)):
        lines += ["", f"### {escape(experiment.name)}", *_experiment_lines(experiment)]
    return "\n".join(lines) + "\n"


def headline(experiments: Sequence[Experiment]) -> str:
    """Returns the README's table: per network the worst case of the default detector, of mbf and of the baseline."""
    rows = []
    for experiment in (each for each in experiments if not _is_choice(each.name)):
        outcomes = {outcome.detector: outcome for outcome in _outcomes(experiment, MIXTURE)}
        unseen = {outcome.detector: outcome for outcome in _outcomes(experiment, UNSEEN)}
        if VIEWS in outcomes:
            own = outcomes[VIEWS]
            network = f"{escape(experiment.source)}, {escape(experiment.results.network)}{experiment.accuracy}"
            network += _earlier(experiment)
            others = (_worst(outcomes[name])[1] if name in outcomes else NOTHING for name in (MBF, BASELINE))
            kinds = _worst(unseen[VIEWS])[1] if VIEWS in unseen else NOTHING
            rows.append(line(network, _worst(own)[1], _share(own.overall.get(MEAD)), kinds, *others))
    return "\n".join([*HEADLINE, *rows, "", HEADLINE_NOTE, ""]) if rows else ""


def picture(experiments: Sequence[Experiment]) -> str:
    """Returns the README's picture with its words; nothing without its ledger."""
    shown = [each for each in experiments if each.name == README_EXPERIMENT]
    lowest = [f"{outcome.detector} {_lowest(outcome)}" for one in shown for outcome in _outcomes(one, MIXTURE)]
    if not lowest:
        return ""
    words = f"AUROC of detectors under nine attacks on CIFAR-10, one dot per attack; the lowest: {'; '.join(lowest)}"
    return f"![{escape(words)}]({FIGURE})\n\n{FIGURE_NOTE}\n"


def _lowest(outcome: Outcome) -> str:
    return f"{percent(outcome.overall.get(WORST)).text} %"


def alarms(experiments: Sequence[Experiment]) -> str:
    """Returns the README's sentence on what the default detector costs in false alarms; nothing without ledgers."""
    tested = [each for each in experiments if not _is_choice(each.name) and not _earlier(each)]
    found = [each for one in tested for each in _outcomes(one, MIXTURE)]
    rates = [outcome.overall for outcome in found if outcome.detector == VIEWS]
    if not rates:
        return ""

    def span(kind: str) -> str:
        shares = [100 * each[f"fpr-{kind}@{DEFAULT_RATE}"].value for each in rates]
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        return f"{high} %" if low == high else f"{low} to {high} %"

    known = [kind for kind in REJECTED if all(f"fpr-{kind}@{DEFAULT_RATE}" in each for each in rates)]
    shares = ", ".join(f"{span(kind)} of {REJECTED[kind]}" for kind in known)
    price = f"at a threshold for 5 % false alarms it rejects {shares}"
    return f"- It has a price: several forward passes, and {price}.\n"


def attack_table(experiments: Sequence[Experiment]) -> str:
    """Returns the README's table of attacks, with what they cost on ResNet-20; nothing without that ledger."""
    shown = [each for each in experiments if each.name == README_EXPERIMENT]
    if not shown:
        return ""
    calls = {each.attack: each.calls for each in shown[0].results.attack_summaries}
    rows = [line("attack", "what it does", "paper", "passes of ResNet-20 per image"), line("---", "---", "---", "---")]
    for name, what, paper, costs in ATTACKS:
        known = [f"{float(f'{calls[label]:.2g}'):,.0f} ({words})" for label, words in costs.items() if label in calls]
        rows.append(line(name, what, paper, ", ".join(known)))
    return "\n".join(rows) + "\n"


def figure(experiments: Sequence[Experiment]) -> str:
    """Returns the README's picture: AUROC of every detector under every attack, as SVG; empty without its ledger."""
    shown = [each for each in experiments if each.name == README_EXPERIMENT]
    built = [each for one in shown for each in build(one.results).figures if each.id == f"worst-case-1-{MIXTURE}"]
    return drawing.file(built[0]) if built else ""


def _worst_lines(experiments: Sequence[Experiment]) -> Iterator[str]:
    """A table: the worst case of every detector over the attacks, and over attacks of other kinds."""
    heads = ("data, network", "detector", "attacks", "worst AUROC, %", "under", "all caught, %")
    yield line(*heads, "other kinds", "worst AUROC, %", "under")
    yield line("---", "---", "---:", "---:", "---", "---:", "---:", "---:", "---")
    for experiment in experiments:
        name = _network(experiment)
        for outcome in _outcomes(experiment, MIXTURE):
            unseen = [each for each in _outcomes(experiment, UNSEEN) if each.detector == outcome.detector]
            parts = [*_worst(outcome), _share(outcome.overall.get(MEAD))]
            yield line(name, f"`{escape(outcome.detector)}`", *parts, *(_worst(unseen[0]) if unseen else [NOTHING] * 3))
            name = ""


def _alarm_lines(experiments: Sequence[Experiment]) -> Iterator[str]:
    """A table of the clean images that detectors reject at a threshold for 5 % false alarms."""
    yield line("data, network", "detector", *(f"{title}, %" for title in ALARMS.values()))
    yield line("---", "---", *["---:"] * len(ALARMS))
    for experiment in experiments:
        name = _network(experiment)
        for outcome in _outcomes(experiment, MIXTURE):
            rates = (outcome.overall.get(f"fpr-{kind}@{DEFAULT_RATE}") for kind in ALARMS)
            yield line(name, f"`{escape(outcome.detector)}`", *map(_share, rates))
            name = ""
    yield from (
        "",
        "“Clean” and all changed images are those that the network classifies correctly without the change.",
    )


def _paper_lines(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Tables of `views` at the paper's own protocol, each cell beside the paper's MBF, and where it is below."""
    below, count, tables = [], 0, []
    for experiment in experiments:
        results, source = experiment.results, experiment.source
        outcomes = (*results.of(SAME_ATTACK, source), *results.of(OTHER_ATTACK, source))
        attacks = [attack for attack in results.attacks if any(attack in outcome.fitted for outcome in outcomes)]
        paper, rows = results.paper(source), []
        for fitted in attacks:
            entries = []
            for attack in attacks:
                protocol = SAME_ATTACK if fitted == attack else OTHER_ATTACK
                ref = find_cell(outcomes, VIEWS, fitted, attack)
                number = paper.beside(protocol, AUROC, MBF, results.attack_id(fitted), results.attack_id(attack))
                entries.append(percent(ref.known(AUROC) if ref else None, number))
                if ref and ref.known(AUROC) and number:
                    count += 1
                    points = number.difference(100 * ref.auroc.value)
                    below += [f"{experiment.name}, {fitted} → {attack} ({points:+.1f})"] * (points < 0)
            rows.append((fitted, entries))
        if any(entry.paper and entry.value is not None for _, entries in rows for entry in entries):
            tables.append((experiment, attacks, rows))
    yield f"`{VIEWS}` fitted to one boundary attack and tested on each, with the paper's MBF behind the bar: AUROC, %."
    yield f"It is at or above the paper's MBF in {count - len(below)} of {plural(count, 'cell')}."
    if below:
        yield f"Below: {escape(join(below))}."
    for experiment, attacks, rows in tables:
        yield from ("", line(f"{_network(experiment)}, fit ↓ test →", *map(escape, attacks)))
        yield line("---", *["---:"] * len(attacks))
        for fitted, entries in rows:
            yield line(escape(fitted), *(_beside(entry) for entry in entries))


def _cost_lines(experiments: Sequence[Experiment]) -> Iterator[str]:
    """A table of the time that detectors take."""
    yield line("data, network", "detector", "ms per image", "in forward passes")
    yield line("---", "---", "---:", "---:")
    for experiment in experiments:
        name = _network(experiment)
        for cost in sorted(experiment.results.costs, key=lambda cost: cost.features_ms):
            whole = cost.features_ms + cost.head_ms
            yield line(name, f"`{escape(cost.detector)}`", f"{whole:.3g}", f"{whole / cost.forward_ms:.2f}")
            name = ""
    yield from ("", "The forward pass that gives the label is part of both. Batches of 32, one thread.")


def _beside(entry: Entry) -> str:
    interval = f" ({entry.interval})" if entry.interval else ""
    return f"{entry.text}{interval}" + (f" \\| {entry.paper}" if entry.paper else "")


def _experiment_lines(experiment: Experiment) -> Iterator[str]:
    """What an experiment is, and its tables with intervals."""
    yield from ("", *facts(experiment, FOLDER))
    if _earlier(experiment):
        yield f"- {EARLIER.strip(' ()').capitalize()}."
    for protocol in (MIXTURE, UNSEEN, LEFT_OUT, SAME_ATTACK):
        for table in by_attack(experiment.results, metric=AUROC, protocol=protocol):
            rows = tuple(replace(row, entries=tuple(map(_alone, row.entries))) for row in table.rows)
            yield from ("", *table_lines(replace(table, rows=rows)))
    if _is_choice(experiment.name):
        for table in other_strength(experiment.results):
            if table.id == f"strength-down-{AUROC}":  # the baseline is fitted to nothing, and stands in the table above
                rows = tuple(row for row in table.rows if not row.name.startswith(BASELINE))
                yield from ("", *table_lines(replace(table, rows=rows)))


def _alone(entry: Entry) -> Entry:
    """An entry without the paper's number."""
    return replace(entry, paper=None)


def _network(experiment: Experiment) -> str:
    network = f"{escape(experiment.source)}, {escape(experiment.results.network)}"
    return f"[{network}](#{experiment.name}){experiment.accuracy}{_earlier(experiment)}"


def _earlier(experiment: Experiment) -> str:
    """A remark on a ledger whose weak attack is not that of the default mixture: views had a blur for coarse pixels."""
    now = MIXTURE_ATTACKS["weak"].as_dict()
    weak = [each.options for each in experiment.results.attack_summaries if each.attack == "weak"]
    return "" if all(now == {**now, **options} for options in weak) else EARLIER


def _outcomes(experiment: Experiment, protocol: ProtocolName) -> list[Outcome]:
    """The outcomes of a protocol in the order of the detectors, `views` first."""
    results = experiment.results
    of = {outcome.detector: outcome for outcome in results.of(protocol, experiment.source)}
    labels = sorted(results.detectors, key=lambda label: not label.startswith(VIEWS))
    return [of[label] for label in labels if label in of]


def _worst(outcome: Outcome) -> tuple[str, str, str]:
    """How many attacks an outcome was tested on, its worst AUROC and the attack of that."""
    refs = [ref for ref in (CellRef(outcome, cell) for cell in outcome.cells) if ref.known(AUROC)]
    if not refs:
        return "0", NOTHING, NOTHING
    return (
        str(len(refs)),
        _share(outcome.overall.get(WORST)),
        escape(min(refs, key=lambda r: r.auroc.value).cell.attack),
    )


def _share(estimate: Estimate | None) -> str:
    entry = percent(estimate)
    return f"{entry.text} ({entry.interval})" if entry.interval else entry.text
