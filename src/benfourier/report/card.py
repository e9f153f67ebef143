"""The card of a guard as a page with one picture, as a Hugging Face model card, and as JSON."""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from benfourier.errors import OptionError, check_choice
from benfourier.report.files import load_template
from benfourier.report.registry import Report, Section
from benfourier.report.render import markdown
from benfourier.report.table import (
    NOTHING,
    Entry,
    Row,
    Table,
    join,
    number,
    percent,
    percent_text,
    plural,
    quote,
    texts,
)
from benfourier.store.card import AGAIN, FEW, NEVER_TESTED, AlarmRate, AttackRate, GuardCard
from benfourier.store.records import Estimate
from benfourier.version import __version__

TAGS = ("adversarial-example-detection", "adversarial-robustness", "image-classification", "benfourier")
NAME_LENGTH = 26  # characters of a row's name in the picture
FIRST_LINE, HEADING_HEIGHT, ROW_HEIGHT = 14, 24, 36  # of the picture, in its own units
HARM = "where an error can do harm"

# Each says what the card shows for a term of an audit, and what it does not.
AUDIT = {
    "EU AI Act, Article 15(5)": (
        "Resilience against inputs designed to make the model err (adversarial examples, model evasion): the card "
        "gives measured rates of detection for the attacks listed, under the threat model stated. It shows nothing "
        "for data poisoning, model poisoning or confidentiality attacks, and is no statement of conformity."
    ),
    "MITRE ATLAS, AML.M0015 Adversarial Input Detection": (
        "The guard is this mitigation: it judges every image at inference and rejects what looks adversarial or "
        "unfamiliar. The card shows how often, for digital changes of whole images; not for patches or printed images."
    ),
    "NIST AI RMF, MEASURE 2.6 (safety, fails safely)": (
        "A score that is not finite or an image that cannot be read is an error, never an accepted image, and images "
        "unlike the known ones are rejected. The card shows false alarms, which someone must handle; it does not show "
        "that the system around the guard is safe."
    ),
    "NIST AI RMF, MEASURE 2.7 (security and resilience)": (
        "The tables are a documented test of one security property, with counts and 95 % intervals, on images held "
        "out from the fit. They are no red-team exercise: attackers who know the guard are measured only if the card "
        "says so."
    ),
}


@dataclass(frozen=True)
class PictureRow:
    """One row of the picture: a heading, or the share of some images that the guard rejects."""

    name: str  # of the images, in full
    text: str  # beside the name
    y: int  # of the text
    share: Estimate | None = None  # in percent; None in a heading, and where there is no rate
    should_reject: bool = False  # True for attacked images and for those of other kinds: more is better
    is_heading: bool = False

    @property
    def short_name(self) -> str:
        """The name, shortened in the middle if it is long."""
        end = NAME_LENGTH // 2
        is_long = len(self.name) > NAME_LENGTH and not self.is_heading
        return f"{self.name[: end - 1]}…{self.name[-end:]}" if is_long else self.name


def write_card(card: GuardCard, path: str | PathLike[str]) -> None:
    """Writes a guard's card to a file, in the format of the name's ending.

    `.html` is a page with a picture, `.md` a model card as Hugging Face shows them, `.json` what
    `GuardCard.from_json` reads.
    """
    ending = Path(path).suffix.lower()
    check_choice("the ending of the card's file", ending, tuple(FORMATS))
    try:
        # a name in a file may hold half a surrogate pair, which UTF-8 cannot
        Path(path).write_text(FORMATS[ending](card), encoding="utf-8", errors="replace")
    except OSError as error:
        raise OptionError(f"{path}: the card cannot be written ({error}); choose another file") from error


def card_page(card: GuardCard) -> str:
    """Returns the card as one HTML page without outside parts."""
    first, *others = _sections(card)
    rows = tuple(_picture_rows(card))
    page = load_template("card.html").render(
        report=_report(card),
        first=first,
        others=others,
        rows=rows,
        bottom=rows[-1].y + ROW_HEIGHT - 8,
        alarms_from=next((row.y for row in rows if row.is_heading and not row.should_reject), None),
        rate=100 * card.false_alarm_rate,
        alt=f"Share of images that the guard rejects. {'; '.join(f'{row.name}: {row.text}' for row in rows)}.",
        style=_style(),
        date=card.date[:10],
        version=__version__,
    )
    return page.lstrip()


