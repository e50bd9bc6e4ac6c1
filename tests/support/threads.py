"""Helpers for tests of threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable


def turns_of_another_thread(call: Callable[[], object], calls: int = 2000) -> int:
    """Number of times that another thread acquired the interpreter lock while `call` ran."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)  # disables timed switching
    turns: list[int] = []
    ended = False

    def wait() -> None:
        while not ended:
            turns.append(0)
            time.sleep(1e-5)

    thread = threading.Thread(target=wait)
    try:
        thread.start()
        time.sleep(0.01)
        begun = len(turns)
        for _ in range(calls):
            call()
        return len(turns) - begun
    finally:
        ended = True
        sys.setswitchinterval(before)
        thread.join()
