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
