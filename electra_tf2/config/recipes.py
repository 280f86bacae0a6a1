"""Recipes: hparams of a model by name (recipes/NAME.json) or in any other .json file.

A recipe may extend another one. Its section "finetuning" has hparams of fine-tuning.
"""

import os
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import with_home
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.util.errors import UserError, closest, shown

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
_NOTES = ("description", "source")
_SECTIONS = ("finetuning",)  # hparams of other programs than pre-training


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.json"))


def is_recipe(name: Any) -> bool:
    """True if there is a recipe of this name or path."""
    if not isinstance(name, str):
        return False
    return name in recipe_names() or (name.endswith(".json") and os.path.isfile(name))


def has_section(name: str, section: str) -> bool:
    """True if a recipe has this section: "finetuning"."""
    return section in _with_base(_recipe_path(name, "--recipe"))


def read_recipe(name: str, section: str | None = None) -> dict[str, Any]:
    """Reads the hparams of a recipe by name or path.

    Args:
      section: "finetuning" reads this section instead of the hparams of pre-training.
    """
    path = _recipe_path(name, "--recipe")
    hparams = _with_base(path)
    if section is None:
        return {key: value for key, value in hparams.items() if key not in (*_NOTES, *_SECTIONS)}
    if section not in hparams:
        raise UserError(f"--recipe: {path} has no section {section!r}")
    section_hparams = hparams[section]
    if not isinstance(section_hparams, dict):
        raise UserError(f"recipe {path}: {section} must be a JSON object of hparams, got {shown(section_hparams)}")
    return {key: value for key, value in section_hparams.items() if key not in _NOTES}


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
    """Reads a recipe, merged over the one that it extends. A path there is relative to the folder of this recipe.

    Args:
      extending: recipes that extend this one, directly or not.
    """
    recipe = with_home(read_json(path, "recipe"))
    if "extends" not in recipe:
        return recipe
    what = f"recipe {path}, extends"
    base = recipe.pop("extends")
    if isinstance(base, str) and base.endswith(".json"):
        base = str(path.parent / base)
    base_path = _recipe_path(base, what).resolve()
    seen = (*extending, path.resolve())
    if base_path in seen:
        raise UserError(
            f"{what}: {base_path.name} extends itself, by way of {' and '.join(path.name for path in seen)}"
        )
    whole = _with_base(base_path, seen)
    for name in _SECTIONS:
        if name in whole and name in recipe:
            recipe[name] = _over(whole[name], recipe[name])
    return whole | recipe


def _over(base: Any, section: Any) -> Any:
    """Merges a section over that of the extended recipe. The hparams of a task replace all of that task's there."""
    if not isinstance(base, dict) or not isinstance(section, dict):
        return section
    merged = base | section
    base_tasks = base.get("per_task")
    section_tasks = section.get("per_task")
    if isinstance(base_tasks, dict) and isinstance(section_tasks, dict):
        merged["per_task"] = base_tasks | section_tasks
    return merged
