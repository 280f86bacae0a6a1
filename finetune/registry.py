"""Which task a name stands for: GLUE, question answering, tagging, tasks described by hparams or made in Python."""

from collections.abc import Callable

from configure_finetuning import REGISTERED, TAGGING_TASKS, FinetuningConfig
from corpus.tokenization import WordpieceTokenizer
from finetune.classification.tasks import GLUE, TextTask, TextTaskSpec, own_spec
from finetune.task import Task
from util.errors import UserError
from util.hparams import closest

TaskFactory = Callable[[str, FinetuningConfig, WordpieceTokenizer], Task]
_factories: dict[str, TaskFactory] = {}


def register(name: str, factory: TaskFactory) -> None:
    """Makes a task known under a name, for `task_names`; a subclass of Task is a factory."""
    _factories[name] = factory
    REGISTERED.add(name)


def make_tasks(config: FinetuningConfig, tokenizer: WordpieceTokenizer) -> list[Task]:
    """The tasks of a run, nothing loaded yet."""
    return [_make(name, config, tokenizer) for name in config.task_names]


def _make(name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer) -> Task:
    if name in _factories:
        return _factories[name](name, config, tokenizer)
    if name in config.tasks:
        return _make_own(name, config, tokenizer)
    if name in GLUE:
        return _text_task(name, config, tokenizer, GLUE[name])
    if name in TAGGING_TASKS:
        from finetune.tagging.tasks import TAGGING_TASK_CLASSES

        return TAGGING_TASK_CLASSES[name](name, config, tokenizer)
    from finetune.qa.tasks import QA_TASK_CLASSES

    return QA_TASK_CLASSES[name](name, config, tokenizer)


def _text_task(name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, spec: TextTaskSpec) -> Task:
    if not config.prompt:
        return TextTask(name, config, tokenizer, spec)
    from finetune.prompting.tasks import PromptTask

    return PromptTask(name, config, tokenizer, spec)


def _make_own(name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer) -> Task:
    described = dict(config.tasks[name])
    kind = described["type"]
    if kind in ("classification", "regression"):
        return _text_task(name, config, tokenizer, own_spec(name, described))
    options = {key: value for key, value in described.items() if key != "type"}
    valid = {"tagging": ("spans",), "qa": ("v2", "mrqa")}[kind]
    for key in options:
        if key not in valid:
            raise UserError(f"tasks: {name}: unknown key {key!r}{closest(key, valid)} (one of {', '.join(valid)})")
    if kind == "tagging":
        from finetune.tagging.tasks import TaggingTask

        return TaggingTask(name, config, tokenizer, **options)
    from finetune.qa.tasks import QATask

    return QATask(name, config, tokenizer, **options)
