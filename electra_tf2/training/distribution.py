"""Devices: the tf.distribute strategy of a configuration, and the rows of the global batch that each host reads."""

import functools
import os
import resource
import sys
from pathlib import Path

import tensorflow as tf

from electra_tf2.training.cluster import this_host
from electra_tf2.training.shared_hparams import DeviceHparams
from electra_tf2.util import machine
from electra_tf2.util.environment import untuned
from electra_tf2.util.errors import UserError, how_to_install
from electra_tf2.util.progress import warn

# Folders and names of the devices that the drivers of TPUs make.
_TPU_FOLDERS = ((Path("/dev"), "accel*"), (Path("/dev/vfio"), "[0-9]*"))


def make_strategy(config: DeviceHparams) -> tf.distribute.Strategy:
    """Makes the strategy that strategy, num_gpus and the TPU hparams ask for. Raises UserError: too few devices."""
    name = config.strategy
    if name == "tpu" or (name == "auto" and config.use_tpu):
        return _tpu_strategy(config)
    gpus = tf.config.list_physical_devices("GPU")
    unused = unused_accelerator(config, len(gpus))
    if unused:
        warn(unused)
    wanted = len(gpus) if config.num_gpus is None else config.num_gpus
    if wanted > len(gpus):
        raise UserError(f"num_gpus is {wanted}, but {len(gpus)} GPUs are visible")
    if wanted < len(gpus):
        tf.config.set_visible_devices(gpus[:wanted], "GPU")
    for gpu in gpus[:wanted]:
        tf.config.experimental.set_memory_growth(gpu, True)
    if name == "auto":
        name = "mirrored" if wanted > 1 else "one_device"
    # Grappler makes no step of ours measurably faster on processors, and takes seconds before the first one.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not wanted})
    if name == "multi_worker":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        # All hosts have equally many batches, all full. To allow for partial ones would cost the static shapes.
        strategy.extended.experimental_enable_get_next_as_optional = False
        return strategy
    if wanted:
        _initialise_gpus()
    if name == "mirrored":
        devices = [f"GPU:{index}" for index in range(wanted)]
        if not devices:
            # The logical CPU devices, so that the same code runs and is tested anywhere.
            devices = [device.name for device in tf.config.list_logical_devices("CPU")]
        return mirrored_strategy(tuple(devices))
    return tf.distribute.OneDeviceStrategy("GPU:0" if wanted else "CPU:0")


def _initialise_gpus() -> None:
    """Initialises GPUs here rather than at the first operation, whose error would be TensorFlow's own.

    Raises:
      UserError: TensorFlow sees a GPU and cannot use it.
    """
    try:
        tf.config.list_logical_devices("GPU")
    except (RuntimeError, tf.errors.OpError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"TensorFlow sees a GPU and cannot use it ({reason}): update NVIDIA's driver, end the program that holds "
            "the GPU, or compute on the processor with --num-gpus 0"
        ) from None


def _has_tpu() -> bool:
    """True if this is a TPU VM, or TPU_NAME names a TPU."""
    if os.environ.get("TPU_NAME"):
        return True
    # /dev/vfio holds other devices, too, so it counts only on TPU VMs, whose images set these variables.
    is_tpu_vm = bool(os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get("TPU_SKIP_MDS_QUERY"))
    folders = _TPU_FOLDERS if is_tpu_vm else _TPU_FOLDERS[:1]
    return any(any(folder.glob(pattern)) for folder, pattern in folders)


def unused_accelerator(config: DeviceHparams, gpus: int) -> str | None:
    """Returns a warning about an accelerator of this machine that will not be used; None if there is none.

    Args:
      gpus: number of GPUs that TensorFlow sees.
    """
    uses_tpu = config.use_tpu or config.strategy == "tpu"
    hidden = config.num_gpus == 0 or machine.hides_gpus()
    if not gpus and not uses_tpu and not hidden and machine.has_nvidia_driver():
        return (
            "this machine has an NVIDIA driver, but TensorFlow sees no GPU and trains on the processor: "
            f"{how_to_install('gpu')}, or --num-gpus 0 if that is meant"
        )
    if not gpus and not uses_tpu and _has_tpu():
        return (
            "this machine has a TPU that is not used: --use-tpu, with tensorflow-tpu in place of tensorflow "
            "(docs/devices.md)"
        )
    return None


