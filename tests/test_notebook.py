"""docs/first_steps.ipynb runs from its first cell to its last, with few sentences and the smaller model."""

import json
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot

NOTEBOOK = Path(__file__).parent.parent / "docs" / "first_steps.ipynb"
SMALLER = {
    '"electra_deep"': '"electra_mini"',
    "3000": "64",
    "**/*.py": "[a-m]*.py",
    "num_train_epochs=5": "num_train_epochs=1",
    "%matplotlib": "#",
}


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    figures: list[object] = []
    monkeypatch.setattr(pyplot, "show", lambda: figures.append(pyplot.gcf()))
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            for text, smaller in SMALLER.items():
                source = source.replace(text, smaller)
            exec(compile(source, NOTEBOOK.name, "exec"), names)
    results = json.loads((tmp_path / "order/results/texts_results.json").read_text())
    assert 0 <= results["trials"][0]["scores"]["texts"]["dev"]["accuracy"] <= 100
    assert (tmp_path / "serving" / "texts" / "1" / "saved_model.pb").exists()
    assert len(figures) == 3
