"""Has the append-only file rewritten once Redis could not write it for a while: the old one may not be loaded again."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from delayq.errors import StoreError, StoreUnavailable
from delayq.store import commands
from delayq.store.checks import Disk
from delayq.store.connect.store import Store

__all__ = ["Rewriting"]

log = structlog.get_logger()


class Rewriting:
    """`look` is called by the watch, with what was just asked.

    Only a rewrite that began when all was well again is good, and only if nothing has failed since: what had gone wrong
    is noted before one is asked for, and written down for all when it has succeeded, whoever asked for it.
    """

    def __init__(self, store: Store) -> None:
        self.refused = ""  # why Redis does not let this worker ask
        self._store = store
        self._noted: dict[str, Disk] = {}  # by run id

    def look(self, disks: Sequence[Disk]) -> bool:
        """Ask for rewrites if they are needed; whether it is not over yet. Raises StoreUnavailable."""
        suspect = [disk for disk in disks if disk.suspect and not disk.failing]
        self._noted = {disk.run_id: self._noted[disk.run_id] for disk in suspect if disk.run_id in self._noted}
        if not suspect:
            self.refused = ""
        for disk in suspect:
            noted = self._noted.get(disk.run_id)
            if disk.rewriting:
                continue
            if noted is not None and disk.errors == noted.errors and disk.rewrites > noted.rewrites and disk.rewritten:
                self._write_down(disk, disks)
            else:
                self._noted[disk.run_id] = disk
                self._ask()
        return any(disk.suspect or disk.failing for disk in disks)

    def _ask(self) -> None:
        try:
            self._store.run(commands.rewrite())
            self.refused = ""
            log.warning("rewriting")
        except StoreUnavailable:
            raise
        except StoreError as error:  # it may not, or another worker was quicker: the next look tells
            self.refused = "" if "in progress" in str(error) else str(error)

    def _write_down(self, disk: Disk, disks: Sequence[Disk]) -> None:
        known = self._store.run(commands.rewritten())
        gone = [run_id for run_id in known if run_id not in [one.run_id for one in disks]]
        self._store.run_all(commands.tell_rewritten(disk.run_id, disk.errors, gone))
