"""Recipes: hparams of models by name, recipes/NAME.json, or of one's own in a .json file.

A recipe may extend another one, and may have a section with what fine-tuning takes of it ("finetuning").
"""

import os
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import with_home
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.util.errors import UserError, closest, shown

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
_NOTES = ("description", "source")
_SECTIONS = ("finetuning",)  # for other programs than pre-training


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.json"))


def is_recipe(name: Any) -> bool:
    """True if `read_recipe` finds it."""
    return isinstance(name, str) and (name in recipe_names() or (name.endswith(".json") and os.path.isfile(name)))


def has_section(name: str, section: str) -> bool:
    """True if a recipe has a section for another program than pre-training: "finetuning"."""
    return section in _with_base(_recipe_path(name, "--recipe"))


def read_recipe(name: str, section: str | None = None) -> dict[str, Any]:
    """The hparams of a recipe by name or path, without its notes.

    Args:
      section: "finetuning" reads what the recipe says under that name instead of its hparams of pre-training.
    """
    path = _recipe_path(name, "--recipe")
    hparams = _with_base(path)
    if section is None:
        return {key: value for key, value in hparams.items() if key not in (*_NOTES, *_SECTIONS)}
    if section not in hparams:
        raise UserError(f"--recipe: {path} has no section {section!r}")
    of_section = hparams[section]
    if not isinstance(of_section, dict):
        raise UserError(f"recipe {path}: {section} must be a JSON object of hparams, got {shown(of_section)}")
    return {key: value for key, value in of_section.items() if key not in _NOTES}


def _recipe_path(name: Any, what: str) -> Path:
    if not isinstance(name, str):
        raise UserError(f"{what}: the name of a recipe is needed, got {shown(name)}")
    path = Path(name) if name.endswith(".json") else RECIPES / f"{name}.json"
    if not is_file(path):
        raise UserError(
            f"{what}: there is no recipe {name!r}{closest(name, recipe_names())} (electra recipes lists them)"
        )
    return path


def _with_base(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe with what it takes over from the one that it extends; a path is seen from the recipe's own folder."""
    recipe = with_home(read_json(path, "recipe"))
    if "extends" not in recipe:
        return recipe
    what = f"recipe {path}, extends"
    base = recipe.pop("extends")
    if isinstance(base, str) and base.endswith(".json"):
        base = str(path.parent / base)
    base_path = _recipe_path(base, what).resolve()
    if base_path in (seen := (*extending, path.resolve())):
        raise UserError(
            f"{what}: {base_path.name} extends itself, by way of {' and '.join(path.name for path in seen)}"
        )
    whole = _with_base(base_path, seen)
    for name in _SECTIONS:
        if name in whole and name in recipe:
            recipe[name] = _over(whole[name], recipe[name])
    return whole | recipe


def _over(base: Any, section: Any) -> Any:
    """Merges a section of a recipe over that of the recipe it extends. Hparams of a task replace that task's, whole."""
    if not isinstance(base, dict) or not isinstance(section, dict):
        return section
    merged = base | section
    base_tasks = base.get("per_task")
    section_tasks = section.get("per_task")
    if isinstance(base_tasks, dict) and isinstance(section_tasks, dict):
        merged["per_task"] = base_tasks | section_tasks
    return merged
