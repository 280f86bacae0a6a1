"""The tasks that are known by name: whatever the modules of tasks.families declare. Free of TensorFlow.

A family says where its tasks' files hold what, how they are scored, and in which hparams a run of one alone differs;
the classes that do the work are found by an entry's kind or maker (tasks.registry).
"""

from tasks.entry import Entry
from util.catalogue import declared

BUILT_IN: dict[str, Entry] = dict(declared("tasks.families", "", "ENTRIES"))