def style_digest() -> str:
    """Returns the page's style sheet as a content security policy names it, for a server that allows no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()}"


def _style() -> str:
    return (files("benfourier.report") / "page.css").read_text(encoding="utf-8")


def model_card(card: GuardCard) -> str:
    """Returns the card in the form of a Hugging Face model card: metadata in YAML, then Markdown."""
    known = {"base_model": card.base_model} if card.base_model else {}
    metadata = {"library_name": "benfourier", "tags": list(TAGS), **known}
    lines = [f"{name}: {_yaml(value)}" for name, value in metadata.items()]
    lines += ["model-index:", f"- name: {_yaml(f'Guard of {card.network}')}", "  results:"]
    lines += [f"  - {_yaml(result)}" for result in _results(card)]
    return "\n".join(["---", *lines, "---", "", markdown(_report(card))])


def _card_json(card: GuardCard) -> str:
    return json.dumps(card.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Mapping[str, Callable[[GuardCard], str]] = {".html": card_page, ".md": model_card, ".json": _card_json}


def _report(card: GuardCard) -> Report:
    """The card in the sections of Mitchell et al., and what it shows for audits."""
    lead = [f"{card.detector} in front of {card.network}", f"Weights {card.weights[:12]}", card.date[:10]]
    quantitative, *others = _sections(card)
    place = next(place for place, section in enumerate(others) if section.id == "ethics")
    sections = (*others[:place], quantitative, *others[place:])
    return Report(f"Guard of {card.network}", f"{'. '.join(lead)}.", sections)


def _sections(card: GuardCard) -> Iterator[Section]:
    """The sections of Mitchell et al., the quantitative one first, which is what a reader asks for."""
    tables = tuple(table for table in (_attack_table(card), _other_table(card), _alarm_table(card)) if table.rows)
    yield Section("analyses", "Quantitative analyses", "", tuple(_findings(card)), tables)
    yield Section("details", "Model details", "", tables=(_details(card),))
    use = (
        "It stands in front of the network named above, with these weights and this preprocessing, and with no other. "
        "It gives the network's label to images that it accepts, and rejects the others.",
        f"Threat model: {card.threat}.",
        f"Attackers who know the guard: {card.informed}.",
        f"It is not meant as the only protection {HARM}: what it accepts may still be attacked, or misclassified.",
    )
    yield Section("use", "Intended use", "", use)
    factors = (
        "How strong an attack is, and whether the detector was fitted to it: the rates are given for each attack.",
        "How clean images differ from those that set the thresholds: rates are given for each kind below.",
        f"Never tested on: {'; '.join(NEVER_TESTED)}.",
    )
    yield Section("factors", "Factors", "", factors)
    metrics = (
        "Detection rate: the share of attacked images that the guard rejects, of those that the network misclassifies "
        "after the attack.",
        "False alarms: the share of images that the guard rejects though nobody attacked them.",
        "Intervals are exact binomial (Clopper-Pearson) at 95 %, and hold for one row at a time.",
        "Distances are medians over the successful attacks, in the unit of the network's pixels.",
    )
    yield Section("metrics", "Metrics", "", metrics)
    yield Section("evaluation", "Evaluation data", "", tuple(_evaluation_data(card)))
    fitted = f"The detector was fitted to {_list(card.fitted)}." if card.fitted else "The detector saw no attack."
    training = (
        f"{fitted} None of those images is among the evaluation data.",
        f"{card.thresholds} other clean images set the thresholds.",
        "The card does not say where these images come from, nor what the network was trained on; whoever passes the "
        "guard on should.",
    )
    yield Section("training", "Training data", "", training)
    ethics = (
        "A rejected image needs someone or something to handle it; decide who before the guard is put to work.",
        "False alarms may fall on some classes, places or people more than on others: the card has no rates by group.",
        f"An image that the guard accepts is not proven to be untouched; do not let it decide alone {HARM}.",
    )
    yield Section("ethics", "Ethical considerations", "", ethics)
    caveats = (
        f"Calibrate again when {AGAIN}.",
        f"Rates from fewer than {FEW} images say little; look at the intervals.",
        "Whoever can ask the guard often enough can find its threshold.",
        "The card is as trustworthy as its file: digests find damage, not someone who writes a new file on purpose.",
    )
    yield Section("caveats", "Caveats and recommendations", "", caveats)
    rows = tuple(Row(term, texts(text)) for term, text in AUDIT.items())
    table = Table("audit", "Terms of audits", "term", ("what this card shows for it, and what not",), rows)
    yield Section("audit", "For auditors", "", tables=(table,))


def _findings(card: GuardCard) -> Iterator[str]:
    """What a reader wants to know first."""
    worst = card.worst
    if worst is None:
        yield "How many attacked images it rejects was not measured."
    else:
        few = ", too few to be sure" if worst.succeeded < FEW else ""
        images = f"{plural(worst.succeeded, 'image')} under the attack {quote(worst.attack)}, its worst here"
        yield f"It rejects {percent_text(worst.share)} of {images}{few}."
    for alarm in card.alarms[:1]:
        yield (
            f"It rejects {percent_text(alarm.share)} of {plural(alarm.images, 'image')} that nobody attacked "
            f"({alarm.kind}); at most {100 * card.false_alarm_rate:.1f} % were promised for clean images."
        )
    yield f"Attackers who know the guard: {card.informed}."


def _details(card: GuardCard) -> Table:
    versions = ", ".join(f"{name} {number}" for name, number in card.versions.items())
    facts = {
        "guarded network": card.network,
        "base model": card.base_model,
        "weights": f"SHA-256 {card.weights}",
        "classes": card.classes,
        "accuracy of the network": "not measured" if card.accuracy is None else percent_text(card.accuracy),
        "preprocessing": _options(card.preprocessing, " ", "; "),
        "detector": card.detector,
        "cost": f"{card.passes:g} forward pass{'es' * (card.passes != 1)} per image, the network's own among them",
        "thresholds": f"set by {card.thresholds} clean images for {100 * card.false_alarm_rate:.1f} % false alarms",
        "made": f"{card.date[:10]} with {versions}",
    }
    rows = tuple(Row(name, texts(value)) for name, value in facts.items() if value != "")
    return Table("details", "The guard", "what", ("value",), rows)


def _evaluation_data(card: GuardCard) -> Iterator[str]:
    if card.attacks:
        images = max(rate.tried for rate in card.attacks)
        yield f"{plural(images, 'image')} under each attack; the fit has seen none of them."
    yield f"Images that nobody attacked: {', '.join(f'{alarm.images} {alarm.kind}' for alarm in card.alarms)}."
    if card.other_kinds:
        kinds = ", ".join(f"{other.images} {other.kind}" for other in card.other_kinds)
        yield f"Images of other kinds, of the size of those that nobody attacked: {kinds}."
    yield "The images are those that the guard's maker gave; rates hold for images like them."


def _attack_table(card: GuardCard) -> Table:
    rows = tuple(
        Row(
            rate.attack,
            (
                percent(rate.share),
                Entry(f"{rate.rejected} of {rate.succeeded}", rate.rejected),
                *texts("yes" if rate.is_fitted else "no"),
                number(rate.l2, ".3g"),
                number(rate.linf, ".3g"),
            ),
        )
        for rate in card.attacks
    )
    columns = ("rejected, %", "images", "in the fit", "L2", "largest change")
    notes = tuple(f"{quote(rate.attack)}: {_method(rate)}" for rate in card.attacks)
    if any(not rate.succeeded for rate in card.attacks):
        notes = (f"{NOTHING}: no image was misclassified after this attack.", *notes)
    return Table("attacks", "Attacked images rejected (more is better)", "attack", columns, rows, notes)


def _method(rate: AttackRate) -> str:
    options = _options({name: value for name, value in rate.options.items() if value is not None}, "=", ", ")
    return f"{rate.method} ({options})" if options else rate.method


def _options(options: Mapping[str, Any], sign: str, between: str) -> str:
    return between.join(f"{name}{sign}{_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    """An option in words."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _other_table(card: GuardCard) -> Table:
    note = "An inverted photograph is much like a photograph, and may be taken for one."
    title = "Images of other kinds rejected (more is better)"
    return Table("other-kinds", title, "images", ("rejected, %", "images"), _rows(card.other_kinds), (note,))


