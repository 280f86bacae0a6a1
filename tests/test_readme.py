"""README and docs: every command parses, every flag and file they name exists, every link leads somewhere."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from electra_tf2 import __version__
from electra_tf2.__main__ import COMMANDS
from electra_tf2.config.hparams import all_hparams, checked
from electra_tf2.config.papers import load_paper, paper_names
from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.programs.build_table import kinds_of_tables
from tests.support.pages import COMMAND_PAGES, PACKAGE, PAGES, ROOT, commands, program_of
from tests.support.programs import configured, run_program

SHELL = {"git", "cd", "pip", "python3", "."}  # commands that no test runs
# Flags of the programs that the pages quote beside ours.
FOREIGN = {
    "--logdir",
    "--local-dir",
    "--runner=FlinkRunner",
    "--help",
    "--ntasks-per-node",
    "--force-reinstall",
    "--no-deps",
}
# Other names of flags, which help does not show.
FOREIGN |= {"--from", "--runs", "--model-names"}
# Flags of the paper of one's own in docs/architecture.md.
FOREIGN |= {"--swap-weight"}


@cache
def flags_of(script: str, *words: str) -> frozenset[str]:
    """The flags in a script's --help, switches in both forms."""
    done = run_program(script, *words, "--help", "all")
    assert done.returncode == 0, done.stderr
    names = set()
    for switch, name in re.findall(r"^ +--(\[no-\])?([a-z0-9-]+)", done.stdout, re.MULTILINE):
        names |= {f"--{name}", f"--no-{name}"} if switch else {f"--{name}"}
        if switch and name.startswith("do-"):
            names.add(f"--no-{name[3:]}")
    return frozenset(names)


def flags_in(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if "-->" not in line]  # arrows of diagrams
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*(?:=[A-Z]\w+)?", "\n".join(lines))) - FOREIGN


@pytest.mark.parametrize("words", [words for page in COMMAND_PAGES for words in commands(page)], ids=" ".join)
def test_a_command_of_the_pages_parses(words):
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets
    elif words[0] == "electra":
        script, *rest = program_of(words)
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= flags_of(script)
    else:
        assert words[0] in SHELL


def test_the_originals_commands_are_legal_as_they_were():
    """Those of its README, by the scripts on top; what a run of pre-training then is, too."""
    found = [words for words in commands("docs/from_google_research.md") if words[0] == "python3"]
    assert [words[1] for words in found[:5]] == [
        "build_openwebtext_pretraining_dataset.py",
        *["run_pretraining.py"] * 2,
        *["run_finetuning.py"] * 2,
    ]
    for _, script, *rest in found:
        assert (ROOT / script).is_file()
        assert {word for word in rest if word.startswith("--")} <= flags_of(script)
    config = configured(*found[1][2:])
    assert (config.model_name, config.num_train_steps) == ("electra_small_owt", 1_000_000)
    small = configured("--data-dir", config.data_dir, "--model-name", "electra_small")
    assert config.architecture == small.architecture and config.learning_rate == small.learning_rate


def test_every_flag_that_is_named_exists():
    scripts = [path.name for path in PACKAGE.glob("programs/*.py") if "def main(" in path.read_text()]
    others = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/**/*.py")]
    parsers = re.compile(r"ArgumentParser\(|parser_of\(\s*__doc__")
    scripts += [str(path.relative_to(ROOT)) for path in others if parsers.search(path.read_text())]
    known = frozenset().union(*(flags_of(script) for script in scripts))
    known |= frozenset().union(*(flags_of("run_pretraining.py", "--paper", paper) for paper in paper_names()))
    known |= frozenset().union(*(flags_of("build_table.py", kind) for kind in kinds_of_tables()))
    for page, text in PAGES.items():
        assert flags_in(text) <= known, page


def test_links_and_files_lead_somewhere():
    for page, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose):
            file = ROOT / page.parent / target if target else ROOT / page
            assert file.exists(), f"{page}: {target}"
            if heading:
                titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                assert heading in anchors, f"{page}: {target}#{heading}"
        for script in re.findall(r"`(?:python )?([\w/]+\.py)\b", text):
            assert (ROOT / script).exists() or any(PACKAGE.rglob(script)), f"{page}: {script}"


def test_the_installed_command_runs_every_program():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    entries = dict(re.findall(r'^([\w-]+) = "electra_tf2\.(\w+):command"$', declared, re.MULTILINE))
    assert entries == {"electra": "__main__"}
    programs = {path.stem for path in PACKAGE.glob("programs/*.py") if "def main(" in path.read_text(encoding="utf-8")}
    assert programs == {command.module for command in COMMANDS.values() if command.module}


def test_the_version_is_the_same_everywhere():
    assert f"version = {{{__version__}}}" in PAGES[Path("README.md")]
    assert re.findall(r"^## ([\d.]+)", PAGES[Path("CHANGELOG.md")], re.MULTILINE)[0] == __version__


def test_every_recipe_is_in_the_table():
    table = "\n".join(line for line in PAGES[Path("docs/recipes.md")].splitlines() if line.startswith("| `"))
    assert [name for name in recipe_names() if f"`{name}`" not in table] == []


def test_settings_in_the_text_are_legal():
    """`name: value` in the docs is a setting that the configuration takes, under a name that it has."""
    settings = [found for text in PAGES.values() for found in re.findall(r"`(\w+): (\w+)`", text)]
    assert ("mask_sampling", "without_replacement") in settings
    configs = [PretrainingConfig, FinetuningConfig, *(load_paper(name, "config").Config for name in paper_names())]
    for name, value in settings:
        given = {name: json.loads(value) if value in ("true", "false", "0") else value}
        (config, *_) = (config for config in configs if name in {field.name for _, field in all_hparams(config)})
        assert checked(config, given)
