"""Processes of one process group that run programs of tests/parallel/programs.py on request.

The group is started once for all tests of a file, because a process needs seconds to import torch.
A rank answers with figures or with its traceback. If a rank does not answer in time, then all ranks
are ended, so that a deadlock is a failed test.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

GROUP_TIMEOUT = 60.0  # seconds that a collective waits for the other ranks
ANSWER_TIMEOUT = 300.0  # seconds without an answer after which a rank counts as deadlocked
OPTIONS = {
    "FUSER_HOST_ARCH": "0",  # kernels of CPUs, as users run them
    "FUSER_STRICT": "1",  # a region that fails to build is an error
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",  # graphs are traced in each run
}

Job = Callable[..., Any]


def _main(rank: int, world: int, device: str, store: str, timeout: float, pipe: Connection) -> None:
    """Joins the group, then answers requests (job, arguments) until the pipe closes."""
    os.environ.update(OPTIONS)
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(rank)
        # Convolutions use TF32 by default, whose errors would hide ours.
        torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),
    )
    while True:
        try:
            job, arguments = pipe.recv()
        except EOFError:
            break
        try:
            pipe.send((True, job(device, *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
    if dist.is_initialized():
        dist.destroy_process_group()


class Ranks:
    """`world` processes with one process group, on the CPU or with a GPU each."""

    def __init__(
        self, folder: Path, device: str, world: int = 2, timeout: float = GROUP_TIMEOUT
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            arguments = (rank, world, device, str(folder / "store"), timeout, theirs)
            process = context.Process(target=_main, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def ask(self, job: Job, *arguments: Any) -> list[tuple[bool, Any]]:
        """Runs `job(device, *arguments)` on all ranks. Returns for each rank (True, result), or
        (False, text of the error). Raises TimeoutError after ANSWER_TIMEOUT and ends the ranks.
        """
        assert all(p.is_alive() for p in self.processes), "a rank ended in an earlier test"
        for pipe in self.pipes:
            pipe.send((job, arguments))
        answers: dict[int, tuple[bool, Any]] = {}
        waiting = dict(enumerate(self.pipes))
        while waiting:
            ready = wait(list(waiting.values()), timeout=ANSWER_TIMEOUT)
            if not ready:
                self.end()
                raise TimeoutError(f"no answer from ranks {sorted(waiting)}: a deadlock?")
            for rank, pipe in [(r, p) for r, p in waiting.items() if p in ready]:
                try:
                    answers[rank] = pipe.recv()
                except (EOFError, ConnectionError):
                    answers[rank] = (False, "the process ended")
                del waiting[rank]
        return [answers[rank] for rank in range(len(self.pipes))]

    def end(self, patience: float = 10.0) -> None:
        """Closes the pipes, and kills the processes that are alive `patience` seconds later."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(timeout=patience)
            if process.is_alive():
                process.kill()
                process.join()
