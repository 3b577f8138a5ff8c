"""The log events of the services (docs/observability.md) as sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The sentence of each event, with its fields in braces.
#: The subject is the part of delayq that logs the event. If the event has a queue
#: or a route, that precedes the sentence.
SENTENCES: Final[Mapping[str, str]] = {
    "access_refused": "refused {path} to {address}: the API key {key} is wrong or revoked",
    "alarm": "alarm: {text}",
    "alarm_over": "alarm ended: {text}",
    "api_started": "listens on {address}",
    "api_stopped": "has stopped",
    "api_stopping": "finishes the current requests",
    "appended_spans_failed": "cannot make the spans of appended messages",
    "arrivals_lost": "cannot wait for messages at Redis, and tries again: {error}",
    "audit": "{actor} ({address}): {action} of {count} messages, reason: {reason}",
    "changed_failed": "cannot handle a change of the assignment",
    "circuit_closed": "the circuit closed: the target accepts messages again",
    "circuit_open": "the circuit opened, only probes are sent: {reason}",
    "clock_skew": "the local clock differs from the clock of Redis by {behind_redis_ms} ms",
    "clock_skew_over": "the local clock agrees with the clock of Redis again",
    "close_failed": "cannot close the target",
    "coordinator_trouble": "cannot reach ZooKeeper: {error}",
    "epochs_refused": "{hint}",
    "fenced": "another worker owns the queue now",
    "hand_over_failed": "cannot start the thread for the new server of queue {queue}; the old thread keeps the queue",
    "kafka_poll_failed": "cannot read the reports of Kafka",
    "keys_look_failed": "cannot check the file of API keys",
    "keys_not_taken": "rejects the file of API keys and keeps the {keys} earlier keys: {reason}",
    "keys_taken": "{keys} API keys are valid",
    "layout_dropped": "dropped {queues} empty old queues from number {first} on",
    "layouts": "the number of queues is now {queues}",
    "let_go": "returns queues {queues}: {reason}",
    "limits_failed": "cannot take permits for limits; retrying",
    "look_failed": "cannot read ZooKeeper",
    "name_taken": "{hint}",
    "not_ready": "is not ready: {reason}",
    "owner": "owns queues {queues}",
    "policies": "read version {version} of the policies; paused: {paused}",
    "pull_job_died": "the pull job ended unexpectedly; the queue is claimed again",
    "pull_job_stuck": "the pull job has not moved for 30 s; the queue is claimed again",
    "puller_failed": "{puller} had an unexpected error and continues",
    "pulls_fail": "every pull fails: {error}",
    "pulls_fail_over": "pulls succeed again",
    "pulse_failed": "cannot check whether the process has stalled",
    "redis_trouble": "Redis error: {error}",
    "refusing_to_start": "refuses to start: {reason}",
    "release_failed": "cannot return the queue; the end of the session returns it: {error}",
    "release_later": "returns the queue later: {error}",
    "repaired": "restored the lost tickets of {restored} messages; {corrupt} records are corrupt",
    "request_failed": "{method} {path} failed with an unexpected error",
    "request_not_read": "an error of the API prevented reading a request; its connection was closed",
    "reset_failed": "unexpected error in a reset of the pull job of queue {queue}",
    "rewriting": "asked Redis to rewrite its append-only file after failed writes",
    "round_failed": "unexpected error in a round; the next round follows",
    "same_name": "another worker has the same name {node}",
    "send_failed": "a send raised an exception, so its outcome is unknown: {error}",
    "send_hung": "a send of {messages} messages exceeded its timeout and was abandoned",
    "spans_failed": "cannot make the spans of a send",
    "stood_still": "stalled for {ms} ms; messages in flight are pulled again",
    "stream_refuses": "the stream of topic {topic} refuses messages, so they are parked: {error}",
    "stream_takes": "the stream of topic {topic} accepts messages again",
    "stuck_queue": "messages are sent, but none was confirmed for {unconfirmed_for_ms} ms",
    "stuck_queue_over": "messages are confirmed again",
    "tick_failed": "unexpected error in the pull job; it continues",
    "waiting_for_coordinator": "waits for ZooKeeper or Redis: {error}",
    "waiting_for_own_name": "waits until ZooKeeper forgets the earlier session of {node}",
    "waiting_for_redis": "waits for Redis: {error}",
    "wakes_failed": "unexpected error in the subscription to new messages; it reconnects",
    "wakes_lost": "lost the subscription to new messages; it reconnects: {error}",
    "went_back": "{text}",
    "worker_started": "runs as node {node}",
    "worker_stopped": "has stopped",
    "zookeeper": "ZooKeeper session: {state}",
    "zookeeper_away": "cannot reach ZooKeeper: {error}",
    "zookeeper_client_replaced": "a second ZooKeeper client connected where the first did not, and replaces it",
    "zookeeper_refused": "ZooKeeper rejects this worker: {error}",
}


def sentence(event: str, fields: Mapping[str, object]) -> str:
    """Return an event as a sentence. An unknown event, or one without a field, is returned as name and fields."""
    words = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in fields.items()}
    try:
        said = SENTENCES[event].format_map(words)
    except KeyError:
        return "  ".join([event, *(f"{name}={value}" for name, value in words.items())])
    about = [f"{name} {words[name]}: " for name in ("queue", "route") if name in words]
    return "".join([*about, said])
