import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { json, readKafka, readRabbitMq, readRocketMq, readWebhook, SignatureError, text, verifyWebhook } from "../src/index.js";

const SECRET = `whsec_${Buffer.from("0123456789abcdef0123456789abcdef").toString("base64")}`;

function signed(body: string, seconds: number, id = "shop~42"): Record<string, string> {
  const key = Buffer.from(SECRET.slice(6), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64");
  return {
    "ce-id": "shop.42",
    "ce-type": "orders%20x",
    "ce-time": "2033-01-31T08:00:00.000Z",
    "ce-attempt": "2",
    "ce-keys": "a%20b",
    "delayq-properties": '{"color":"r\\u00f6t"}',
    "webhook-id": id,
    "webhook-timestamp": String(seconds),
    "webhook-signature": `v1,AAAA v1,${signature}`,
  };
}

test("a signed webhook is read; everything else is refused", () => {
  const now = 1_990_000_000_000;
  const headers = signed('{"order":42}', now / 1_000);
  const message = verifyWebhook(headers, '{"order":42}', ["whsec_AAAA", SECRET], { now });
  assert.deepEqual([message.id, message.topic, message.attempt, message.keys], ["shop.42", "orders x", 2, ["a", "b"]]);
  assert.deepEqual([message.dueMs, message.properties, json(message)], [Date.parse("2033-01-31T08:00:00Z"), { color: "röt" }, { order: 42 }]);
  const wrong: [Record<string, string>, string, number][] = [
    [headers, '{"order":43}', now],
    [headers, '{"order":42}', now + 301_000],
    [{ ...headers, "webhook-id": "shop~43" }, '{"order":42}', now],
    [{ ...headers, "webhook-timestamp": "x" }, '{"order":42}', now],
    [{}, "", now],
  ];
  for (const [given, body, at] of wrong) assert.throws(() => verifyWebhook(given, body, SECRET, { now: at }), SignatureError);
});

test("the signed id is the id, whatever another header says", () => {
  const headers = { ...signed("x", 100), "ce-id": "other" };
  assert.equal(verifyWebhook(new Headers(headers), "x", SECRET, { now: 100_000 }).id, "shop.42");
});

test("messages of each broker are read alike", () => {
  const expected = {
    id: "a", topic: "orders", dueMs: 1_990_000_000_000, attempt: 1, tags: "new", keys: ["k1", "k2"], orderingKey: "o", properties: { p: "1" },
    contentType: "",
  };
  const body = new TextEncoder().encode("hello");
  const utf8 = (value: string) => new TextEncoder().encode(value);
  const due = "1990000000000";
  const found = [
    readKafka("orders", { id: utf8("a"), due: utf8(due), attempt: "1", tags: "new", keys: "k1 k2", "ordering-key": "o", "p:p": "1" }, body),
    readRabbitMq(
      { messageId: "a", type: "orders", headers: { "delayq-due": Number(due), "delayq-attempt": 1, "delayq-tags": "new", "delayq-keys": "k1 k2", "delayq-ordering-key": "o", p: "1" } },
      body,
    ),
    readRocketMq({ topic: "orders", tag: "new", keys: ["k1", "k2"], messageGroup: "o", properties: { delayq_id: "a", delayq_due: due, delayq_attempt: "1", p: "1" }, body }),
    readWebhook({ "ce-id": "a", "ce-type": "orders", "ce-time": new Date(Number(due)).toISOString(), "ce-attempt": "1", "ce-tags": "new", "ce-keys": "k1%20k2", "ce-partitionkey": "o", "delayq-properties": '{"p":"1"}' }, body),
  ];
  for (const message of found) {
    const { body: _, ...rest } = message;
    assert.deepEqual(rest, expected);
    assert.equal(text(message), "hello");
  }
  assert.deepEqual(readRocketMq({ topic: "t", properties: { delayq_id: "a", delayq_due: due, delayq_empty: '["e"]' }, body }).properties, { e: "" });
  assert.throws(() => readKafka("t", {}, body), /delayq did not send/);
});
