"""Pages that are made of the code say what it says."""

import pytest

from website.pages import PAGES, ROOT, as_list, command_help


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_of_the_code_is_as_the_code_makes_it(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"{name} is out of date: python -m website.pages"


def test_a_commands_page_has_its_flags_and_no_path_of_this_machine() -> None:
    shown = command_help("convert")
    assert "--model" in shown and "--from" not in shown.replace("--model takes", "") and str(ROOT) not in shown


def test_entries_of_a_docstring_are_a_list() -> None:
    made = as_list("one: the first,\n  which goes on\nThe second,\nwhich goes on, too.")
    assert made == "- `one`: the first, which goes on\n- The second, which goes on, too."
