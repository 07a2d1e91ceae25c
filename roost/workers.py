"""Work that takes long, done in separate processes: few at once, fairly shared, and ended when it is not wanted.

A worker is a Python process that reads a function and its arguments from standard input and writes the result to
standard output. It runs with low priority and bounded memory, and ends with the process that started it.
"""

import asyncio
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, ParamSpec, TypeVar

from roost.errors import Unavailable
from roost.turns import FairTurns

P = ParamSpec("P")
T = TypeVar("T")

_SECONDS = 15.0
"""How long a question may wait and be worked on, together."""
_START_SECONDS = 60.0
"""How long a new process may take to start, on top of that: on a busy machine, importing takes longer than the work."""
_MOST_BYTES = 4 << 30
_NICE = 15


class WorkerPool:
    """Processes that answer questions, for the owners that ask; started when they are needed."""

    def __init__(self, *, processes: int, each: int) -> None:
        self._turns = FairTurns(at_once=processes, each=each, waiting=8 * processes)
        self._threads = ThreadPoolExecutor(processes, "workers")
        self._idle: list[_Worker] = []

    async def run(self, owner: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the function returns, which must be importable, as its arguments must be picklable. A caller that is
        cancelled ends the work. Raises `TooManyRequests` or `Unavailable` where it is too much."""
        try:
            async with asyncio.timeout(_SECONDS) as limit, self._turns.turn(owner):
                worker = self._idle.pop() if self._idle else await self._started(function, limit)
                failed, result = await self._ask(worker, (function, arguments, named))
                self._idle.append(worker)
        except TimeoutError:
            raise Unavailable("This takes too long to work out now; ask for less, or try again later.") from None
        if failed:
            raise result
        answer: T = result
        return answer

    async def _started(self, function: Callable[..., Any], limit: asyncio.Timeout) -> "_Worker":
        """A new process that has imported what the function needs. What this takes is not taken from the question."""
        deadline, began = limit.when() or 0.0, asyncio.get_running_loop().time()
        limit.reschedule(deadline + _START_SECONDS)
        worker = _Worker()
        await self._ask(worker, (_prepare, (function.__module__,), {}))
        limit.reschedule(deadline + asyncio.get_running_loop().time() - began)
        return worker

    async def _ask(self, worker: "_Worker", question: Any) -> tuple[bool, Any]:
        """Whether it failed, and its result; a process that does not answer is ended."""
        loop = asyncio.get_running_loop()
        try:
            answer: tuple[bool, Any] = await loop.run_in_executor(self._threads, worker.ask, question)
        except BaseException as error:
            worker.end()
            if isinstance(error, EOFError | BrokenPipeError):
                raise Unavailable("This takes more than there is to work it out; ask for less.") from None
            raise
        return answer


class _Worker:
    """One process, and the two pipes to it."""

    _process: subprocess.Popen[bytes] | None = None
    _ended = False

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(self, question: Any) -> Any:
        """Send a question and wait for the answer. Raises EOFError or BrokenPipeError if the process has ended."""
        process = self._process = self._process or self._start()
        if self._ended:
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(question, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            return pickle.load(process.stdout)  # noqa: S301 - of our own process
        except BaseException:
            process.kill()
            process.wait()  # here, where nothing else waits: a large process takes a while to end
            raise

    def end(self) -> None:
        """End the process, whatever it does; a caller that waits for its answer gets an error."""
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def __del__(self) -> None:
        self.end()


def _prepare(module: str) -> None:
    """Import what is about to be needed."""
    importlib.import_module(module)


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            function, arguments, named = pickle.load(questions)  # noqa: S301 - of the process that started this one
        except EOFError:
            return
        try:
            answer = (False, function(*arguments, **named))
        except Exception as error:
            answer = (True, error)
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _limit() -> None:
    """Give way to requests, take so much memory and no more, and end with the process that started this one."""
    import ctypes
    import resource
    import signal

    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    _limit()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else writes to standard output must not get between the answers
    _serve(sys.stdin.buffer, answers)
