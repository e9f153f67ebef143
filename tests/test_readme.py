"""The README shows what a ledger holds."""

from benfourier.report.gathering import gather
from benfourier.store.ledger import read
from tools.readme import LEDGER, README, text_of


def test_the_results_are_those_of_the_ledger() -> None:
    assert text_of(gather(read(LEDGER))) in README.read_text(encoding="utf-8"), "refresh it: python -m tools.readme"
