"""Place of this host among the hosts of a job, from TF_CONFIG, without TensorFlow.

Scripts need it before TensorFlow is imported (only the first host touches the model's folder), training.distribution to
share out the rows of a batch.
"""

import json
import os
from typing import NamedTuple

from electra_tf2.util.errors import UserError


class Host(NamedTuple):
    """number: 0 is the chief, which writes results. hosts: how many train."""

    number: int = 0
    hosts: int = 1


def this_host(strategy: str) -> Host:
    """Finds this host among those of a `multi_worker` job; the only one for any other strategy. Raises UserError:
    TF_CONFIG is not what TensorFlow documents."""
    text = os.environ.get("TF_CONFIG", "")
    if strategy != "multi_worker" or not text:
        return Host()
    try:
        values = json.loads(text)
        cluster = values["cluster"]
        task = values["task"]
        chiefs = len(cluster.get("chief", []))
        workers = len(cluster.get("worker", []))
        index = int(task["index"])
        if task["type"] == "worker":
            index += chiefs
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG: {error!r} in {text!r}; it must be like "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
        ) from None
    if task["type"] not in ("chief", "worker") or not 0 <= index < chiefs + workers:
        raise UserError(f"TF_CONFIG: task {task} is not in cluster {cluster}; it must be one of its chief and workers")
    return Host(index, chiefs + workers)
