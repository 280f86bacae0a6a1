"""The smallest task that the loop can run: one weight that follows a noisy target. Traces in a fraction of a second."""

import tensorflow as tf

from electra_tf2.training.loop import LoopSchedule, Trainer
from electra_tf2.training.optimization import AdamW
from electra_tf2.training.optimization import LearningRateSchedule as Rates
from electra_tf2.training.shared_hparams import OptimizerHparams
from electra_tf2.training.training_task import TrainingTask


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(tf.zeros([3]), name="weight")


class Toy(TrainingTask):
    """`bad_at`: the step (1-based) at which the loss is not finite; `bad_gradient_at`, at which the gradient alone."""

    def __init__(self, strategy, bad_at=-1, learning_rate=0.1, bad_gradient_at=-1, precision="float32", ema_decay=0.0):
        super().__init__(strategy, jit_compile=False, seed=0, precision=precision)
        self.model = Model()
        rates = Rates(peak=learning_rate, num_train_steps=100, num_warmup_steps=0)
        self.optimizer = AdamW(
            [self.model.weight], rates, lambda variable: False, OptimizerHparams(ema_decay=ema_decay)
        )
        self.bad_at, self.bad_gradient_at = bad_at, bad_gradient_at

    def training_data(self, position):
        numbers = tf.data.Dataset.range(position, 1 << 40).batch(4, drop_remainder=True)
        return numbers.map(lambda n: {"input_ids": tf.sin(tf.cast(n, tf.float32))})

    def train_step(self, batch, step):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model.weight - batch["input_ids"][:, tf.newaxis]) ** 2)
            loss = tf.where(step + 1 == self.bad_at, float("nan"), loss)
        gradient = tape.gradient(loss, self.model.weight)
        gradient = tf.where(step + 1 == self.bad_gradient_at, float("nan"), gradient)
        norm = self.update([gradient], self.scale())
        metrics = {"low": (tf.cast(loss < 0.5, tf.float32), tf.constant(1.0))}
        return {"losses": {"loss": loss}, "watched": {"gradient_norm": norm}, "metrics": metrics}

    def explain(self, error):
        return None


def trainer(
    folder, evaluate=None, bad_at=-1, bad_gradient_at=-1, precision="float32", ema_decay=0.0, strategy=None, **schedule
):
    """A trainer of the toy: 20 steps, reported every 5, saved every 10."""
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = Toy(strategy, bad_at, bad_gradient_at=bad_gradient_at, precision=precision, ema_decay=ema_decay)
    times = LoopSchedule(20, 5, 10, 3, eval_every_steps=0, num_eval_steps=1, examples_per_step=4)._replace(**schedule)
    return Trainer(task, strategy, times, str(folder), evaluate, "score" if evaluate else None)


def before(owner, name, action):
    """Has a method of an object do something else first, with the same arguments."""
    method = getattr(owner, name)

    def call(*arguments):
        action(*arguments)
        return method(*arguments)

    setattr(owner, name, call)


def at_step(runner, step, action):
    """The action, if the runner is at a step."""
    return lambda *_: action() if runner.current_step == step else None
