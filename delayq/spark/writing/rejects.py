"""The folder of rejected rows: Parquet files with why each was rejected.

A task writes its file into a folder of the job's own inside (`_job-…`, which readers of Parquet pass over). Only the
commit on the driver moves the files of those attempts that count, so that a task which ran twice is there once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from delayq.errors import ConfigError, DelayqError
from delayq.spark.writing.retrying import GivenUp

__all__ = ["DETAIL", "REASON", "RejectsFile", "RejectsFolder"]

#: The columns that are put behind those of the row.
REASON: Final = "reject_reason"
DETAIL: Final = "reject_detail"


class RejectsFolder:
    """The folder `where` (a path, or a URI that pyarrow opens), for the job `job`. Made on the driver; pickled."""

    def __init__(self, where: str, job: str) -> None:
        self.where = where
        self.job = job

    def _open(self) -> tuple[Any, str]:
        try:
            if "://" in self.where:
                found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(self.where)
                return found
            return pyarrow.fs.LocalFileSystem(), str(Path(self.where).expanduser().absolute())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(f"option rejects: {self.where} cannot be opened: {error}") from None

    def _mine(self, path: str) -> str:
        return f"{path}/_job-{self.job}"

    def make(self) -> None:
        """Make it, on the driver, before any task; raises ConfigError."""
        system, path = self._open()
        try:
            system.create_dir(self._mine(path), recursive=True)
        except OSError as error:
            raise ConfigError(f"option rejects: the driver cannot write to {self.where}: {error}") from None

    def begin(self, name: str, schema: pa.Schema) -> RejectsFile:
        """The file of one task; raises GivenUp if this is not the folder that the driver sees."""
        system, path = self._open()
        mine = self._mine(path)
        if isinstance(system, pyarrow.fs.LocalFileSystem) and not Path(mine).is_dir():
            raise GivenUp(
                f"option rejects: {self.where} on {socket.gethostname()} is not the folder that the driver sees; give one "
                "on a file system that all of them share"
            )
        try:
            return RejectsFile(system.open_output_stream(f"{mine}/{name}"), schema, name)
        except OSError as error:
            raise GivenUp(f"option rejects: {self.where} cannot be written to: {error}") from None

    def publish(self, names: dict[str, str], instead_of: str = "") -> None:
        """Give the files of the job (by their names there) their names in the folder.

        Those that begin with `instead_of` make room first: what an earlier try of the same commit has left.
        """
        system, path = self._open()
        for there in names:
            source = f"{self._mine(path)}/{there}"
            if system.get_file_info(source).type == pyarrow.fs.FileType.NotFound:
                raise DelayqError(
                    f"option rejects: the driver does not see {source}, which a task wrote; the folder has to be one that "
                    "all executors and the driver share. The good rows are scheduled"
                )
        if instead_of:
            for found in system.get_file_info(pyarrow.fs.FileSelector(path)):
                if found.base_name.startswith(instead_of):
                    system.delete_file(found.path)
        for there, name in names.items():
            system.move(f"{self._mine(path)}/{there}", f"{path}/{name}")
        self.clear()

    def clear(self) -> None:
        """Take the job's own folder away, with what attempts that do not count have left."""
        system, path = self._open()
        mine = self._mine(path)
        if system.get_file_info(mine).type != pyarrow.fs.FileType.NotFound:
            system.delete_dir(mine)


class RejectsFile:
    """The rejected rows of one task."""

    def __init__(self, stream: Any, schema: pa.Schema, name: str) -> None:
        self.name = name
        self._stream = stream
        self._schema = schema.append(pa.field(REASON, pa.string())).append(pa.field(DETAIL, pa.string()))
        self._writer: Any = pyarrow.parquet.ParquetWriter(stream, self._schema)

    def add(self, batch: pa.RecordBatch, rows: Iterable[int], reasons: list[str], details: list[str]) -> None:
        """Add rows of a batch, by their places."""
        taken = batch.take(pa.array(rows, pa.int64()))
        columns = [*taken.columns, pa.array(reasons, pa.string()), pa.array(details, pa.string())]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
        self._stream.close()
