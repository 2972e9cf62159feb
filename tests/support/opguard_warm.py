"""A launcher that spares the tests most imports of torch: workers are forked from one process.

The server imports torch once. As a launcher, ``python opguard_warm.py SOCKET -m MODULE ARGS``
sends its arguments, environment and output to the server, waits for the process that the server
forks, and ends as that process ends. The forked process is as fresh as a started one in everything
that the tests of pairing and origins look at: it has run nothing of a workload.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def warm_launcher(folder: Path) -> Iterator[str]:
    """Start a server; yields the value for ``--launcher``.

    Args:
        folder: Receives the socket; its path must be short, as for any socket.
    """
    address = folder / "warm"
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(address)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n", "the server did not start"
        yield f"{sys.executable} {__file__} {address}"
    finally:
        server.terminate()
        server.communicate()


def serve(address: str) -> list[str]:
    """Fork a process per connection; returns only in a forked one, with its arguments."""
    import numpy  # noqa: F401
    import torch._dynamo  # an optimizer's first step imports it, which takes longer than torch
    import torch.nn
    import torch.optim
    import torch.utils.checkpoint
    import torch.utils.data  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # attendants are not waited for
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _attend(connection)
        connection.close()


def _attend(connection: socket.socket) -> list[str]:
    """Fork the worker and report its end; returns in the worker."""
    message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
    order = json.loads(message)
    worker = os.fork()
    if worker:
        connection.sendall(f"{worker}\n".encode())
        _, status = os.waitpid(worker, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.close()
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    arguments: list[str] = order["arguments"]
    return arguments


def order(address: str, arguments: list[str]) -> int:
    """Have a worker forked and wait for it; returns its exit status, negative for a signal."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    message = {"arguments": arguments, "cwd": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(connection, [json.dumps(message).encode()], [1, 2])
    with connection.makefile("r") as answers:
        worker = int(answers.readline())
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(worker, number))
        return int(answers.readline())


def main() -> None:
    """Serve, order a worker, or be one."""
    if sys.argv[1] != "--serve":
        status = order(sys.argv[1], sys.argv[2:])
        if status < 0:
            signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        sys.exit(status)
    option, module, *arguments = serve(sys.argv[2])
    assert option == "-m"
    # As `python -m` leaves it; the worker takes the first entry for the working directory.
    sys.path[0] = os.getcwd()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
