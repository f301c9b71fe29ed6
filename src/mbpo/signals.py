"""SIGINT and SIGTERM as a wish to stop soon: the first is noted, a second ends the program at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While open, `received` is the first signal that asked the program to stop, or None.

    Python delivers signals to the main thread only; in any other thread this sees none and changes nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for stopping in STOPPING:
            signal.signal(stopping, signal.SIG_DFL)
