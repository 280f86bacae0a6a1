"""Apache Beam builds the bytes that the local builder builds."""

import pytest

from electra_tf2.corpus.build import build, run_beam, run_local
from electra_tf2.corpus.jobs import make_plan
from electra_tf2.util.errors import UserError
from tests.corpus.test_build_pretraining_dataset import contents, settings, write_corpus


def test_direct_runner_builds_the_same_records(tmp_path):
    pytest.importorskip("apache_beam")
    corpus = write_corpus(tmp_path / "corpus", 60)
    build(make_plan(settings(corpus, tmp_path / "local")), run_local(1))
    build(make_plan(settings(corpus, tmp_path / "beam")), run_beam("--runner=DirectRunner"))
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


def test_missing_beam_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "apache_beam", None)
    with pytest.raises(UserError, match="pip install"):
        run_beam()
