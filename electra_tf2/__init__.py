"""Text encoders pre-trained by replaced-token detection and its relatives, ready to be used.

    import electra_tf2 as electra

    model = electra.load("electra_deep")                   # a shipped model, a run, a folder, a Hugging Face directory
    model.states(["One sentence.", ("A pair", "of two")])  # vectors of tokens
    model.embed(["One sentence.", "Another."])             # one vector of each text
    model.replaced("The chef eight the meal.")             # tokens that look wrong
    model.fill("The capital of France is [MASK].")         # the likeliest words
    model.score(["A sentence.", "Sentence a."])            # pseudo-log-likelihoods
    model = electra.finetune(texts, labels)                # a model that learned from your examples
    model.predict(["A text to label."])                    # answers of a fine-tuned model
    model.evaluate(other_texts, their_labels)              # and its scores
    model.keras()                                          # the network, to put a head on and fit
    electra.convert(model, "hf", format="huggingface")     # files for other programs

`models()` lists the shipped models, and docs/python.md describes `load`, `finetune`, the model that they return, and
`convert`.
Importing this package imports no TensorFlow; the first use of `load` does.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from electra_tf2.exports.convert import convert
    from electra_tf2.inference.finetuning_from_python import finetune
    from electra_tf2.inference.model import Answer, Model, Replaced, States, Suggestion, load, models
    from electra_tf2.util.errors import UserError

__version__ = "0.2.0"
__all__ = [
    "Answer",
    "Model",
    "Replaced",
    "States",
    "Suggestion",
    "UserError",
    "__version__",
    "convert",
    "finetune",
    "load",
    "models",
]

# `electra_tf2.finetune` is a function here, and also the name of a folder. The first import of the folder would set the
# name to the module. It is imported now and its name removed, so that `__getattr__` below always gives the function.
importlib.import_module("electra_tf2.finetune")
globals().pop("finetune", None)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # These need no TensorFlow: `convert` and `finetune` check their arguments before they import it.
    if name == "convert":
        from electra_tf2.exports.convert import convert

        return convert
    if name == "finetune":
        from electra_tf2.inference.finetuning_from_python import finetune

        return finetune
    if name == "models":
        from electra_tf2.formats.folders import models

        return models
    if name == "UserError":
        from electra_tf2.util.errors import UserError

        return UserError
    from electra_tf2.util.environment import before_tensorflow, import_tensorflow

    before_tensorflow()  # turns off its log messages
    import_tensorflow()
    from electra_tf2.inference import model as inference

    return getattr(inference, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
