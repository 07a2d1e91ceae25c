"""The data of images: one file each, in the folder that all API processes share.

Data is written under a temporary name and gets the image's name in the transaction that makes the image active. So a
file that a crash left behind belongs to no image, and the sweep removes it.
"""

import asyncio
import hashlib
import os
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from roost.config import Settings
from roost.errors import Invalid, TooLarge, Unavailable

_FORGOTTEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class ReceivedData:
    """Data that was uploaded, under its temporary name."""

    path: Path
    size: int
    checksum: str
    """MD5, as Glance has it."""
    sha512: str


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The folder of images; None where none is configured."""

    folder: Path | None

    @classmethod
    def of(cls, settings: Settings) -> "ImageFiles":
        """The folder that the settings name."""
        return cls(Path(settings.images.folder) if settings.images.folder else None)

    async def receive(self, pieces: AsyncGenerator[bytes], most: int) -> ReceivedData:
        """Store what is uploaded, at most `most` bytes."""
        if self.folder is None:
            raise Invalid("This Roost keeps no image data: its operator has not set [images] folder.")
        path = self.folder / f"{uuid.uuid4()}.part"
        size, md5, sha512 = 0, hashlib.md5(usedforsecurity=False), hashlib.sha512()
        try:
            with await asyncio.to_thread(_open, path) as file:

                def write(piece: bytes) -> None:
                    file.write(piece)
                    md5.update(piece)
                    sha512.update(piece)

                async with aclosing(pieces):
                    async for piece in pieces:
                        size += len(piece)
                        if size > most:
                            raise TooLarge(f"The data is larger than the {most} bytes that are left for it.")
                        await asyncio.to_thread(write, piece)
                await asyncio.to_thread(_flush, file)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise Unavailable(f"The data cannot be kept: {error.strerror}.") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return ReceivedData(path, size, md5.hexdigest(), sha512.hexdigest())

    def keep(self, received: ReceivedData, image_id: str) -> None:
        """Rename uploaded data to the name of its image."""
        received.path.replace(received.path.with_name(image_id))

    def find(self, image_id: str) -> Path | None:
        """The file of an image, if it is here."""
        path = None if self.folder is None else self.folder / image_id
        return path if path is not None and path.is_file() else None

    def remove(self, image_id: str) -> None:
        """Remove the data of an image, if there is any."""
        if self.folder is not None:
            (self.folder / image_id).unlink(missing_ok=True)

    def sweep(self, known: set[str]) -> int:
        """Remove files that belong to no image and have not been written to for a day; returns how many."""
        if self.folder is None or not self.folder.is_dir():
            return 0
        old = time.time() - _FORGOTTEN_SECONDS
        forgotten = [path for path in self.folder.iterdir() if path.name not in known and path.stat().st_mtime < old]
        for path in forgotten:
            path.unlink(missing_ok=True)
        return len(forgotten)


def _open(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.open("xb")


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
