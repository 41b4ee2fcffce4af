"""Ctrl-C reaches a run only where nothing is half done."""

import os
import signal
import threading

import pytest

from benchhouse.runs.interrupts import Interrupts


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_a_first_press_waits_for_the_next_check():
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.check()
        press()
        done.append("what was begun")
        interrupts.check()
        done.append("what comes next")
    assert done == ["what was begun"]


def test_a_second_press_is_heard_at_once():
    with Interrupts() as interrupts:
        press()
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            press()


def test_afterwards_the_usual_handler_is_back_and_a_strangers_handler_is_left_alone():
    with Interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with Interrupts() as interrupts:
            press()
            interrupts.check()
        assert heard == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_that_is_not_the_main_one_changes_no_handler():
    seen = []

    def run():
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
