"""The switch that turns kernels off: what it reaches, and for how long."""

import threading

import pytest
import tensorflow as tf

from electra_tf2.model import kernels, layers
from electra_tf2.model.kernels import compilation, switch
from electra_tf2.training.distribution import mirrored_strategy


def has_xla(step):
    """Whether a step on two replicas has a part that XLA compiles."""
    strategy = mirrored_strategy(("CPU:0", "CPU:1"))
    traced = tf.function(lambda: strategy.run(step), autograph=False)
    library = traced.get_concrete_function().graph.as_graph_def().library
    return any("_XlaMustCompile" in function.attr for function in library.function)


def gelu_and_gradient():
    x = tf.ones([2, 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.gelu(x, tf.zeros([3]))
    return tape.gradient(y, x)


def test_replicas_in_threads_of_their_own_have_kernels_off():
    assert has_xla(gelu_and_gradient)
    with kernels.off():
        assert not has_xla(gelu_and_gradient)
    assert has_xla(gelu_and_gradient)


def test_kernels_are_on_again_when_the_last_thread_that_switched_them_off_is_done():
    is_within, may_leave = threading.Event(), threading.Event()

    def other_thread():
        with kernels.off():
            is_within.set()
            may_leave.wait()

    thread = threading.Thread(target=other_thread)
    thread.start()
    is_within.wait()
    with kernels.off(), kernels.off():
        pass
    assert not switch.are_on()
    may_leave.set()
    thread.join()
    assert switch.are_on()


def test_an_error_leaves_kernels_on():
    with pytest.raises(ValueError), kernels.off():
        raise ValueError
    assert switch.are_on()


def test_a_program_is_traced_as_it_began_while_another_thread_switches_kernels_off():
    modes = []

    def traced(x):
        with kernels.off():
            thread = threading.Thread(target=lambda: modes.append(switch.are_on()))
            thread.start()
            thread.join()
        modes.append(switch.are_one_program())
        return x

    compilation.one_program(traced)(tf.constant(1.0))
    assert modes == [False, True]
