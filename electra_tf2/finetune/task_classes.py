"""The classes that learn each kind of task, and the tasks of a run."""

from collections.abc import Callable

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.file_tokenizer import FileTokenizer
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.classification.tasks import TextTask
from electra_tf2.finetune.embedding import EmbeddingTask
from electra_tf2.finetune.multiple_choice import Copa, MultiRc, Race, Record
from electra_tf2.finetune.prompting import PromptTask
from electra_tf2.finetune.qa.tasks import QATask
from electra_tf2.finetune.spans import SpanTask
from electra_tf2.finetune.tagging.tasks import TaggingTask
from electra_tf2.finetune.task import Task
from electra_tf2.finetune.tasks.registry import entry_of, made_in_python
from electra_tf2.util.errors import UserError

TaskFactory = Callable[[str, FinetuningConfig, WordpieceTokenizer], Task]
_CLASSES: dict[str, Callable[..., Task]] = {
    "classification": TextTask,
    "regression": TextTask,
    "tagging": TaggingTask,
    "qa": QATask,
    "embedding": EmbeddingTask,
    "spans": SpanTask,
    "prompt": PromptTask,
    "race": Race,
    "copa": Copa,
    "multirc": MultiRc,
    "record": Record,
}
_factories: dict[str, TaskFactory] = {}


def register(name: str, factory: TaskFactory) -> None:
    """Makes a task known under a name, for `task_names`; a subclass of Task is a factory."""
    made_in_python.add(name)
    _factories[name] = factory


def make_task(name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer) -> Task:
    """The task of a name that `check_names` has let pass, nothing loaded yet."""
    entry = entry_of(name, config.tasks)
    if entry is None:
        return _factories[name](name, config, tokenizer)
    make = _CLASSES["prompt" if config.prompt else entry.format or entry.kind]
    spec = {} if entry.spec is None else {"spec": entry.spec}
    return make(name, config, tokenizer, **spec, **entry.options)


def make_tasks(config: FinetuningConfig, tokenizer: WordpieceTokenizer) -> list[Task]:
    """The tasks of a run, nothing loaded yet. Raises UserError for tasks that cannot be learned together, or so."""
    tasks = [make_task(name, config, tokenizer) for name in config.task_names]
    if isinstance(tokenizer, FileTokenizer):
        placed = [task.name for task in tasks if isinstance(task, PromptTask)]
        if placed:
            raise UserError(
                f"task_names: {', '.join(placed)}: a prompt's words are looked up in a WordPiece vocabulary, and "
                f"{tokenizer.path} is of another tokenizer: leave prompt out"
            )
    for task in tasks:
        if config.prompt and not task.prompts:
            raise UserError(f"prompt: {task.name} is a task in Python with another head: derive it from PromptTask")
    if len(tasks) > 1 and len({task.choices if config.do_train else task.predicted_choices for task in tasks}) > 1:
        listed = ", ".join(f"{task.name} has {task.choices}" for task in tasks)
        raise UserError(f"task_names: tasks that are learned together need as many candidates for an example: {listed}")
    return tasks
