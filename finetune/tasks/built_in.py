"""The tasks that are known by name: whatever the modules of finetune.tasks.families declare. Free of TensorFlow.

A family says where its tasks' files hold what, how they are scored, and in which hparams a run of one alone differs;
the classes that do the work are found by an entry's kind or maker (finetune.tasks.registry).
"""

from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.util.catalogue import declared

BUILT_IN: dict[str, Entry] = dict(declared("electra_tf2.finetune.tasks.families", "", "ENTRIES"))
