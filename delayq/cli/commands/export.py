"""The command export."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.base.clock import SystemClock
from delayq.base.terminal import Output
from delayq.cli import tables
from delayq.cli.options import AsJson, RedisUrl, moment, option, settings_of


def export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="New folder for Parquet files.")],
    dead: Annotated[bool, option("--dead", help="Export dead letters, not pending messages.")] = False,
    topic: Annotated[str, option("--topic", metavar="TOPIC", help="Only messages of this topic.")] = "",
    due_from: Annotated[str, option("--due-from", metavar="TIME", help="Earliest due time.")] = "",
    due_to: Annotated[str, option("--due-to", metavar="TIME", help="Latest due time, exclusive.")] = "",
    queues: Annotated[str, option("--queues", metavar="N,N-M", help="Only these queues.")] = "",
    master: tables.Master = "",
    conf: tables.Conf = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Write pending messages or dead letters to Parquet.

    delayq backfill FOLDER schedules all of them again.
    """
    from delayq.spark.session import need_spark, session

    need_spark("delayq export")
    from delayq.spark.jobs.export import save
    from delayq.spark.options import ReadOptions
    from delayq.spark.steps import step

    settings = settings_of(redis_url)
    given = {
        "redisUrl": settings.redis_url, "namespace": settings.namespace, "topic": topic, "queues": queues,
        "dueFrom": _ms("--due-from", due_from),
        "dueTo": _ms("--due-to", due_to),
        "dead": "true" if dead else "",
    }  # fmt: skip
    options = {name: text for name, text in given.items() if text}
    ReadOptions.parse(options)
    with session("delayq export", master=master, conf=tables.conf_of(conf)) as spark, step(spark, "exporting"):
        count = save(spark, options, folder)
    answer = {"exported": count, "folder": folder}
    Output().answer(json, answer, answer.items())
    return 0


def _ms(option: str, text: str) -> str:
    found = moment(option, text or None, SystemClock().now(), ahead=True)
    return "" if found is None else str(found)
