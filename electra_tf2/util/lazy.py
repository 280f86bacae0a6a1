"""TensorFlow, imported when something of it is first asked for.

A module that holds hparams beside what they switch on reads `tf` from here, so that configuration imports it within
milliseconds. Type checkers see TensorFlow itself; annotations need `from __future__ import annotations`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf
else:

    class _TensorFlow:
        def __getattr__(self, name):
            import tensorflow

            # Nothing is looked up here a second time; `random` is what TensorFlow itself imports late.
            self.__dict__.update(vars(tensorflow), random=tensorflow.random)
            return getattr(tensorflow, name)

    tf = _TensorFlow()
