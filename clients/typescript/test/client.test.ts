import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";

import { DelayqClient, NotAllowedError, readKafka, RefusedError, UnavailableError } from "../src/index.js";

type Answer = (request: { method: string; path: string; body: any; headers: IncomingMessage["headers"] }, response: ServerResponse) => void;

const open: ReturnType<typeof createServer>[] = [];

after(() => open.forEach((server) => server.close()));

/** A server that gives these answers in turn, the last one for ever; and what it was asked. */
async function serverThat(...answers: Answer[]): Promise<{ url: string; asked: any[] }> {
  const asked: any[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const seen = { method: request.method ?? "", path: request.url ?? "", body: text && JSON.parse(text), headers: request.headers };
      asked.push(seen);
      (answers[Math.min(asked.length, answers.length) - 1] as Answer)(seen, response);
    });
  });
  server.keepAliveTimeout = 1;
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

function says(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  return (_, response) => void response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
}

function problem(status: number, kind: string, detail = "No."): object {
  return { type: `urn:delayq:problem:${kind}`, title: kind, status, detail };
}

const drops: Answer = (_, response) => void response.destroy();
const schedules: Answer = (request, response) =>
  says(200, {
    results: request.body.messages.map((one: any) => ({ status: 201, id: one.id, queue: 0, state: "scheduled", dueTime: "2033-01-01T00:00:00.000Z", dueMs: 1988150400000 })),
  })(request, response);

test("a message keeps its id when an answer is lost", async () => {
  const { url, asked } = await serverThat(drops, drops, schedules);
  const done = await new DelayqClient(url).schedule({ topic: "orders", delayTime: "30m" });
  const ids = asked.map((request) => request.body.messages[0].id);
  assert.equal(ids.length, 3);
  assert.deepEqual(new Set(ids), new Set([done.id]));
  assert.equal(done.created, true);
});

test("429 and 503 are repeated after Retry-After, also for one message of a batch", async () => {
  const partly: Answer = (request, response) =>
    says(200, {
      results: request.body.messages.map((one: any) =>
        one.id === "b" ? { status: 429, id: "b", problem: problem(429, "quota") } : { status: 200, id: one.id, queue: 1, state: "scheduled", dueTime: null, dueMs: null },
      ),
    })(request, response);
  const { url, asked } = await serverThat(says(503, problem(503, "overloaded"), { "retry-after": "1" }), partly, schedules);
  const began = performance.now();
  const results = await new DelayqClient(url).scheduleMany([
    { id: "a", topic: "t", delayTime: 5 },
    { id: "b", topic: "t", delayTime: 5 },
  ]);
  assert.ok(performance.now() - began >= 1_000, "Retry-After is in seconds");
  assert.deepEqual(asked.map((request) => request.body.messages.length), [2, 2, 1]);
  assert.deepEqual(results.map((result) => result.ok && [result.id, result.created]), [["a", false], ["b", true]]);
});

test("a refused message stops no other one, and one of its own throws", async () => {
  const refuses = says(200, { results: [{ status: 400, problem: { ...problem(400, "invalid", "delayTime: none was given"), field: "delayTime" } }] });
  const { url, asked } = await serverThat(refuses);
  const client = new DelayqClient(url);
  const [result] = await client.scheduleMany([{ topic: "t" }]);
  assert.ok(result && !result.ok && result.error instanceof RefusedError && result.error.kind === "invalid");
  await assert.rejects(client.schedule({ topic: "t" }), (error) => error instanceof RefusedError && error.status === 400);
  assert.equal(asked.length, 2, "a refusal is not repeated");
});

test("a key that is unknown or lacks a right is NotAllowedError", async () => {
  const { url, asked } = await serverThat(says(403, problem(403, "forbidden")));
  await assert.rejects(new DelayqClient({ url, apiKey: "dq_x" }).queues(), NotAllowedError);
  assert.equal(asked[0].headers.authorization, "Bearer dq_x");
});

