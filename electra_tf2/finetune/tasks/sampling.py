"""Samples a list of examples before it is encoded: a part is held out, a share or a few of them are taken.

Every draw is a function of the hparams' seeds and of the list. Examples that share a text are held out together.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.tasks.files import FEW_SHOT_DEV, TaskFiles
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import counted, say


def used(examples: Sequence[Any], split: str, files: TaskFiles, config: FinetuningConfig, target: Any) -> list[Any]:
    """Picks the examples of a split that a run uses from all examples of its file.

    Args:
      target: what labels mean. Only with a targets.Classes or Scale can examples of each label be chosen.

    Raises:
      UserError: there are too few to hold out a part, or to choose a few of each label.
    """
    chosen = list(examples)
    if split in ("train", FEW_SHOT_DEV, "dev") and files.holds_out:
        chosen = held_out_part(chosen, files, config.seed, development=split == "dev")
    if split == "train" and config.train_share < 1:
        chosen = share_of(chosen, config.train_share, config.seed)
    if config.few_shot and split in ("train", FEW_SHOT_DEV):
        if not hasattr(target, "group"):
            raise UserError(f"few_shot: {files.name} has no labels of which K examples each could be taken")
        groups = np.array([target.group(example.label) for example in chosen], np.int64)
        indices, dev_indices = few_shot_split(groups, config.few_shot, config.few_shot_seed)
        if split == FEW_SHOT_DEV:
            indices = dev_indices
        if config.debug_examples:
            # They stand label by label, so the first of them would have one label alone.
            indices.sort()
        chosen = [chosen[index] for index in indices]
    if config.debug_examples:
        chosen = chosen[: config.debug_examples]
    return chosen


def selection_splits(config: FinetuningConfig, evaluation_splits: tuple[str, ...]) -> tuple[str, ...]:
    """The splits by whose scores the best checkpoint is chosen."""
    if config.few_shot:
        return (FEW_SHOT_DEV,)
    return evaluation_splits


def share_of(examples: Sequence[Any], share: float, seed: int) -> list[Any]:
    """Draws a share of the examples. A larger share holds the examples of a smaller one."""
    kept = max(1, round(len(examples) * share))
    order = np.random.default_rng([seed, 2]).permutation(len(examples))
    return [examples[index] for index in sorted(order[:kept].tolist())]


def held_out_part(examples: Sequence[Any], files: TaskFiles, seed: int, development: bool) -> list[Any]:
    """Splits the training examples, and takes those that are held out as development data, or else the others.

    Each class has its share on either side.

    Raises:
      UserError: there are too few.
    """
    classes = []
    for example in examples:
        label = getattr(example, "label", None)
        classes.append(label if isinstance(label, str) else None)
    note = ""
    groups = _groups_of(examples, files.held_out)
    held_out = draw_held_out(groups, classes, files.held_out, np.random.default_rng([seed, 3]))
    if len(examples[0].texts) > 1 and not _are_shares(held_out, classes, files.held_out):
        note = ", whole pairs, since most have texts in common"
        groups = [same_text(*example.texts) for example in examples]
        held_out = draw_held_out(groups, classes, files.held_out, np.random.default_rng([seed, 3]))
    elif len(examples[0].texts) > 1:
        num_groups = len({groups[index] for index in held_out})
        if num_groups < len(held_out) / 2:
            note = f", {counted(num_groups, 'group')} of pairs that have texts in common"
    elif isinstance(groups, range):
        note = ", single questions, since all are about a few documents"
    kept = []
    for index, example in enumerate(examples):
        is_held_out = index in held_out
        if is_held_out == development:
            kept.append(example)
    if not kept:
        share = f"{files.held_out:g}"
        raise UserError(
            f"{files.path('train')} holds too few examples, or too few different texts, to hold out {share} of them"
        )
    if development:
        percent = f"{100 * len(kept) / len(examples):.2g} %"
        say(f"{files.name}: no dev file: {percent} of train held out (seed {seed}){note}")
    return kept


def _are_shares(held_out: set[int], classes: Sequence[Hashable], share: float) -> bool:
    """Tells whether about a share of each class is held out: from half of it to twice as many."""
    held_out_of_class = Counter(classes[index] for index in held_out)
    for name, size in Counter(classes).items():
        wanted = share * size
        if not int(wanted / 2) <= held_out_of_class[name] <= 2 * wanted + 1:
            return False
    return True


def _groups_of(examples: Sequence[Any], share: float) -> Sequence[Hashable]:
    """Lists the group of each example: those with a common text are held out together.

    Questions about a few documents, of which the share is less than one, have a group each.
    """
    if len(examples[0].texts) > 1:
        return _with_common_texts([[same_text(text) for text in example.texts] for example in examples])
    groups = [same_text(*example.texts) for example in examples]
    if hasattr(examples[0], "paragraph") and len(set(groups)) * share < 1:
        return range(len(examples))
    return groups


def _with_common_texts(texts: Sequence[Sequence[Hashable]]) -> list[int]:
    """Numbers groups of examples that have a text in common, or are linked by others that have.

    Args:
      texts: keys of the texts of each example.
    """
    from scipy import sparse  # here, since it takes long to import

    number_of_text: dict[Hashable, int] = {}
    rows = []
    columns = []
    for row, keys in enumerate(texts):
        for key in keys:
            rows.append(row)
            columns.append(number_of_text.setdefault(key, len(number_of_text)))
    size = len(texts) + len(number_of_text)  # a node for each example, and one for each text
    links = sparse.coo_array((np.ones(len(rows)), (rows, np.array(columns) + len(texts))), shape=(size, size))
    _, groups = sparse.csgraph.connected_components(links, directed=False)
    return groups[: len(texts)].tolist()


def draw_held_out(
    groups: Sequence[Hashable], classes: Sequence[Hashable], share: float, random: np.random.Generator
) -> set[int]:
    """Draws the indices of held-out examples: whole groups of them, and a share of each class.

    Args:
      groups, classes: the group and the class of each example.
    """
    members: dict[Hashable, list[int]] = {}  # group -> its examples
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    groups_of_class: dict[Hashable, list[list[int]]] = {}  # a group counts for the class of its first example
    for indices in members.values():
        groups_of_class.setdefault(classes[indices[0]], []).append(indices)
    sizes = {name: sum(map(len, grouped)) for name, grouped in groups_of_class.items()}
    room = _room_of_classes(sizes, share)
    chosen: set[int] = set()
    for name, grouped in groups_of_class.items():
        if len(grouped) == 1 and len(groups_of_class) > 1:
            continue  # the class would be missing in training
        is_wanted = room[name] >= 1
        for place in random.permutation(len(grouped)):
            if len(grouped[place]) <= room[name]:
                chosen.update(grouped[place])
                room[name] -= len(grouped[place])
                is_wanted = False
        if is_wanted:  # all groups are larger than the share
            smallest_group: list[int] = min(grouped, key=len)
            chosen.update(smallest_group)
    return chosen


def _room_of_classes(sizes: Mapping[Hashable, int], share: float) -> dict[Hashable, int]:
    """Computes how many examples of each class are held out, by the largest remainders.

    Shares are cut to whole numbers, and what is missing in the sum goes to the classes that lost most by that.

    Args:
      sizes: number of examples of each class.
    """
    room: dict[Hashable, int] = {}
    lost: dict[Hashable, float] = {}
    for name, size in sizes.items():
        wanted = share * size
        room[name] = int(wanted)
        lost[name] = wanted - room[name]
    missing = max(1, round(share * sum(sizes.values()))) - sum(room.values())
    for name in sorted(room, key=lambda name: -lost[name])[:missing]:
        room[name] += 1
    return room


def few_shot_split(groups: np.ndarray, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Training and development examples of a few-shot experiment (LM-BFF, section 3): disjoint, a function of the seed.

    Args:
      groups: int64 [examples], the group of each by its label.
      size: K, examples of each label in either split.

    Raises:
      UserError: a label has fewer than 2 K examples.
    """
    train: list[int] = []
    dev: list[int] = []
    for members in shuffled_groups(groups, seed):
        if len(members) < 2 * size:
            raise UserError(
                f"few_shot {size} needs {2 * size} training examples of each label, half of them to choose the best "
                f"checkpoint; one has {len(members)}"
            )
        train += members[:size]
        dev += members[size : 2 * size]
    return train, dev


def shuffled_groups(groups: np.ndarray, seed: int) -> list[list[int]]:
    """Lists the indices of each group's examples in a random order. Arguments as in `few_shot_split`."""
    order = np.random.default_rng(seed).permutation(len(groups))
    members: dict[int, list[int]] = {int(group): [] for group in np.unique(groups)}
    for index in order.tolist():
        members[int(groups[index])].append(index)
    return list(members.values())


def same_text(*texts: str) -> Hashable:
    """Makes a key that is equal for texts that differ in case, white space and order alone."""
    return frozenset(" ".join(text.split()).casefold() for text in texts)