@functools.cache
def mirrored_strategy(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    """Returns the strategy over these devices, always the same one in a process.

    Every strategy numbers its collective operations from the same start, so two in one process would mistake each
    other's operations for their own ("Shape mismatch in the collective instance").
    """
    return tf.distribute.MirroredStrategy(devices)


def _tpu_strategy(config: DeviceHparams) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=config.tpu_name or "",
            zone=config.tpu_zone,
            project=config.gcp_project,
            job_name=config.tpu_job_name or "worker",
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:  # OSError: no machine of Google's cloud answers
        raise UserError(f"use_tpu: TPU {config.tpu_name or '(local)'!r} cannot be reached: {error}") from None
    strategy = tf.distribute.TPUStrategy(resolver)
    if config.num_tpu_cores not in (1, strategy.num_replicas_in_sync):
        raise UserError(f"num_tpu_cores is {config.num_tpu_cores}, the TPU has {strategy.num_replicas_in_sync} cores")
    return strategy


def has_several_hosts(strategy: tf.distribute.Strategy) -> bool:
    """True if other hosts train with this one."""
    is_multi_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return is_multi_worker and this_host("multi_worker").hosts > 1


class HostMeans:
    """Means of two numbers over hosts; on one host the numbers themselves.

    Always two: hosts may call it at different places, and a collective operation needs the same shape on all of them.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._sum_over_replicas = tf.function(self._sum, autograph=False)

    def __call__(self, first: float, second: float) -> list[float]:
        if not has_several_hosts(self._strategy):
            return [first, second]
        share = tf.constant([first, second]) / self._strategy.num_replicas_in_sync
        return self._sum_over_replicas(share).numpy().tolist()

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        on_replicas = self._strategy.run(tf.identity, args=(value,))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, on_replicas, axis=None)


def host_rows(strategy: tf.distribute.Strategy, global_batch_size: int) -> slice | None:
    """Rows of the global batch that this host's input feeds; None: all of them."""
    if not has_several_hosts(strategy):
        return None
    host = this_host("multi_worker")
    rows = global_batch_size // host.hosts
    return slice(host.rank * rows, (host.rank + 1) * rows)


def wants_xla(config: DeviceHparams) -> bool:
    """True if the whole step is to be compiled: jit_compile true, or auto on GPUs and TPUs."""
    if config.jit_compile == "auto":
        return bool(tf.config.list_logical_devices("GPU")) or config.use_tpu or config.strategy == "tpu"
    return config.jit_compile == "true"


def check_batch(name: str, size: int, strategy: tf.distribute.Strategy, parts: int = 1) -> None:
    """Raises UserError unless a global batch divides among replicas and micro-batches."""
    replicas = strategy.num_replicas_in_sync
    if size % (replicas * parts) == 0:
        return
    divisor = f"{replicas} devices"
    if parts > 1:
        divisor += f" x {parts} micro-batches (gradient_accumulation_steps)"
    raise UserError(f"{name} {size} is not divisible by {divisor}")


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """True if this process writes results: of several hosts, only the first does."""
    return bool(strategy.extended.should_save_summary)


def peak_memory() -> str:
    """Describes the most memory that this process has used: "GPU 12.3 GB" of the first GPU, or "host 1.2 GB"."""
    if tf.config.list_logical_devices("GPU"):
        return f"GPU {tf.config.experimental.get_memory_info('GPU:0')['peak'] / 1e9:.1f} GB"
    unit = 1 if sys.platform == "darwin" else 1024
    return f"host {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9:.1f} GB"


def _is_on_processor(strategy: tf.distribute.Strategy) -> bool:
    """True for a single device that is the processor."""
    is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
    return is_one_device and "CPU" in strategy.extended.worker_devices[0]


def distribute(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.distribute.DistributedDataset | tf.data.Dataset:
    """Splits each batch of a dataset among the replicas of this host. The dataset holds this host's rows only."""
    if _is_on_processor(strategy):
        # A distributed dataset has a second one inside, which copies batches to the device and cannot be `untuned`: the
        # end of a run would wait for it, for up to a minute.
        return untuned(dataset)
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        rows = dataset.element_spec["input_ids"].shape[0]
        device_rows = rows // strategy.extended._num_devices_per_worker
        return strategy.distribute_datasets_from_function(
            lambda context: untuned(dataset.unbatch().batch(device_rows, drop_remainder=True))
        )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return strategy.experimental_distribute_dataset(untuned(dataset).with_options(options))
