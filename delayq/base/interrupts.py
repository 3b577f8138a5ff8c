"""Exceptions that a signal handler raised: time limits by SIGALRM, of Celery or of RQ.

They belong to the caller. Code that catches an error of its own may also catch such an exception, if its type fits, as
a TimeoutError does. It must not take it for its own.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any


def raise_if_interrupt(error: BaseException) -> None:
    """Raise the exception of a signal handler, if `error` is one or was caused by one."""
    if (interrupt := raised_by_handler(error)) is not None:
        raise interrupt


def raised_by_handler(error: BaseException) -> BaseException | None:
    """Return the exception of a signal handler that `error` is, or that a library caught and answered with `error`.

    The frame of a handler is in the traceback of its exception. An earlier exception that the caller is just handling
    does not count: nothing between here and the origin of `error` has caught it.
    """
    if threading.current_thread() is not threading.main_thread():  # no handler runs here
        return None
    handlers = set(_handlers())
    frames: set[Any] = set()
    one: BaseException | None = error
    while one is not None:
        passed = list(_frames(one))
        if frames and (not passed or passed[0] not in frames):
            return None
        if any(frame.f_code in handlers for frame in passed):
            return one
        frames.update(passed)
        one = one.__cause__ or one.__context__
    return None


def _frames(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if callable(handler):
            function = getattr(handler, "__func__", handler)
            code = getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
            if code is not None:
                yield code
