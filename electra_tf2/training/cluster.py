"""Which host of a job this is, from TF_CONFIG, without TensorFlow.

Programs need it before TensorFlow is imported, because only the first host touches the model's folder.
training.distribution divides the rows of a batch by it.
"""

import dataclasses
import json
import os

from electra_tf2.util.errors import UserError


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of a job.

    rank: from 0; host 0 is the chief, which writes results.
    hosts: how many hosts train.
    """

    rank: int = 0
    hosts: int = 1


def this_host(strategy: str) -> Host:
    """Finds which host of a `multi_worker` job this is; with other strategies there is only one.

    Raises:
      UserError: TF_CONFIG is not what TensorFlow documents.
    """
    text = os.environ.get("TF_CONFIG", "")
    if strategy != "multi_worker" or not text:
        return Host()
    try:
        values = json.loads(text)
        cluster = values["cluster"]
        task = values["task"]
        chiefs = len(cluster.get("chief", []))
        workers = len(cluster.get("worker", []))
        rank = int(task["index"])
        if task["type"] == "worker":
            rank += chiefs
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG: {error!r} in {text!r}; it must be like "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
        ) from None
    if task["type"] not in ("chief", "worker") or not 0 <= rank < chiefs + workers:
        raise UserError(f"TF_CONFIG: task {task} is not in cluster {cluster}; it must be one of its chief and workers")
    return Host(rank, chiefs + workers)
