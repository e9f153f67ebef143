import re
import subprocess
import sys
from pathlib import Path

import pytest

from benfourier.detectors.max_softmax import MaxSoftmax
from benfourier.detectors.method import register_detector
from benfourier.errors import OptionError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "new_detector.md").read_text(encoding="utf-8")
PROGRAM = """
import sys, types
import pytest
page = types.ModuleType("page")
sys.modules["page"] = page
exec(compile(open(sys.argv[1], encoding="utf-8").read(), "new_detector.md", "exec"), page.__dict__)
from tests.detectors.cases import CASES, Case
CASES["top-two"] = Case(0.9, {"C": 1.0, "gamma": "scale"})
import benfourier as bf
from tests.detectors.toys import toys
toy_data = toys()
detector = bf.fit("top-two", toy_data.classifier, toy_data.fitted.for_attack("bim"), C=1.0, gamma="scale")
detector.save(sys.argv[2])
again = bf.load(sys.argv[2], toy_data.classifier)
guard = bf.Guard.calibrated(again, toy_data.tested.clean, 0.1)
guard.save(sys.argv[2])
guard = bf.load_guard(sys.argv[2], toy_data.classifier.module)
print("guarded", len(guard.check(toy_data.tested.adversarial["bim"])), flush=True)
sys.exit(pytest.main(["tests/detectors/test_battery.py", "-k", "top-two", "-rA"]))
"""


def code() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(block)


def test_the_detector_on_the_page_has_fewer_than_forty_lines() -> None:
    assert 20 < len([line for line in code().splitlines() if line.strip()]) < 40


def test_the_detector_on_the_page_passes_the_battery(tmp_path: Path) -> None:
    (tmp_path / "top_two.py").write_text(code(), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "top_two.py"), str(tmp_path / "file.bf")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "guarded 40" in done.stdout
    assert done.stdout.count("PASSED") >= 15


def test_an_id_in_use_is_refused() -> None:
    other = type("Other", (MaxSoftmax,), {})
    with pytest.raises(OptionError, match="the id 'max-softmax' belongs to MaxSoftmax"):
        register_detector(other)
    assert register_detector(MaxSoftmax) is MaxSoftmax


@pytest.mark.parametrize("name", ["", "Two Words", "under_score"])
def test_an_id_that_is_not_in_kebab_case_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="give it one in kebab-case"):
        register_detector(type("Other", (MaxSoftmax,), {"id": name}))