test("a call gives up, names the ids, and can be ended", async () => {
  const { url } = await serverThat(drops);
  const client = new DelayqClient({ url, giveUpAfter: 300 });
  await assert.rejects(client.schedule({ id: "a", topic: "t", delayTime: 1 }), (error) => error instanceof UnavailableError && error.ids[0] === "a");
  const controller = new AbortController();
  const call = new DelayqClient(url).status({ signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(call, /enough/);
});

test("batches are split by number and size, and halved when the server takes less", async () => {
  const small: Answer = (request, response) =>
    (request.body.messages.length > 300 ? says(413, problem(413, "too-large")) : schedules)(request, response);
  const { url, asked } = await serverThat(small);
  const messages = Array.from({ length: 1_100 }, (_, n) => ({ id: `m${n}`, topic: "t", delayTime: 1 }));
  const results = await new DelayqClient(url).scheduleMany(messages);
  assert.deepEqual(results.map((result) => result.ok && result.id), messages.map(({ id }) => id));
  assert.deepEqual(asked.map((request) => request.body.messages.length), [1_000, 500, 250, 250, 500, 250, 250, 100]);
});

test("dates, durations and bytes are written as the API takes them", async () => {
  const { url, asked } = await serverThat(schedules);
  const expectDate = new Date("2033-01-31T08:00:00Z");
  await new DelayqClient(url).schedule({ topic: "t", body: new Uint8Array([1, 255]), expectDate, expireAfter: 90_000, window: "10m" });
  const { id: _, ...sent } = asked[0].body.messages[0];
  assert.deepEqual(sent, { topic: "t", bodyBase64: "Af8=", expectDate: "2033-01-31T08:00:00.000Z", expireAfter: "90000ms", window: "10m" });
});

test("a search goes on to the last page", async () => {
  const found = (id: string, nextPageToken: string | null) => says(200, { messages: [{ id }], looked: 1, complete: !nextPageToken, nextPageToken });
  const { url, asked } = await serverThat(found("a", "p2"), found("b", null));
  const ids = [];
  for await (const one of new DelayqClient(url).search({ topic: "t.*", state: ["due", "held"] })) ids.push(one.id);
  assert.deepEqual(ids, ["a", "b"]);
  assert.equal(asked[1].path, "/v1/messages?topic=t.*&state=due%2Cheld&pageToken=p2");
});

test("consumer groups go on to the last page", async () => {
  const page = (group: string, nextPageToken: string | null) => says(200, { groups: [{ topic: "t", group, lag: 3 }], total: 2, nextPageToken });
  const { url, asked } = await serverThat(page("audit", "p2"), page("mail", null));
  const groups = [];
  for await (const one of new DelayqClient(url).consumers({ match: "t.*" }, { limit: 1 })) groups.push([one.group, one.lag]);
  assert.deepEqual(groups, [["audit", 3], ["mail", 3]]);
  assert.equal(asked[1].path, "/v1/consumers?match=t.*&limit=1&pageToken=p2");
});

test("a receive keeps its name when an answer is lost, and its leases are settled", async () => {
  const message = { id: "a", topic: "t", lease: ".1-0.x", dueTime: "2033-01-01T00:00:00.000Z", dueMs: 1, attempt: 1, deliveries: 1, handBacks: 0 };
  const settled = says(200, { results: [{ id: "a", status: 200, result: "acknowledged" }] });
  const { url, asked } = await serverThat(drops, says(200, { messages: [message] }), settled);
  const client = new DelayqClient(url);
  const messages = await client.receive("t", "mail", { wait: "20s", lease: 60_000, tags: ["new"] });
  assert.deepEqual(messages, [message]);
  assert.equal(asked[0].body.call, asked[1].body.call);
  const { call: _, ...sent } = asked[1].body;
  assert.deepEqual([asked[1].path, sent], ["/v1/topics/t:receive", { group: "mail", wait: "20s", lease: "60000ms", tags: ["new"] }]);
  assert.equal((await client.ack("t", "mail", messages))[0]?.result, "acknowledged");
  await client.extend("t", "mail", messages, "1m");
  await client.handBack("t", "mail", messages, { reason: "no stock", delayTime: "5s" });
  assert.deepEqual(asked[2].body, { group: "mail", messages: [{ id: "a", lease: ".1-0.x" }] });
  assert.deepEqual(asked[3].body, { group: "mail", messages: [{ id: "a", lease: ".1-0.x" }], lease: "1m" });
  assert.deepEqual(asked[4].body.messages, [{ id: "a", lease: ".1-0.x", reason: "no stock", delayTime: "5s" }]);
});

test("a delivered message is handed back with its count, its properties and the kind of its body", async () => {
  const { url, asked } = await serverThat(says(200, { results: [{ status: 201, id: "a.b3", state: "scheduled", handBacks: 3, dueMs: 1 }] }));
  const headers = { id: "a.b2", due: "1", "content-type": "application/json", "p:delayq-hand-backs": "2" };
  const [done] = await new DelayqClient(url).handBackDelivered([readKafka("t", headers, '{"n":1}')], { reason: "no stock" });
  assert.ok(done?.ok && done.id === "a.b3" && done.created);
  const sent = { id: "a.b2", topic: "t", tags: "", keys: [], orderingKey: "", properties: { "delayq-hand-backs": "2" } };
  assert.equal(asked[0].path, "/v1/messages:handBack");
  assert.deepEqual(asked[0].body.messages, [{ ...sent, body: { n: 1 }, handBacks: 2, reason: "no stock" }]);
});

test("a wrong URL and a server that is not delayq are named", async () => {
  assert.throws(() => new DelayqClient("redis://127.0.0.1"), /http/);
  assert.throws(() => new DelayqClient("http://user:secret@host"), /apiKey/);
  const { url } = await serverThat((_, response) => void response.writeHead(404).end("<html>"));
  await assert.rejects(new DelayqClient(url).me(), /is this the URL of its API/);
});
