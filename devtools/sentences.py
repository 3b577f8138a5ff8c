"""The events of the services' logs (docs/observability.md) as sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["SENTENCES", "sentence"]

#: By event, with its fields in braces. The part of delayq that says it is the subject; where the event has a queue or a
#: route, that stands before the sentence.
SENTENCES: Final[Mapping[str, str]] = {
    "access_refused": "refused {path} to {address}: the key {key} is wrong or revoked",
    "alarm": "alarm: {text}",
    "alarm_over": "no alarm any more: {text}",
    "api_started": "listens on {address}",
    "api_stopped": "has stopped",
    "api_stopping": "finishes the requests that are under way",
    "appended_spans_failed": "could not make the spans of what was appended",
    "audit": "{actor} ({address}) did {action} to {count} messages: {reason}",
    "changed_failed": "could not take notice of a change of the assignment",
    "circuit_closed": "the circuit closed: the target takes messages again",
    "circuit_open": "the circuit opened, only probes are sent: {reason}",
    "clock_skew": "this clock differs from that of Redis by {behind_redis_ms} ms",
    "clock_skew_over": "this clock agrees with that of Redis again",
    "close_failed": "the target did not close",
    "coordinator_trouble": "ZooKeeper could not be asked: {error}",
    "epochs_refused": "{hint}",
    "fenced": "another worker owns it now",
    "follow_time_failed": "an unexpected error in the subscription that tells of time that is moved; it is made again",
    "hand_over_failed": "the thread of the server where queue {queue} lies by now did not start; the old one keeps it",
    "kafka_poll_failed": "could not read what Kafka reports",
    "keys_look_failed": "could not look at the file of API keys",
    "keys_not_taken": "does not take the file of API keys, the {keys} of before stay in force: {reason}",
    "keys_taken": "{keys} API keys are in force",
    "layout_dropped": "{queues} old queues from number {first} on are empty, and gone",
    "layouts": "the number of queues is {queues} now",
    "let_go": "gives back queues {queues}: {reason}",
    "limits_failed": "permits of limits cannot be asked for; it tries again",
    "look_failed": "could not look at ZooKeeper",
    "name_taken": "{hint}",
    "not_ready": "is not ready: {reason}",
    "owner": "owns queues {queues}",
    "policies": "version {version} of the policies is read; paused: {paused}",
    "pull_job_died": "its pull job ended by itself; the queue is claimed anew",
    "pull_job_stuck": "its pull job has not moved for 30 s; the queue is claimed anew",
    "puller_failed": "{puller} met an unexpected error; it goes on",
    "pulls_fail": "every pull fails: {error}",
    "pulls_fail_over": "pulls work again",
    "pulse_failed": "could not look whether the process stood still",
    "redis_trouble": "trouble with Redis: {error}",
    "refusing_to_start": "refuses to start: {reason}",
    "release_failed": "could not be given back, its session does it: {error}",
    "release_later": "is given back later: {error}",
    "repaired": "{restored} messages got lost tickets back, {corrupt} records are corrupt",
    "request_failed": "{method} {path} failed with an unexpected error",
    "request_not_read": "a request was not read, by an error of the API; its connection was closed",
    "reset_failed": "an unexpected error in a reset of the pull job of queue {queue}",
    "rewriting": "asked Redis to rewrite its append-only file, which it could not write for a while",
    "round_failed": "an unexpected error in a round; the next one comes",
    "same_name": "another worker has the name {node}, too",
    "send_failed": "a send raised an exception, its outcome is unknown: {error}",
    "send_hung": "a send of {messages} messages took longer than its time-out, and was given up",
    "spans_failed": "could not make the spans of a send",
    "stood_still": "stood still for {ms} ms; what it held is pulled anew",
    "stream_refuses": "the stream of topic {topic} takes nothing, its messages are parked: {error}",
    "stream_takes": "the stream of topic {topic} takes messages again",
    "stuck_queue": "messages go out, and none was confirmed for {unconfirmed_for_ms} ms",
    "stuck_queue_over": "messages are confirmed again",
    "tick_failed": "an unexpected error in the pull job; it goes on",
    "waiting_for_coordinator": "waits for ZooKeeper or Redis: {error}",
    "waiting_for_own_name": "waits until ZooKeeper forgets the former session of {node}",
    "waiting_for_redis": "waits for Redis: {error}",
    "wakes_failed": "an unexpected error in the subscription that tells of new messages; it is made again",
    "wakes_lost": "lost the subscription that tells of new messages; it is made again: {error}",
    "went_back": "{text}",
    "worker_started": "runs as node {node}",
    "worker_stopped": "has stopped",
    "zookeeper": "the session with ZooKeeper: {state}",
    "zookeeper_away": "ZooKeeper could not be asked: {error}",
    "zookeeper_client_replaced": "a second ZooKeeper client got in where the first did not, and takes its place",
    "zookeeper_refused": "ZooKeeper does not let this worker in: {error}",
}


def sentence(event: str, fields: Mapping[str, object]) -> str:
    """An event in words; one that is not known, or lacks a field, by its name and fields."""
    words = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in fields.items()}
    try:
        said = SENTENCES[event].format_map(words)
    except KeyError:
        return "  ".join([event, *(f"{name}={value}" for name, value in words.items())])
    about = [f"{name} {words[name]}: " for name in ("queue", "route") if name in words]
    return "".join([*about, said])
