"""Faults of the thread that pulls. Before the suite was reduced its tests planted them by themselves."""

from __future__ import annotations

from typing import Final

FILE: Final = "workers/queue/puller.py"
TESTS: Final = ("tests/workers/test_puller.py",)

#: A name, what stands there, and what stands there instead.
RULES: Final = (
    ("a job is handed another's answers", "            start += count\n", ""),
    ("a job is handed the answers of all", "answers[start : start + count]", "answers[start:]"),
    ("a backlog takes all slots", "elif len(taking) < SLICES:", "elif True:"),
    ("backlogs do not take turns", "self._jobs.sort(key=taking.__contains__)", "pass"),
    (
        "a backlog comes before what is fresh",
        "for job, backlog in picked:",
        "for job, backlog in [(job, True) for job in taking] + list(picked):",
    ),
    ("what may wait goes alone", "if job.goes_along(now):", "if False:"),
    ("what may wait sets a packet off", "if packet or taking:", "if True:"),
    ("what presses waits for its turn", "if job.presses:", "if False:"),
    (
        "a wake is lost between picking and waiting",
        "if any(job.wants_to_look(now) for job in self._jobs):",
        "if False:",
    ),
    ("a stop leaves a packet under way", "return not self._stopping and len(", "return len("),
    ("a stop reports nothing more", "if not self._asked_last:", "if not self._stopping:"),
    ("it waits for the latest", "looks_at = min(", "looks_at = max("),
    (
        "a job that fails to ask stops the others",
        "except Exception:\n            _fail([job])\n        else:",
        "except ValueError:\n            _fail([job])\n        else:",
    ),
    (
        "a job that fails to take stops the others",
        "except Exception:\n                _fail([job])\n            start",
        "except ValueError:\n                _fail([job])\n            start",
    ),
    (
        "a job whose reset fails stops the others",
        'except Exception:\n            log.exception("reset_failed"',
        'except ValueError:\n            log.exception("reset_failed"',
    ),
    (
        "a packet that fails is forgotten",
        "            _fail(job for job, _ in asked)\n            return\n        st",
        "            return\n        st",
    ),
    (
        "a job that cannot be handed over is lost",
        "                else:\n                    self._remove(job)",
        "                self._remove(job)",
    ),
    ("a job that was handed over stays", "                else:\n                    self._remove(job)", ""),
    ("a job that has ended is asked again and again", "            if job.finished:", "            if False:"),
    ("a job is asked again before it gets its answers", "if job not in self._busy", "if True"),
    ("packets without bound", "len(self._under_way) < PACKETS", "True"),
    ("no packet beside another", "not (more and self._leaves_answers)", "True"),
)