def _alarm_table(card: GuardCard) -> Table:
    note = f"{100 * card.false_alarm_rate:.1f} % were promised for clean images."
    columns, rows = ("rejected, %", "images"), _rows(card.alarms)
    return Table("alarms", "False alarms (fewer is better)", "images nobody attacked", columns, rows, (note,))


def _rows(rates: tuple[AlarmRate, ...]) -> tuple[Row, ...]:
    return tuple(
        Row(rate.kind, (percent(rate.share), Entry(f"{rate.rejected} of {rate.images}", rate.rejected)))
        for rate in rates
    )


def _picture_rows(card: GuardCard) -> Iterator[PictureRow]:
    """The rows from top to bottom; there is always a heading."""
    y, note = FIRST_LINE, "more is better" if card.attacks else "not measured"
    yield PictureRow("Attacked images rejected", note, y, should_reject=True, is_heading=True)
    y += HEADING_HEIGHT
    for rate in card.attacks:
        yield PictureRow(rate.attack, _text(rate.share, "none succeeded"), y, _in_percent(rate.share), True)
        y += ROW_HEIGHT
    if card.other_kinds:
        yield PictureRow("Images of other kinds rejected", "more is better", y, should_reject=True, is_heading=True)
        y += HEADING_HEIGHT
    for other in card.other_kinds:
        yield PictureRow(other.kind, _text(other.share, "no images"), y, _in_percent(other.share), True)
        y += ROW_HEIGHT
    note = f"fewer is better; dashed: {100 * card.false_alarm_rate:.1f} % promised"
    yield PictureRow("False alarms", note, y, is_heading=True)
    y += HEADING_HEIGHT
    for alarm in card.alarms:
        yield PictureRow(alarm.kind, _text(alarm.share, "no images"), y, _in_percent(alarm.share))
        y += ROW_HEIGHT


