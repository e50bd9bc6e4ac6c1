"""Progress of a batch of compilations: a bar on a terminal, otherwise log lines; silent for batches
that take less than a second.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from fuser import _core

PATIENCE = 1.0  # seconds before the first output
_REDRAW, _AGAIN = 0.2, 10.0  # seconds between updates of the bar, and between log lines
_CELLS = 24


class Progress:
    """Shows the progress of `total` compilations. Threads call done() after each.

    with Progress(len(texts)) as progress: ...
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.finished = total, 0
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty()
        self._start = time.perf_counter()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._shown = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        if self.total > 1:  # one compilation shows no progress
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._stopped.set()
        if self.total > 1:
            self._thread.join()
        if not self._shown:
            return
        if self._bar:
            self._stream.write("\r\x1b[K")
        if error is None:
            self._say(f"compiled {self.total} kernels in {self._seconds():.1f} s")

    def done(self, count: int = 1) -> None:
        """Counts `count` more compilations as finished."""
        with self._lock:
            self.finished += count

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def _watch(self) -> None:
        if self._stopped.wait(PATIENCE):
            return
        self._shown = True
        if self._bar:
            while not self._stopped.wait(_REDRAW):
                self._stream.write(f"\r\x1b[K{self._picture()}")
                self._stream.flush()
            return
        self._say(f"compiling {self.total} kernels, {self.finished} done")
        while not self._stopped.wait(_AGAIN):
            self._say(f"compiling {self.total} kernels, {self.finished} done")

    def _picture(self) -> str:
        filled = _CELLS * self.finished // self.total
        bar = "#" * filled + "." * (_CELLS - filled)
        return f"fuser: [{bar}] {self.finished}/{self.total} kernels, {self._seconds():.0f} s"

    def _say(self, line: str) -> None:
        if self._bar:
            self._stream.write(f"fuser: {line}\n")
            self._stream.flush()
        else:
            _core.log_line(line)
