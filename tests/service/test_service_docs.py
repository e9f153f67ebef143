import re
from pathlib import Path

from typer.main import get_command

from benfourier.cli.main import app
from benfourier.service.http_errors import DESCRIPTIONS
from tests.service.serving import Served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def test_the_page_names_every_address(here: Served) -> None:
    paths = here.client.get("/openapi.json").json()["paths"]
    named = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {address for address in named if f"`{address}`" not in PAGE} == set()


def test_the_page_names_every_option() -> None:
    verb = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {option for parameter in verb.params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options - {"--help"} if f"`{option}`" not in PAGE} == set()


def test_the_page_names_every_metric(here: Served) -> None:
    metrics = re.findall(r"# TYPE (benfourier\w+) ", here.client.get("/metrics").text)
    assert {name for name in metrics if not name.endswith("_created") and f"`{name}`" not in PAGE} == set()


def test_the_page_names_every_answer_that_routes_may_give() -> None:
    assert [code for code in DESCRIPTIONS if not re.search(rf"^\| .*\b{code}\b.* \|", PAGE, flags=re.MULTILINE)] == []


def test_the_container_writes_only_to_its_cache_and_does_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER [1-9]\d+$", text, flags=re.MULTILINE)
    assert re.search(r"NUMBA_CACHE_DIR=/cache\S* BENFOURIER_CACHE=/cache", text)
