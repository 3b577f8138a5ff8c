"""The folder of rejected rows: files in the format of the table, with each row's place and the reason of its rejection.

Once they are corrected, the same command reads them.

A task writes its file into a folder of the job inside (`_job-…`, which readers of Parquet ignore). Only the commit on
the driver moves the files of the committed attempts, so that a task that ran twice has one file.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from delayq.base.errors import ConfigError, DelayqError
from delayq.spark.rows.origin import DETAIL, FILE, LINE, OWN, REASON, ROW, Rejects, fields_of
from delayq.spark.writing.retrying import GivenUp

#: Stands for a line that is no JSON object: an object with its text.
TEXT: Final = "reject_text"
_PARQUET: Final = Rejects()
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RejectsFolder:
    """The folder `where` (a path, or a URI that pyarrow opens), for the job `job`. Made on the driver; pickled."""

    def __init__(self, where: str, job: str, rejects: Rejects = _PARQUET) -> None:
        self.where = where
        self.job = job
        self.rejects = rejects

    def _open(self) -> tuple[Any, str]:
        try:
            if "://" in self.where:
                found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(self.where)
                return found
            return pyarrow.fs.LocalFileSystem(), str(Path(self.where).expanduser().absolute())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(f"option rejects: cannot open {self.where}: {error}") from None

    def _mine(self, path: str) -> str:
        return f"{path}/_job-{self.job}"

    def make(self) -> None:
        """Create it, on the driver, before any task. Raises ConfigError."""
        system, path = self._open()
        try:
            system.create_dir(self._mine(path), recursive=True)
        except OSError as error:
            raise ConfigError(f"option rejects: the driver cannot write to {self.where}: {error}") from None

    def begin(self, name: str) -> RejectsFile:
        """Return the file of one task. Raises GivenUp if this is not the folder that the driver sees."""
        system, path = self._open()
        mine = self._mine(path)
        if isinstance(system, pyarrow.fs.LocalFileSystem) and not Path(mine).is_dir():
            raise GivenUp(
                f"option rejects: {self.where} on {socket.gethostname()} is not the folder that the driver sees; give one "
                "on a file system that all of them share"
            )
        try:
            return RejectsFile(system.open_output_stream(f"{mine}/{name}"), name, self.rejects)
        except OSError as error:
            raise GivenUp(f"option rejects: cannot write to {self.where}: {error}") from None

    def publish(self, names: dict[str, str], instead_of: str = "") -> None:
        """Rename the files of the job (by their names there) into the folder.

        Files that begin with `instead_of` are removed first: an earlier try of the same commit has left them.
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
        """Remove the job's own folder, with the files of attempts that were not committed."""
        system, path = self._open()
        mine = self._mine(path)
        if system.get_file_info(mine).type != pyarrow.fs.FileType.NotFound:
            system.delete_dir(mine)


class RejectsFile:
    """The rejected rows of one task, as they were read."""

    def __init__(self, stream: Any, name: str, rejects: Rejects) -> None:
        self.name = name
        self._stream = stream
        self._rejects = rejects
        self._parquet: Any = None
        self._has_head = False

    def add(self, batch: pa.RecordBatch, rows: Sequence[int], reasons: Sequence[str], details: Sequence[str]) -> None:
        """Add rows of a batch, by their places."""
        taken = batch.take(pa.array(rows, pa.int64()))
        why = {name: taken.column(name) for name in (FILE, LINE) if name in taken.schema.names}
        why |= {REASON: pa.array(reasons, pa.string()), DETAIL: pa.array(details, pa.string())}
        if self._rejects.format == "json":
            self._stream.write(_json_lines(taken.column(ROW).to_pylist(), pa.table(why).to_pylist()))
            return
        read = _as_read(taken)
        table = pa.table([*read.columns, *why.values()], [*read.schema.names, *why])
        if self._rejects.format == "csv":
            self._write_csv(table)
            return
        if self._parquet is None:
            self._parquet = pyarrow.parquet.ParquetWriter(self._stream, table.schema)
        self._parquet.write_table(table)

    def _write_csv(self, table: pa.Table) -> None:
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        lines = [*([] if self._has_head else [table.schema.names]), *rows]
        self._has_head = True
        separator, escape = self._rejects.separator, self._rejects.escape
        text = "".join(separator.join(_csv_cell(cell, separator, escape) for cell in line) + "\n" for line in lines)
        self._stream.write(text.encode())

    def close(self) -> None:
        """Finish the file."""
        if self._parquet is not None:
            self._parquet.close()
        self._stream.close()


def _as_read(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with all columns of the table; if these were not carried, with those of the fields."""
    if ROW not in rows.schema.names:
        return fields_of(rows)
    row = rows.column(ROW)
    return pa.RecordBatch.from_arrays(row.flatten(), [field.name for field in row.type])


def _csv_cell(cell: Any, separator: str, escape: str) -> str:
    """Return a value in the format that readers of CSV read back, with the same separator and escape."""
    if cell is None:
        return ""
    text = str(cell)
    if text and not any(one in text for one in (separator, escape, '"', "\n", "\r")):
        return text
    if escape != '"':
        text = text.replace(escape, escape * 2)
    return '"' + text.replace('"', f'{escape}"') + '"'


def _json_lines(rows: Sequence[bytes], why: Sequence[dict[str, Any]]) -> bytes:
    """Return a line for each row: its object as it was read, or the text of an invalid line."""
    lines = []
    for text, reason in zip(rows, why, strict=True):
        try:
            found = _OBJECT.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            found = {TEXT: msgspec.Raw(msgspec.json.encode(text.decode(errors="replace")))}
        own = {name: value for name, value in found.items() if name.lower() not in OWN}
        lines.append(msgspec.json.encode(own | reason))
    return b"".join(line + b"\n" for line in lines)
