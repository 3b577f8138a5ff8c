"""A soak as a picture: what each process held, with a line for each fault."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from reliability.soak.report import Report

PLOT = "soak.png"
_TITLES = {
    "rss": "resident memory, MiB",
    "pss": "proportional memory, MiB",
    "fds": "file descriptors",
    "threads": "threads",
}


def draw(report: Report, folder: Path) -> None:
    """Write it."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(len(_TITLES), 1, figsize=(10, 12), sharex=True)
    for place, (measure, title) in zip(places, _TITLES.items(), strict=True):
        for name in dict.fromkeys(one.name for one in report.samples):
            of = [one for one in report.samples if one.name == name]
            place.plot([one.at for one in of], [getattr(one, measure) for one in of], label=name, linewidth=1)
        for fault in report.options["aimed"]:
            place.axvline(fault["at"], color="0.8", linewidth=1, zorder=0)
        place.set_title(title, fontsize=10)
        place.set_ylim(bottom=0)
    places[0].legend(fontsize=8, ncols=5)
    places[-1].set_xlabel("s; a grey line is a fault")
    figure.tight_layout()
    figure.savefig(folder / PLOT, dpi=100)
    pyplot.close(figure)
