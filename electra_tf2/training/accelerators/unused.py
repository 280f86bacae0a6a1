"""Accelerators of this machine that TensorFlow does not use, and what to install or to ask for."""

import os
from pathlib import Path

from electra_tf2.training.hparams import DeviceHparams

# Where the drivers of GPUs and TPUs leave their marks.
_NVIDIA = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))
_TPU_FOLDERS = ((Path("/dev"), "accel*"), (Path("/dev/vfio"), "[0-9]*"))


def has_nvidia_driver() -> bool:
    return any(path.exists() for path in _NVIDIA)


def has_tpu() -> bool:
    """True if this is a TPU VM, or TPU_NAME names a TPU."""
    if os.environ.get("TPU_NAME"):
        return True
    # Other devices are passed through /dev/vfio, too; images of TPU VMs say what they are.
    is_tpu_vm = bool(os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get("TPU_SKIP_MDS_QUERY"))
    folders = _TPU_FOLDERS if is_tpu_vm else _TPU_FOLDERS[:1]
    return any(any(folder.glob(pattern)) for folder, pattern in folders)


def unused_accelerator(config: DeviceHparams, gpus: int) -> str | None:
    """One line about an accelerator that is there and will not be used; None if there is none.

    Args:
      gpus: that TensorFlow sees.
    """
    uses_tpu = config.use_tpu or config.strategy == "tpu"
    hidden = config.num_gpus == 0 or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not gpus and not uses_tpu and not hidden and has_nvidia_driver():
        return (
            "this machine has an NVIDIA driver, but TensorFlow sees no GPU and trains on the processor: "
            "pip install 'electra-tf2[gpu]', or --num-gpus 0 if that is meant"
        )
    if not gpus and not uses_tpu and has_tpu():
        return (
            "this machine has a TPU that is not used: --use-tpu, with tensorflow-tpu in place of tensorflow "
            "(docs/devices.md)"
        )
    return None
