import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";

import { DelayqClient, RefusedError, type ConsumeOptions, type Handler, type Leased } from "../src/index.js";
import { drops, problem, says, serverThat, type Answer } from "./server.js";

interface Call {
  verb: string;
  body: any;
}

/** A topic with messages, whose API answers each verb by `answers`, else as delayq does. */
class Topic {
  readonly calls: Call[] = [];
  readonly answers = new Map<string, Answer[]>();
  #ready: object[] = [];
  #waiting: { body: any; response: ServerResponse }[] = [];
  #heard: (() => void)[] = [];
  url = "";

  static async start(): Promise<Topic> {
    const topic = new Topic();
    topic.url = (await serverThat((request, response) => topic.#answer(request, response))).url;
    return topic;
  }

  deliver(...messages: object[]): void {
    const all = { topic: "t", dueTime: "2033-01-01T00:00:00.000Z", dueMs: 1, attempt: 1, deliveries: 1, handBacks: 0 };
    this.#ready.push(...messages.map((one: any) => ({ ...all, lease: `lease of ${one.id}`, ...one })));
    const waiting = this.#waiting.shift();
    if (waiting) this.#give(waiting.body, waiting.response);
  }

  /** The calls of a verb, after there are at least so many. */
  async seen(verb: string, count: number): Promise<Call[]> {
    for (;;) {
      const found = this.calls.filter((call) => call.verb === verb);
      if (found.length >= count) return found;
      await new Promise<void>((resolve) => this.#heard.push(resolve));
    }
  }

  idsOf(verb: string): string[] {
    return this.calls.filter((call) => call.verb === verb).flatMap(({ body }) => body.messages.map(({ id }: { id: string }) => id));
  }

  #answer: Answer = (request, response) => {
    const verb = request.path.split(":")[1] ?? "";
    this.calls.push({ verb, body: request.body });
    this.#heard.splice(0).forEach((heard) => heard());
    const answer = this.answers.get(verb)?.shift();
    if (answer) return answer(request, response);
    if (verb === "receive") return this.#give(request.body, response);
    const result = { ack: "acknowledged", handBack: "handedBack", extend: "extended" }[verb];
    says(200, { results: request.body.messages.map(({ id }: { id: string }) => ({ id, status: 200, result })) })(request, response);
  };

  #give(body: any, response: ServerResponse): void {
    const messages = this.#ready.splice(0, body.max);
    if (messages.length === 0 && body.wait !== "0ms") {
      this.#waiting.push({ body, response });
      response.on("close", () => (this.#waiting = this.#waiting.filter((one) => one.response !== response)));
    } else says(200, { messages })({ method: "", path: "", body, headers: {} }, response);
  }
}

function lost(id: string): Answer {
  return says(200, { results: [{ id, status: 409, result: "lost" }] });
}

/** Consume until `until` has happened; the warnings. */
async function consume(topic: Topic, handler: Handler, until: () => Promise<unknown>, options: ConsumeOptions = {}): Promise<string[]> {
  const stop = new AbortController();
  const warnings: string[] = [];
  const client = new DelayqClient({ url: topic.url, giveUpAfter: 0 });
  const ended = client.consume("t", "mail", handler, { signal: stop.signal, log: (warning) => warnings.push(warning), ...options });
  await Promise.race([until(), ended]);
  stop.abort();
  await ended;
  return warnings;
}

test("messages are handled and acknowledged, and those whose handler fails are handed back", async () => {
  const topic = await Topic.start();
  topic.deliver(...["a", "error", "text", "nothing", "symbol", "bare", "late", "z"].map((id) => ({ id })));
  const failures: Record<string, unknown> = {
    error: new RangeError("no\n stock"), text: `${"x".repeat(199)}😀😀`, nothing: undefined, symbol: Symbol("s"), bare: Object.create(null), late: 7,
  };
  const handler = (message: Leased) => {
    if (message.id === "late") return Promise.reject(failures["late"]);
    if (message.id in failures) throw failures[message.id];
  };
  const warnings = await consume(topic, handler, () => topic.seen("handBack", 6));
  assert.deepEqual([...new Set(topic.idsOf("ack"))].sort(), ["a", "z"]);
  const reasons = topic.calls.filter(({ verb }) => verb === "handBack").map(({ body }) => [body.messages[0].id, body.messages[0].reason]);
  assert.deepEqual(Object.fromEntries(reasons), {
    error: "RangeError: no stock", text: `${"x".repeat(199)}😀`, nothing: "undefined", symbol: "Symbol(s)",
    bare: "the handler threw an object without a text", late: "7",
  });
  assert.deepEqual(warnings, []);
});

test("the leases of all messages are renewed by one call while their handlers run, and not after the end", async () => {
  const topic = await Topic.start();
  topic.deliver({ id: "a" }, { id: "b" }, { id: "behind", orderingKey: "k" }, { id: "after", orderingKey: "k" });
  const handler = async () => void (await topic.seen("extend", 3));
  await consume(topic, handler, () => topic.seen("ack", 1), { lease: 30 });
  const [first] = await topic.seen("extend", 1);
  assert.deepEqual(first?.body.messages.map(({ id }: { id: string }) => id), ["a", "b", "behind", "after"]);
  assert.equal(first?.body.lease, "30ms");
  const renewals = topic.calls.filter(({ verb, body }) => verb === "extend" && body.lease !== "0ms").length;
  await new DelayqClient(topic.url).receive("t", "mail", { wait: 0 });
  assert.equal(topic.calls.filter(({ verb, body }) => verb === "extend" && body.lease !== "0ms").length, renewals);
});

test("a lease is renewed for at most maxLease, and the handler learns that it ends", async () => {
  const topic = await Topic.start();
  topic.deliver({ id: "a" });
  const handler: Handler = (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  const warnings = await consume(topic, handler, () => topic.seen("ack", 1), { lease: 30, maxLease: 90 });
  assert.ok(topic.idsOf("extend").length <= 6, "90 ms have room for six thirds after which 30 ms are left");
  assert.deepEqual(warnings, ["delayq: the lease of message a is not renewed any more, because maxLease (90 ms) is over"]);
});

test("a lost lease and a lost acknowledgement are logged once", async () => {
  const topic = await Topic.start();
  topic.answers.set("extend", [lost("a")]).set("ack", [lost("a")]);
  topic.deliver({ id: "a" });
  const handler: Handler = (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  const warnings = await consume(topic, handler, () => topic.seen("ack", 1), { lease: 30 });
  assert.deepEqual(warnings, [
    "delayq: the lease of message a was lost, and it may be received again",
    "delayq: the lease of message a was lost before the message was settled, and it may be received again",
  ]);
});

test("messages of one ordering key are handled one after another, in their order", async () => {
  const topic = await Topic.start();
  topic.deliver({ id: "a1", orderingKey: "a" }, { id: "a2", orderingKey: "a" }, { id: "b1", orderingKey: "b" }, { id: "a3", orderingKey: "a" });
  const running = new Set<string>();
  const order: string[] = [];
  const handler = async ({ id, orderingKey }: Leased) => {
    assert.ok(!running.has(orderingKey), "two messages of a key at once");
    running.add(orderingKey);
    order.push(id);
    if (id === "a1") await topic.seen("ack", 1);
    running.delete(orderingKey);
  };
  await consume(topic, handler, async () => { while (topic.idsOf("ack").length < 4) await topic.seen("ack", topic.calls.filter(({ verb }) => verb === "ack").length + 1); });
  assert.deepEqual(order.filter((id) => id.startsWith("a")), ["a1", "a2", "a3"]);
  assert.deepEqual(topic.idsOf("handBack"), []);
});

test("the loop goes on while the API is away or busy, with the same call", async () => {
  const topic = await Topic.start();
  const page: Answer = (_, response) => void response.writeHead(502, { "content-type": "text/html" }).end("<html>");
  topic.answers.set("receive", [says(503, problem(503, "unavailable")), says(429, problem(429, "rate")), drops, page]);
  topic.deliver({ id: "a" });
  const warnings = await consume(topic, () => undefined, () => topic.seen("ack", 1));
  const [first, ...repeated] = (await topic.seen("receive", 5)).slice(0, 5);
  for (const { body } of repeated) assert.equal(body.call, first?.body.call);
  assert.equal(warnings.length, 4);
  assert.ok(warnings.every((warning) => warning.startsWith("delayq: cannot receive messages of t, trying again: ")));
});

test("a message whose acknowledgement fails is acknowledged once the API is back, and until then its lease is renewed", async () => {
  const topic = await Topic.start();
  const partly = says(200, { results: [{ id: "a", status: 503, problem: problem(503, "unavailable") }] });
  topic.answers.set("ack", [partly, drops]);
  topic.deliver({ id: "a" }, { id: "b" }, { id: "c" });
  let handled = "";
  const until = async () => {
    for (let count = 1; !topic.idsOf("ack").includes("c"); count++) await topic.seen("ack", count);
  };
  const warnings = await consume(topic, ({ id }) => void (handled += id), until, { lease: 30, concurrency: 1 });
  assert.deepEqual([handled, warnings.length], ["abc", 2]);
  assert.deepEqual([...new Set(topic.idsOf("ack"))].sort(), ["a", "b", "c"]);
  assert.ok(topic.idsOf("extend").length >= 2);
});

test("what cannot be acknowledged at the end of the loop is logged", async () => {
  const topic = await Topic.start();
  topic.answers.set("ack", [drops, drops]);
  topic.deliver({ id: "a" });
  const warnings = await consume(topic, () => undefined, () => topic.seen("ack", 1));
  assert.match(warnings.at(-1) ?? "", /^delayq: message a could not be settled, and is received again: UnavailableError: no answer/);
});

test("the loop ends when the API refuses the call, after the handlers that run", async () => {
  for (const [status, kind] of [[400, "invalid"], [401, "unauthorized"], [403, "forbidden"], [404, "not-found"], [409, "other-filter"]] as const) {
    const topic = await Topic.start();
    topic.answers.set("receive", [says(200, { messages: [{ id: "a", lease: "l" }] }), says(status, problem(status, kind))]);
    await assert.rejects(
      consume(topic, async () => void (await topic.seen("receive", 2)), () => new Promise(() => undefined)),
      (error) => error instanceof RefusedError && error.status === status,
    );
    assert.deepEqual(topic.idsOf("ack"), ["a"]);
  }
});

test("the end of the loop waits for handlers, and gives back what none has begun", async () => {
  const topic = await Topic.start();
  const stop = new AbortController();
  topic.deliver({ id: "a", orderingKey: "k" }, { id: "b", orderingKey: "k" });
  const handler = async () => {
    await topic.seen("receive", 2);
    topic.answers.set("receive", [says(200, { messages: [{ id: "leased meanwhile", lease: "l" }] })]);
    stop.abort();
    await topic.seen("extend", 1);
  };
  await new DelayqClient(topic.url).consume("t", "mail", handler, { signal: stop.signal });
  assert.deepEqual(topic.idsOf("ack"), ["a"]);
  const released = topic.calls.find(({ verb }) => verb === "extend")?.body;
  assert.deepEqual([released.lease, released.messages.map(({ id }: { id: string }) => id)], ["0ms", ["b", "leased meanwhile"]]);
  const [, interrupted, repeated] = await topic.seen("receive", 3);
  assert.deepEqual([repeated?.body.call, repeated?.body.wait], [interrupted?.body.call, "0ms"]);
});

test("options that cannot be are refused", async () => {
  const client = new DelayqClient("http://127.0.0.1:1");
  const wrong: [ConsumeOptions, RegExp][] = [
    [{ concurrency: 0 }, /concurrency/], [{ lease: "soon" }, /lease: use a duration/], [{ maxLease: "13h" }, /maxLease/], [{ lease: "1m", maxLease: "30s" }, /maxLease/],
  ];
  for (const [options, why] of wrong) await assert.rejects(client.consume("t", "g", () => undefined, options), why);
});
