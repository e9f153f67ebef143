"""The page in a real Chromium."""

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

import benfourier as bf
from benfourier.data.images import LabelledImages
from benfourier.service.app import make_app
from benfourier.service.demo import Demo
from benfourier.service.engine import Engine, GuardFile
from benfourier.service.settings import Settings
from tests.detectors.toys import toys
from tests.report.test_card import CARD
from tests.service.serving import NAMES, SETTINGS, Served, eight_bit, guard, png, running, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed; get one: apt-get install chromium")
PAGE = Path(__file__).parents[2] / "src" / "benfourier" / "service" / "page"


def demo_of_detected_attacks() -> Demo:
    """Digits that the guard accepts, and rejects after bim."""
    digits = toys().tested
    images = eight_bit(digits.clean)
    attack = bf.attack("bim", toys().classifier, images, digits.labels, eight_bit=True, show_progress=False)
    local_guard = guard()
    right = toys().classifier.logits(images).argmax(1) == digits.labels
    clear = local_guard.check(images).accepted & ~local_guard.check(attack.images).accepted
    rows = (torch.from_numpy(clear) & right & attack.success).nonzero().flatten()[:3]
    assert len(rows) == 3
    labels = digits.labels[rows]
    return Demo("digits", LabelledImages(images[rows], labels), [NAMES[label] for label in labels.tolist()])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service"), samples=demo_of_detected_attacks(), card=CARD) as service:
        yield service


@pytest.fixture(params=["1280 light", "390 dark"])
def page(browser: Browser, shown: Served, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, scheme = request.param.split()
    page = browser.new_page(viewport={"width": int(width), "height": 900}, color_scheme=scheme)
    faults: list[str] = []
    own_addresses = (shown.address, "blob:", "data:")
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: None if sent.url.startswith(own_addresses) else faults.append(sent.url))
    page.goto(shown.address)
    yield page
    page.close()
    assert [fault for fault in faults if "422" not in fault] == []  # Chromium logs every answer that is no 200


