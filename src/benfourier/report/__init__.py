"""From a ledger alone to tables, figures and pages; beside the paper's numbers, and without torch.

`build(Results.from_records(read(ledger)))` returns a Report; `render` and `html` show it. Importing the package
registers all tables and figures.
"""

from benfourier.report import detection_tables, figures, findings, first_screen, study_tables
from benfourier.report.registry import Audience, Report, build
from benfourier.report.results import Results

__all__ = [
    "Audience",
    "Report",
    "Results",
    "build",
    "detection_tables",
    "figures",
    "findings",
    "first_screen",
    "study_tables",
]
