"""docs/first_steps.ipynb runs from its first cell to its last, with few sentences and the smaller model."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "first_steps.ipynb"


def test_the_notebook_runs(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient, of the extra dev, is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel, of the extra dev, is not installed")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source = 'MODEL = "electra_mini"\nSENTENCES = 64'
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    results = json.loads((tmp_path / "data/models/electra_mini/results/order_results.json").read_text())
    assert 0 <= results["trials"][0]["scores"]["order"]["dev"]["accuracy"] <= 100
    assert (tmp_path / "serving" / "order" / "1" / "saved_model.pb").exists()
    figures = [output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in str(output)]
    assert len(figures) == 3


def test_the_notebook_shows_what_its_cells_print_and_draw():
    """What is committed has run: every cell of code has a number, and no output is an error."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert str(Path.home()) not in json.dumps(outputs)
