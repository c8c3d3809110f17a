"""Runs the tests of a Python suite and prints one line for each, in the form that compat/run reads:

    ok NAME | FAIL NAME: why | skip NAME: why

A test is a function whose name starts with `test_`; `each` makes one test per parameter.
"""

import concurrent.futures
import functools
import os
import re
import signal
import sys
import threading
import time
import traceback
import uuid

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
TARGET = os.environ.get("TARGET", "")
NIGHTLY = os.environ.get("NIGHTLY") == "1"

_printing = threading.Lock()


class Skip(Exception):
    """The test does not apply here, for the reason in its text."""


def nightly_only():
    """Skips a test outside of the nightly form."""
    if not NIGHTLY:
        raise Skip("in the nightly form")


def each(*parameters):
    """Makes one test per parameter, named `test[parameter]`."""

    def mark(test):
        test.parameters = parameters
        return test

    return mark


def unique(stem):
    """A name that no other test uses, for a topic or a group."""
    return f"{stem}-{uuid.uuid4().hex[:10]}"


def until(condition, what, timeout=20.0, pause=0.1):
    """Waits until the condition returns a true value, and returns it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(pause)


def end_of(log):
    """The last lines that a program has logged, without the places of a stack trace."""
    with open(log, errors="replace") as lines:
        told = [line.strip() for line in lines if not line.startswith("\tat ")]
    return "it ended: " + " | ".join(told[-8:])


def next_report(program, beginning):
    """The next line of a program that begins so; empty at its end. Other lines, such as errors of its client, are passed on."""
    for line in program.stdout:
        if line.startswith(beginning):
            return line
        print(line, end="", flush=True)
    return ""


def raises(kind, call):
    """Calls, expects an exception of that kind, and returns it."""
    try:
        result = call()
    except kind as failure:
        return failure
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


def main(*modules, parallel=4):
    """Runs the tests of modules, or of their globals; words on the command line select by name."""
    # Shells make background processes ignore interrupts, which clients inherit; but they are stopped by one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tests = [test for module in modules for test in _tests(module if isinstance(module, dict) else vars(module))]
    chosen = [test for test in tests if not sys.argv[1:] or any(word in test[0] for word in sys.argv[1:])]
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        outcomes = list(pool.map(lambda test: _run(*test), chosen))
    sys.exit(0 if all(outcomes) else 1)


def _tests(namespace):
    for name, test in namespace.items():
        if not name.startswith("test_") or not callable(test):
            continue
        name = name.removeprefix("test_")
        if not hasattr(test, "parameters"):
            yield name, test
            continue
        for parameter in test.parameters:
            yield f"{name}[{parameter}]", functools.partial(test, parameter)


def _run(name, test):
    try:
        test()
    except Skip as skip:
        return _say(f"skip {name}: {skip}")
    except Exception as failure:  # a test may fail in any way
        why = re.sub(r"\s+", " ", f"{type(failure).__name__}: {failure}")[:400]
        with _printing:
            traceback.print_exc()
        _say(f"FAIL {name}: {why}")
        return False
    return _say(f"ok {name}")


def _say(line):
    with _printing:
        # In one write: between two there may be a line of a client's log.
        print(f"{line}\n", end="", flush=True)
    return True
