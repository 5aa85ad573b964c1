"""Ctrl-C ends waits, whichever thread gets the signal."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from morello.interrupt import result_of


def test_a_wait_is_ended_by_a_signal_to_another_thread() -> None:
    ended = threading.Event()

    def interrupts() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended.wait(60)

    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        try:
            with pytest.raises(KeyboardInterrupt):
                result_of(pool.submit(interrupts))
        finally:
            ended.set()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("error", [ValueError("of the task"), TimeoutError("of the task")])
def test_a_task_has_its_result_or_its_error(error: Exception) -> None:
    given, failed = Future[int](), Future[int]()
    timer = threading.Timer(0.5, given.set_result, [3])
    timer.start()
    assert result_of(given) == 3
    failed.set_exception(error)
    with pytest.raises(type(error), match="of the task"):
        result_of(failed)
