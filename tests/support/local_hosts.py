"""Several hosts of a multi-worker job as processes of this machine, to try such a job out or to test it.

  python -m tests.support.local_hosts 2 -m electra_tf2 pretrain --model-name tried --strategy multi_worker

Every process gets a TF_CONFIG of its own; its lines are printed behind its number. A signal goes to all of them. Ends
when all have ended, with the first exit code that is not 0.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any


def tf_config(hosts: list[str], index: int) -> str:
    """The TF_CONFIG of one of a job's hosts, each "name:port"."""
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})


def free_addresses(count: int) -> list[str]:
    """`count` different "localhost:port" at which nothing listens now."""
    with contextlib.ExitStack() as stack:
        addresses = []
        # All stay open until the last one is bound: a port that is closed may be given out again.
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("localhost", 0))
            addresses.append(f"localhost:{listener.getsockname()[1]}")
        return addresses


def start(count: int, command: list[str], **options: Any) -> "list[subprocess.Popen[str]]":
    """Starts `python *command` as each of `count` hosts; stdout and stderr are one pipe."""
    hosts = free_addresses(count)
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | {"TF_CONFIG": tf_config(hosts, index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C of the terminal reaches the parent, which passes it on once
            **options,
        )
        for index in range(count)
    ]


def _forward(number: int, process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(f"host {number}: {line}", end="", flush=True)


def main() -> int:
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if len(sys.argv) < 3 or not sys.argv[1].isdigit() or int(sys.argv[1]) < 1:
        print("error: give the number of hosts, then a script and its flags; see --help", file=sys.stderr)
        return 2
    processes = start(int(sys.argv[1]), sys.argv[2:])

    def pass_on(number: int, frame: Any) -> None:
        del frame
        for process in processes:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    threads = [threading.Thread(target=_forward, args=pair) for pair in enumerate(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [process.wait() for process in processes]
    for code in codes:
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
