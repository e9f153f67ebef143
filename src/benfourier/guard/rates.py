"""Rates of a guard's card at given thresholds, from the scores that the card holds."""

from dataclasses import replace

from benfourier.metrics.intervals import rate_of
from benfourier.metrics.thresholds import Threshold
from benfourier.store.card import AlarmRate, AttackRate, GuardCard, MeasuredScores


def card_at(card: GuardCard, threshold: Threshold, most_unfamiliar: float) -> GuardCard:
    """Returns a card with the rates at other thresholds."""
    limits = (threshold.value, most_unfamiliar)
    return replace(
        card,
        attacks=tuple(attack_rate_at(rate, *limits) for rate in card.attacks),
        alarms=tuple(alarm_rate(rate.kind, rate.scores, *limits) for rate in card.alarms),
        other_kinds=tuple(alarm_rate(rate.kind, rate.scores, *limits) for rate in card.other_kinds),
        false_alarm_rate=threshold.rate,
        thresholds=threshold.images,
    )


def attack_rate_at(rate: AttackRate, threshold: float, most_unfamiliar: float) -> AttackRate:
    """Returns how many images under the same attack these thresholds reject."""
    rejected = rate.scores.count_above(threshold, most_unfamiliar)
    return replace(rate, rejected=rejected, share=rate_of(rejected, rate.succeeded))


def alarm_rate(kind: str, scores: MeasuredScores, threshold: float, most_unfamiliar: float) -> AlarmRate:
    """Returns how many images of a kind these thresholds reject."""
    rejected = scores.count_above(threshold, most_unfamiliar)
    return AlarmRate(kind, len(scores), rejected, rate_of(rejected, len(scores)), scores)
