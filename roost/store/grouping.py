"""Calls that arrive while others are being answered are answered together by the next round.

Under load a round has many calls and costs little more than one; a single call does not wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Grouped(Generic[Item, Answer]):
    """A function of many items that is called with one. An answer that is an exception is raised to its caller."""

    def __init__(
        self,
        answer: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        most: int = 200,
        *,
        writes: bool = True,
    ) -> None:
        """A caller that is cancelled still waits for a round that `writes`: what is written, its caller has to know of.
        A round that only reads is left, and ends when nobody waits for it any more."""
        self._answer = answer
        self._most = most
        self._writes = writes
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._asked: list[asyncio.Future[Answer]] = []
        self._asking: asyncio.Future[Sequence[Answer | Exception]] | None = None
        self._rounds: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """The answer for one item."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._serve())
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._writes:
                await asyncio.wait([future])
            else:
                self._leave(future)
            if future.done() and not future.cancelled():
                future.exception()  # no caller will look at it
            raise

    def _leave(self, future: "asyncio.Future[Answer]") -> None:
        future.cancel()
        if self._asking is not None and all(each.done() for each in self._asked):
            self._asking.cancel()

    async def _serve(self) -> None:
        try:
            await asyncio.sleep(0)  # let tasks that are about to call do so
            while self._waiting:
                together, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._round(together)
        finally:
            self._rounds = None
            for _, future in self._waiting:
                future.cancel()
            self._waiting = []

    async def _round(self, together: Sequence[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        """A round that fails as a whole is tried one by one: one item cannot fail the others."""
        together = [(item, future) for item, future in together if not future.done()]
        if not together:
            return
        try:
            answers = await self._ask(together)
        except Exception as error:
            if len(together) > 1:
                for one in together:
                    await self._round([one])
            elif not together[0][1].done():
                together[0][1].set_exception(error)
            return
        except BaseException:
            task = asyncio.current_task()
            if task is not None and not task.cancelling() and all(future.done() for _, future in together):
                return  # nobody waits for it any more
            for _, future in together:
                future.cancel()
            raise
        for (_, future), answer in zip(together, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _ask(self, together: Sequence[tuple[Item, "asyncio.Future[Answer]"]]) -> Sequence[Answer | Exception]:
        self._asked = [future for _, future in together]
        asking = self._asking = asyncio.ensure_future(self._answer([item for item, _ in together]))
        return await asking