def test_a_clean_sample_is_accepted_and_after_an_attack_rejected(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Sample 0").click()
    newest = page.get_by_role("article").first
    expect(newest.locator(".verdict")).to_have_text("✓ accepted")
    page.get_by_role("button", name="Attack with bim", exact=True).click()
    expect(page.get_by_role("article")).to_have_count(2)
    expect(newest.locator(".verdict")).to_have_text("✕ rejected, adversarial")
    expect(page.get_by_role("status")).to_have_text(re.compile("rejected, adversarial, the network says .* score"))
    assert newest.locator("svg").count() == 2
    assert newest.locator(".bars button").count() == len(toys().classifier.layer_names())
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    picture = tmp_path / "page.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000


def test_files_are_judged_and_broken_ones_named_with_the_keyboard_alone(page: Page, tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(png(demo_of_detected_attacks().samples.images[0]))
    (tmp_path / "bad.png").write_bytes(b"no image")
    page.get_by_label("Choose images").set_input_files([tmp_path / "good.png", tmp_path / "bad.png"])
    bad, good = page.get_by_role("article").all()
    expect(good.locator(".verdict")).to_have_text("✓ accepted")
    expect(bad.locator(".verdict")).to_have_text("not judged")
    expect(bad.locator(".score")).to_contain_text("it is not an image")
    layer = good.locator(".bars button").last
    layer.focus()
    page.keyboard.press("Enter")
    expect(layer).to_have_attribute("aria-pressed", "true")
    expect(good.locator(".spectrum figcaption")).to_contain_text(f"layer {layer.get_attribute('title')},")
    good.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(good.get_by_role("rowheader").first).to_have_text("0")


def test_everything_that_can_be_used_has_a_name_and_headings_are_in_order(page: Page) -> None:
    page.get_by_role("button", name="Sample 1").click()
    expect(page.get_by_role("article").locator(".verdict")).to_have_text("✓ accepted")
    for control in page.locator("button:visible, input:visible, a:visible, summary:visible").all():
        named = control.evaluate("e => e.ariaLabel || e.labels?.[0]?.innerText || e.innerText")
        assert named.strip()
    assert page.locator("img:not([alt])").count() == 0
    assert all(svg.get_attribute("aria-label") for svg in page.locator("svg").all())
    levels = [int(level) for level in page.locator("h1, h2, h3").evaluate_all("all => all.map(e => e.tagName[1])")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_layers_that_raised_the_score_come_first_and_all_are_there(page: Page) -> None:
    page.get_by_role("button", name="Sample 1").click()
    card = page.get_by_role("article")
    expect(card.locator(".verdict")).to_have_text("✓ accepted")
    texts = card.locator(".bars .much").all_inner_texts()
    pushes = [float(text) for text in texts]
    assert pushes == sorted(pushes, reverse=True)
    assert (
        f"all {len(toys().classifier.layer_names())}, largest first" in card.locator(".layers figcaption").inner_text()
    )


def test_an_attack_shows_that_it_is_under_way(page: Page) -> None:
    page.route("**/v1/demo/attack", lambda route: None)  # never answered
    page.get_by_role("button", name="Sample 0").click()
    page.get_by_role("button", name="Attack with bim", exact=True).click()
    expect(page.get_by_role("article").first.locator(".verdict")).to_have_text(
        re.compile("bim is under way, [1-9] s …")
    )
    expect(page.get_by_role("status")).to_have_text(re.compile("bim attacks sample 0, class "))
    page.unroute_all(behavior="ignoreErrors")


def test_an_attack_that_fails_leaves_no_card_behind(page: Page) -> None:
    failed = {"attack": "bim", "success": False, "linf": None, "l2": None, "image": ""}
    page.route("**/v1/demo/attack", lambda route: route.fulfill(json=failed))
    page.get_by_role("button", name="Sample 0").click()
    page.get_by_role("button", name="Attack with bim", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("bim found no 8-bit image near sample 0")
    expect(page.get_by_role("article")).to_have_count(1)


def test_an_unfamiliar_image_is_called_so(page: Page, tmp_path: Path) -> None:
    (tmp_path / "board.png").write_bytes(png((torch.arange(8)[:, None] + torch.arange(8))[None].remainder(2).float()))
    page.get_by_label("Choose images").set_input_files([tmp_path / "board.png"])
    card = page.get_by_role("article")
    expect(card.locator(".verdict")).to_have_text("✕ rejected, unfamiliar")
    expect(card.locator(".familiarity")).to_have_text(
        re.compile("not like the images that the guard knows: distance .* > ")
    )


def test_the_card_is_one_click_away(page: Page) -> None:
    with page.context.expect_page() as tab:
        page.get_by_role("link", name="The guard's card").click()
    card = tab.value
    expect(card.get_by_role("heading", level=1)).to_have_text("Guard of ResNet")
    assert (
        card.evaluate("getComputedStyle(document.querySelector('.rates .grid')).fill") == "none"
    )  # styles are allowed
    assert card.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_views_show_their_margins_beside_those_of_clean_images(browser: Browser, tmp_path: Path) -> None:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    views = bf.fit("views", toy_data.classifier, examples, show_progress=False)
    own = bf.Guard.calibrated(views, toy_data.tested.clean, 0.1, known=toy_data.fitted.clean)
    own.save(tmp_path / "views.bf")
    (tmp_path / "digit.png").write_bytes(png(eight_bit(toy_data.tested.clean[:1])[0]))
    app = make_app(Engine(GuardFile(tmp_path / "views.bf", toy_data.classifier.module), SETTINGS))
    with running(app, SETTINGS) as address:
        page = browser.new_page()
        page.goto(address)
        page.get_by_label("Choose images").set_input_files([tmp_path / "digit.png"])
        chart = page.locator(".layers svg")
        expect(chart).to_have_count(1)
        assert chart.locator("circle").count() == len(set(views.feature_names))
        assert chart.locator(".strong").all_text_contents() == list(dict.fromkeys(views.feature_names))
        expect(page.get_by_role("link", name="The guard's card")).to_be_hidden()  # it has none
        page.close()


def test_a_token_is_asked_for_and_used(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, Settings(token="secret"), CARD) as service:  # noqa: S106
        page = browser.new_page()
        page.goto(service.address)
        page.get_by_label("This service asks for a token").fill("secret")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#facts")).to_contain_text("mbf")
        expect(page.locator("#access")).to_be_hidden()
        with page.context.expect_page() as tab:  # a link bears no token
            page.get_by_role("link", name="The guard's card").click()
        expect(tab.value.get_by_role("heading", level=1)).to_have_text("Guard of ResNet")
        assert tab.value.evaluate("getComputedStyle(document.querySelector('.rates .grid')).fill") == "none"
        page.close()


def test_the_page_names_no_outside_address() -> None:
    for file in PAGE.iterdir():
        words = re.findall(r"https?://[^\s\"')]+", file.read_text(encoding="utf-8"))
        assert set(words) <= {"http://www.w3.org/2000/svg"}, file
