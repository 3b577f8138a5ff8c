from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from delayq.base.errors import ConfigError, DelayqError
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.rejects import RejectsFolder
from delayq.spark.writing.retrying import GivenUp
from delayq.spark.writing.task import windows


def batch(rows: int, size: int = 10) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": ["x" * size] * rows})


def test_small_batches_are_joined_and_large_ones_cut() -> None:
    sizes = [piece.num_rows for piece in windows([batch(3), batch(0), batch(4), batch(25), batch(1)], rows=10)]
    assert sum(sizes) == 33
    assert max(sizes) <= 19  # a piece that was not full, and one that was cut
    assert len(sizes) <= 4
    assert list(windows([])) == []


def test_a_window_is_bounded_in_bytes_however_large_the_rows() -> None:
    sizes = [piece.num_rows for piece in windows([batch(10, size=1_000_000)], rows=1_000, size=2_000_000)]
    assert sum(sizes) == 10
    assert max(sizes) <= 2
    assert [piece.num_rows for piece in windows([batch(2, size=5_000)], rows=1_000, size=100)] == [1, 1]


def test_totals_are_the_sum_of_what_was_committed() -> None:
    first = Counts(read=5, scheduled=3, present=1, rejected={"past": 1}, examples=["a"])
    second = Counts(read=4, skipped=2, rejected={"past": 1, "id": 1}, examples=["b", "c", "d"])
    total = Counts.total([first, second])
    assert total == Counts(
        read=9, scheduled=3, present=1, skipped=2, rejected={"past": 2, "id": 1}, examples=["a", "b", "c"]
    )
    assert total.sentence == "9 rows read: 3 scheduled, 1 already there, 2 past and skipped, 3 rejected (id 1, past 2)"


def write(folder: RejectsFolder, name: str, *reasons: str) -> str:
    rows = batch(len(reasons))
    file = folder.begin(name)
    file.add(rows, range(len(reasons)), list(reasons), list(reasons))
    file.close()
    return file.name


def reasons(path: Path) -> list[str]:
    found: list[str] = pyarrow.parquet.read_table(path)["reject_reason"].to_pylist()
    return found


def test_only_the_attempts_that_count_are_in_the_folder(tmp_path: Path) -> None:
    folder = RejectsFolder(str(tmp_path / "a" / "b"), "job")
    folder.make()
    write(folder, "part-0-1", "failed attempt")
    good = write(folder, "part-0-2", "past", "conflict")
    folder.publish({good: "part-0.parquet"})
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["part-0.parquet"]
    assert reasons(tmp_path / "a" / "b") == ["past", "conflict"]


def test_a_repeated_commit_takes_the_place_of_what_it_has_left(tmp_path: Path) -> None:
    for job in ("one", "two"):
        folder = RejectsFolder(f"file://{tmp_path}", job)
        folder.make()
        folder.publish({write(folder, "x", "past"): f"batch-7-{job}.parquet"}, instead_of="batch-7-")
    assert reasons(tmp_path) == ["past"]


def test_a_folder_that_is_not_shared_is_told_of_where_it_lacks(tmp_path: Path) -> None:
    folder = RejectsFolder(str(tmp_path), "job")
    with pytest.raises(GivenUp, match="is not the folder that the driver sees"):
        folder.begin("part")
    with pytest.raises(DelayqError, match="the driver does not see"):
        folder.publish({"part": "x"})
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="the driver cannot write to"):
        RejectsFolder(str(tmp_path / "file"), "job").make()