def _text(share: Estimate, otherwise: str) -> str:
    return percent_text(share) if math.isfinite(share.value) else otherwise


def _in_percent(share: Estimate) -> Estimate | None:
    ends = (share.value, share.low, share.high)
    return Estimate(*(100 * end for end in ends)) if all(map(math.isfinite, ends)) else None


def _list(labels: tuple[str, ...]) -> str:
    return join([f"“{label}”" for label in labels])


def _results(card: GuardCard) -> Iterator[dict[str, Any]]:
    """The entries of a model index; what has no number is left out."""
    if card.accuracy is not None:
        yield _result("image classification", "images given", "accuracy", "accuracy", card.accuracy)
    for rate in (rate for rate in card.attacks if rate.succeeded):
        yield _result("detection", f"attacked: {rate.attack}", "recall", "attacked images rejected", rate.share)
    for other in (other for other in card.other_kinds if other.images):
        yield _result(
            "detection", f"another kind: {other.kind}", "recall", "images of other kinds rejected", other.share
        )
    for alarm in (alarm for alarm in card.alarms if alarm.images):
        yield _result("detection", alarm.kind, "false_positive_rate", "false alarms", alarm.share)


def _result(task: str, data: str, metric: str, name: str, share: Estimate) -> dict[str, Any]:
    """One entry: task, dataset and metric, as the Hub's specification of model cards has them."""
    interval = f"{name} (95 % interval {share.low:.4f} to {share.high:.4f})"
    return {
        "task": {"type": "image-classification", "name": task},
        # tools that read model cards take results of one type and configuration for those of one data set
        "dataset": {"type": "custom", "name": data, "config": data},
        "metrics": [{"type": metric, "value": round(share.value, 4), "name": interval}],
    }


def _yaml(value: Any) -> str:
    """A value in YAML's flow style, which is JSON; characters that YAML refuses are left out."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(character for character in text if character.isprintable())
