"""An attack outside the package: the one file on the attacks page is all that it takes."""

import importlib
import re
from pathlib import Path

import pytest
import torch

import benfourier as bf
from benfourier.attacks.attack import ATTACKS
from benfourier.attacks.catalogue import attack_ids
from benfourier.errors import OptionError
from tests.attacks.trained import digits

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text(encoding="utf-8")


def test_an_attack_in_one_file_works_wherever_ids_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTACKS, "_classes", dict(ATTACKS._classes))  # other tests have the attacks of the package only
    monkeypatch.syspath_prepend(tmp_path)
    (code,) = re.findall(r'```python\n("""FGSM .*?)```', PAGE, flags=re.DOTALL)
    (tmp_path / "fgsm.py").write_text(code, encoding="utf-8")
    fgsm = importlib.import_module("fgsm")
    data = digits()
    assert "fgsm" in attack_ids()
    assert "fgsm" in bf.catalogue()
    result = bf.attack("fgsm", data.classifier, data.images, data.labels)
    assert result.success.double().mean() > 0.7
    assert float(result.linf[result.success].max()) <= 0.3 + 1e-6
    assert dict(result.options) == {"eps": 0.3, "tries": 100}
    same = bf.attack(fgsm.Fgsm(tries=100), data.classifier, bf.LabelledImages(data.images, data.labels))
    assert torch.equal(same.images, result.images)
    attacks = {"fgsm": bf.make_attack("fgsm"), "coarse": bf.make_attack("fgsm", tries=5)}
    examples = bf.make_examples(data.classifier, data.images, data.labels, attacks=attacks, cache=tmp_path)
    assert examples.attacks == ("fgsm", "coarse")
    assert examples.options["attacks"]["coarse"] == {"attack": "fgsm", "options": {"eps": 0.3, "tries": 5}}
    with pytest.raises(OptionError, match="fgsm has no option 'steps'; its options: eps, tries"):
        bf.attack("fgsm", data.classifier, data.images, data.labels, steps=3)
    with pytest.raises(OptionError, match="eps is 0; it must be a number above 0"):
        bf.make_attack("fgsm", eps=0)
