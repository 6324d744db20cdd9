"""The guard: a small process between vecload and the worker, so that nothing survives vecload, not even a kill -9.

It is forked before anything heavy is imported and never runs the model, so no native code can keep it from noticing.
A thread in the worker could not end it while native code holds the interpreter's lock, and the kernel's parent-death
signal is tied to the *thread* that started the child, which may well end while vecload lives.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_POLL_MS = 500
_PR_SET_PDEATHSIG = 1


def divide(requests: int) -> None:
    """Forks. The child returns and becomes the worker; this process stays behind as its guard and never returns.

    `requests` is the descriptor of the pipe from vecload: hung up means that vecload is gone. The guard leads the
    process group (vecload starts it in a session of its own), which holds the worker and all that vLLM starts.
    """
    client, guard = os.getppid(), os.getpid()
    worker = os.fork()
    if worker == 0:
        _die_with(guard)
        return
    hangup = select.poll()
    hangup.register(requests, 0)  # no event asked for: a hang-up is always told, and pending data is left alone
    while True:
        # A process that vecload forked may hold the pipe open, hence the look at the parent as well.
        if hangup.poll(_POLL_MS) or os.getppid() != client:
            os.killpg(guard, signal.SIGKILL)
        pid, status = os.waitpid(worker, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _die_with(parent: int) -> None:
    """Has the kernel end this process with its parent; the guard has one thread, so here the signal is safe."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
