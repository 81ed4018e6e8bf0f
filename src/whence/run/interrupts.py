"""Ctrl-C on the command line before anything has begun, and after everything is done: the process ends at once, in one line.

While modules are imported a KeyboardInterrupt comes out wherever it likes: as a traceback, as another error, or not at all. So the
package imports this first of all, and if it is the program that runs (`whence …`, `python -m whence …`), and nobody has said
otherwise about the signal, Ctrl-C ends the process here. Whoever imports the package keeps Python's own way.
"""

# what `signal` is made of: that imports enum, which takes longer than everything here, and Ctrl-C must not come before
import _signal  # type: ignore[import-not-found]
import os
import sys

STATUS = 130  # what shells call a command that Ctrl-C ended
NAMES = ("whence", "-mwhence", "whence.exe", "whence-script.py", "whence-script.pyw")

_at_once: int | None = None  # the status with which the process ends at once; None while work is under way
_done = False


def is_program() -> bool:
    """Whether this process is the command line. Workers that it has started are given its arguments, but not by the system."""
    program = sys.orig_argv[-len(sys.argv) :][:1] if sys.argv else []
    return bool(program) and os.path.basename(program[0]) in NAMES


def set_up() -> None:
    """End at once on Ctrl-C from now on."""
    global _at_once
    if not is_program() or _signal.getsignal(_signal.SIGINT) is not _signal.default_int_handler:
        return
    try:
        _signal.signal(_signal.SIGINT, interrupt)
    except ValueError:  # not in the main thread
        return
    _at_once = STATUS


def begin() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt: work is under way, and may have to be put away."""
    global _at_once
    _at_once = None


def finish(status: int) -> None:
    """Everything is done and said: Ctrl-C only makes Python end sooner."""
    global _at_once, _done
    if _signal.getsignal(_signal.SIGINT) is interrupt:
        _at_once, _done = status, True


def interrupt(number: int, frame: object) -> None:
    if _at_once is None:
        raise KeyboardInterrupt
    if not _done:
        os.write(2, b"whence: interrupted\n")
    os._exit(_at_once)


try:
    set_up()
except KeyboardInterrupt:
    if is_program():
        _at_once = STATUS
        interrupt(_signal.SIGINT, None)
    raise
