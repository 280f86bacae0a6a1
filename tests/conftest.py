"""Two logical processors, so that tests can run two replicas on one machine; the same random examples every time."""

import os

from electra_tf2.util.environment import before_tensorflow

# XLA's programs are the same, but LLVM takes half the time to turn them into machine code, which is slower, and less
# again if they are not cut into parts first.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1")
before_tensorflow()

import hypothesis  # noqa: E402
import tensorflow as tf  # noqa: E402

import tests.support.programs  # noqa: E402, F401 - before anything is forked

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# As in the programs on processors (training/distribution.py), whichever test comes first.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

# On GPUs TensorFlow's products of float32 have mantissas of 10 bits (TF32); the golden numbers are of full ones.
tf.config.experimental.enable_tensor_float_32_execution(False)

# HYPOTHESIS_PROFILE=default looks for new counterexamples.
# No example may fail because the machine is busy.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
