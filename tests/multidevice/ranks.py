"""Processes of one gloo group that run functions of the tests and send their values back."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Seconds after which a rank reports that another one is missing.
TIMEOUT = 60.0


class Ranks:
    """`size` processes; run() calls a function on each."""

    def __init__(self, size: int, timeout: float = TIMEOUT, backend: str = "gloo") -> None:
        self.size = size
        # One process imports torch, and the ranks are its forks.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.multidevice.compared"])
        self._folder = tempfile.TemporaryDirectory(prefix="fuser-test-ranks-")
        store = str(Path(self._folder.name) / "store")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            mine, theirs = context.Pipe()
            args = (rank, size, store, timeout, theirs, backend)
            process = context.Process(target=_serve, args=args)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Begins `function(*args)` on each rank."""
        for pipe in self.pipes:
            pipe.send((function, args))

    def result(self, rank: int, seconds: float = 2 * TIMEOUT) -> tuple[bool, Any]:
        """True and the value of a rank, or False and its traceback."""
        assert self.pipes[rank].poll(seconds), f"rank {rank} does not answer"
        found: tuple[bool, Any] = self.pipes[rank].recv()
        return found

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """The values of `function(*args)` by rank. Fails with the traceback of a rank that
        raises.
        """
        self.start(function, *args)
        answers = [self.result(rank) for rank in range(self.size)]
        failed = [f"rank {rank}: {value}" for rank, (ok, value) in enumerate(answers) if not ok]
        assert not failed, "\n".join(failed)
        return [value for _, value in answers]

    def stop(self) -> None:
        for pipe in self.pipes:
            with suppress(OSError):  # a rank that died
                pipe.send(None)
        for process in self.processes:
            process.join(10)
            process.kill()
        self._folder.cleanup()


@contextmanager
def ranks(size: int, timeout: float = TIMEOUT, backend: str = "gloo") -> Iterator[Ranks]:
    """Processes for a `with` block; with "nccl", each has a GPU."""
    found = Ranks(size, timeout, backend)
    try:
        yield found
    finally:
        found.stop()


def _serve(
    rank: int, size: int, store: str, timeout: float, pipe: Connection, backend: str
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    while (call := pipe.recv()) is not None:
        function, args = call
        try:
            pipe.send((True, function(*args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    os._exit(0)  # the group needs no farewell
