import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { DelayqClient, DelayqError, NotAllowedError, RawJson, readKafka, readRabbitMq, readWebhook, RefusedError, UnavailableError } from "../src/index.js";
import { drops, problem, says, schedules, serverThat, type Answer } from "./server.js";

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
  const { body, ...fields } = messages[0] ?? assert.fail();
  assert.deepEqual({ ...fields }, { ...message, tags: "", keys: [], orderingKey: "", properties: {} });
  assert.deepEqual(body, new Uint8Array());
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

test("leases whose change failed for a while are changed again, without the others", async () => {
  const partly = says(200, { results: [{ id: "a", status: 200, result: "acknowledged" }, { id: "b", status: 503, problem: problem(503, "unavailable") }] });
  const { url, asked } = await serverThat(partly, says(200, { results: [{ id: "b", status: 409, result: "lost" }] }));
  const results = await new DelayqClient(url).ack("t", "mail", [{ id: "a", lease: "la" }, { id: "b", lease: "lb" }]);
  assert.deepEqual(results.map(({ result }) => result), ["acknowledged", "lost"]);
  assert.deepEqual(asked[1].body, { group: "mail", messages: [{ id: "b", lease: "lb" }] });
});

test("a repeated change has the name of its first attempt", async () => {
  const good = says(200, { id: "x", state: "scheduled", results: [{ id: "x", status: 200, result: "scheduled" }] });
  const calls: Record<string, (client: DelayqClient, options: { call?: string }) => Promise<unknown>> = {
    reschedule: (client, options) => client.reschedule("x", { delayTime: 1 }, options),
    deliverNow: (client, options) => client.deliverNow("x", options),
    deliverNowMany: (client, options) => client.deliverNowMany({ keys: ["k"] }, options),
    redrive: (client, options) => client.redrive(["x"], options),
  };
  for (const [name, call] of Object.entries(calls)) {
    const { url, asked } = await serverThat(drops, good);
    for (const options of [{}, {}, { call: "mine" }]) await call(new DelayqClient(url), options);
    const [first, repeated, another, mine] = asked.map(({ body }) => body.call);
    assert.match(first, /^[A-Za-z0-9_-]{1,64}$/, name);
    assert.deepEqual([repeated, mine], [first, "mine"], name);
    assert.notEqual(another, first, name);
  }
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

test("a received message has its body as bytes, as text and as JSON", async () => {
  const message = (body: object) => ({ id: "a", topic: "t", lease: "x", dueTime: "2033-01-01T00:00:00.000Z", dueMs: 1, attempt: 1, deliveries: 1, handBacks: 0, ...body });
  const { url } = await serverThat(says(200, { messages: [message({ body: '\ufeff{"n":1}' }), message({ body: '{"n":1}' }), message({ bodyBase64: "/w==" })] }));
  const [marked, json, binary] = await new DelayqClient(url).receive("t", "mail");
  assert.equal(marked?.text, '\ufeff{"n":1}');
  assert.deepEqual(json?.json(), { n: 1 });
  assert.deepEqual(binary?.body, new Uint8Array([255]));
  assert.throws(() => binary?.text, TypeError);
});

test("a body comes back with its bytes and its content type", async () => {
  const { url, texts } = await serverThat(says(200, { results: [{ status: 201, id: "a.b1", state: "scheduled", handBacks: 1, dueMs: 1 }] }));
  const client = new DelayqClient(url);
  const json = "application/json";
  const cases: [type: string, body: string | Uint8Array, field: string][] = [
    [json, '{"price":1.0}', '"body":{"price":1.0}'],
    [json, "1e3", '"body":1e3'],
    [json, '{"id":12345678901234567890}', '"body":{"id":12345678901234567890}'],
    [json, '{"b":1,"1":2,"b":3}', '"body":{"b":1,"1":2,"b":3}'],
    [json, '["\\u00e9<&>\u2028"]', '"body":["\\u00e9<&>\u2028"]'],
    [json, "null", '"body":null'],
    ["Application/JSON; charset=utf-8", "[1.50]", '"body":[1.50]'],
    [json, '"text"', '"body":"\\"text\\""'],
    [json, "{broken", '"body":"{broken"'],
    ["application/json-seq", "1.0", '"body":"1.0"'],
    ["text/plain; charset=utf-8", '\ufeff{"n":1.0}', '"body":"\ufeff{\\"n\\":1.0}"'],
    ["text/plain; charset=latin1", new Uint8Array([0xe9]), '"bodyBase64":"6Q=="'],
    ["application/octet-stream", "text", '"bodyBase64":"dGV4dA=="'],
    ["", "1.0", '"body":"1.0"'],
  ];
  for (const [type, body, field] of cases) {
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const read = [
      readWebhook({ "ce-id": "a", "ce-type": "t", "ce-time": "2033-01-01T00:00:00Z", "content-type": type }, bytes),
      readKafka("t", { id: "a", due: "1", "content-type": type }, bytes),
      readRabbitMq({ messageId: "a", type: "t", contentType: type, headers: { "delayq-due": 1 } }, bytes),
    ];
    for (const message of read) {
      await client.handBackDelivered([message]);
      assert.ok(texts.at(-1)?.endsWith(`${field}}]}`), `${type} ${String(body)}: ${texts.at(-1)}`);
      assert.equal(texts.at(-1)?.includes('"contentType":"application/json"'), body === '"text"', "the API takes another string as text");
    }
  }
});

test("raw JSON keeps its digits, and what JSON cannot write is refused", async () => {
  const { url, texts } = await serverThat(schedules);
  const client = new DelayqClient(url);
  await client.schedule({ id: "a", topic: "t", delayTime: 1, body: new RawJson('{"id":12345678901234567890,"price":1.0}') });
  assert.equal(texts[0], '{"messages":[{"id":"a","topic":"t","delayTime":"1ms","body":{"id":12345678901234567890,"price":1.0}}]}');
  await client.schedule({ id: "a", topic: "t", delayTime: 1, body: new Uint8Array([1, 255]).buffer });
  assert.match(texts[1] ?? "", /"bodyBase64":"Af8="/);
  assert.throws(() => new RawJson("{"), SyntaxError);
  for (const body of [NaN, { n: -Infinity }, { n: 1n }, new Map([["a", 1]]), { bytes: new Uint8Array(1) }]) {
    await assert.rejects(client.schedule({ topic: "t", delayTime: 1, body }), /JSON/);
  }
});

test("nothing of a call is left on a signal after its end, and a signal ends the pause between two attempts", async () => {
  const { url } = await serverThat(says(503, problem(503, "overloaded")), says(503, problem(503, "overloaded"), { "retry-after": "20" }));
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  const stop = new AbortController();
  const call = new DelayqClient(url).receive("t", "mail", { signal: stop.signal });
  const ended = assert.rejects(call, /enough/);
  stop.abort(new Error("enough"));
  await ended;
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
  const other = new AbortController();
  const fetch = async () => new Response('{"messages":[]}', { headers: { "content-type": "application/json" } });
  const client = new DelayqClient({ url, fetch });
  for (let n = 0; n < 100; n++) await client.receive("t", "mail", { signal: other.signal });
  const failing = new DelayqClient({ url, giveUpAfter: 0, fetch: async () => Promise.reject(new Error("away")) });
  await assert.rejects(failing.receive("t", "mail", { signal: other.signal }), /away/);
  assert.equal(getEventListeners(other.signal, "abort").length, 0);
  assert.equal(timers(), before);
});

/** Every method of a client that sends a request. */
const CALLS: Record<string, (client: DelayqClient) => Promise<unknown>> = {
  schedule: (client) => client.schedule({ topic: "t", delayTime: "1s" }),
  get: (client) => client.get("x"),
  search: (client) => client.search().next(),
  count: (client) => client.count(),
  forecast: (client) => client.forecast(),
  cancel: (client) => client.cancel("x"),
  cancelMany: (client) => client.cancelMany({ keys: ["k"] }),
  reschedule: (client) => client.reschedule("x", { delayTime: 1 }),
  deliverNow: (client) => client.deliverNow("x"),
  deliverNowMany: (client) => client.deliverNowMany({ ids: ["x"] }),
  deadLetters: (client) => client.deadLetters().next(),
  deadLetterGroups: (client) => client.deadLetterGroups(),
  redrive: (client) => client.redrive(["x"]),
  discard: (client) => client.discard(["x"]),
  pauseTopics: (client) => client.pauseTopics("t"),
  resumeTopics: (client) => client.resumeTopics("t"),
  topics: (client) => client.topics().next(),
  topic: (client) => client.topic("t"),
  consumers: (client) => client.consumers().next(),
  receive: (client) => client.receive("t", "g"),
  ack: (client) => client.ack("t", "g", [{ id: "x", lease: "l" }]),
  extend: (client) => client.extend("t", "g", [{ id: "x", lease: "l" }], "1m"),
  handBack: (client) => client.handBack("t", "g", [{ id: "x", lease: "l" }]),
  handBackDelivered: (client) => client.handBackDelivered([readKafka("t", { id: "a", due: "1" }, "x")]).then(([one]) => { if (one && !one.ok) throw one.error; }),
  consume: (client) => client.consume("t", "g", () => undefined),
  policies: (client) => client.policies(),
  putPolicy: (client) => client.putPolicy("p", { match: "t" }),
  deletePolicy: (client) => client.deletePolicy("p"),
  audit: (client) => client.audit().next(),
  queues: (client) => client.queues(),
  nodes: (client) => client.nodes(),
  routes: (client) => client.routes(),
  status: (client) => client.status(),
  overview: (client) => client.overview(),
  me: (client) => client.me(),
};

const HTML = { "content-type": "text/html; charset=utf-8" };
const OTHERS: [name: string, answer: Answer][] = [
  ["a page", (_, response) => void response.writeHead(200, HTML).end("<html>please log in</html>")],
  ["a page that is not found", (_, response) => void response.writeHead(404, HTML).end("<html>")],
  ["JSON as a page", (_, response) => void response.writeHead(200, HTML).end('{"results":[{"id":"x"}],"id":"x","state":"due"}')],
  ["no content", (_, response) => void response.writeHead(204).end()],
  ["no body", says(200, undefined)],
  ["an empty object", says(200, {})],
  ["an array", says(200, [{ id: "x" }])],
  ["null", says(200, null)],
  ["text", says(200, "ok")],
  ["truncated JSON", (_, response) => void response.writeHead(200, { "content-type": "application/json" }).end('{"messages":[],"results":[{"id":"x"')],
  ["lists of something else", says(200, { results: [1], messages: [1], topics: [1], groups: 1, entries: [null], id: 5 })],
  ["too few results", says(200, { results: [] })],
  ["another problem", says(404, { type: "about:blank", title: "Not Found", status: 404, detail: "No such page" })],
  ["another path of an API", says(404, problem(404, "not-found", "Unknown path. /docs lists all paths."))],
];

test("a receive and a pause have the time of an attempt and the wait that they ask for", async () => {
  const hangs: typeof fetch = (_, init) => new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
  const client = new DelayqClient({ url: "http://127.0.0.1:1", fetch: hangs, timeout: 1, giveUpAfter: 0 });
  for (const [wait, limit] of [[undefined, 1], [0, 1], [2, 3], ["2ms", 3], ["0s", 1]] as const) {
    const ends = (error: unknown) => error instanceof UnavailableError && error.message.endsWith(`it took longer than ${limit} ms`);
    await assert.rejects(client.receive("t", "g", wait === undefined ? {} : { wait }), ends);
    if (wait !== undefined) await assert.rejects(client.pauseTopics("t", { wait }), ends);
  }
});

test("an answer about another message is not the one that was asked for", async () => {
  const { url } = await serverThat(says(200, { id: "other", state: "due" }), says(200, { id: "x.0a1b", state: "a new one" }));
  const client = new DelayqClient(url);
  await assert.rejects(client.get("x"), (error) => error instanceof RefusedError && error.message.endsWith(": is this the URL of its API?"));
  assert.equal((await client.get("x"))?.id, "x.0a1b");
});

test("an answer that is not from delayq is an error with the URL, at once and from every call", async () => {
  const methods = Object.getOwnPropertyNames(DelayqClient.prototype).filter((name) => !["constructor", "scheduleMany"].includes(name));
  assert.deepEqual(Object.keys(CALLS).sort(), methods.sort(), "a call is missing in this test");
  for (const [what, answer] of OTHERS) {
    for (const [name, call] of Object.entries(CALLS)) {
      const { url, asked } = await serverThat(answer);
      await assert.rejects(
        call(new DelayqClient(url)),
        (error) => error instanceof DelayqError && error.message.startsWith(url) && error.message.endsWith(": is this the URL of its API?"),
        `${name}: ${what}`,
      );
      assert.equal(asked.length, 1, `${name} was repeated: ${what}`);
    }
  }
});

test("a redirect is refused with its target, and no request and no key follows it", async () => {
  for (const status of [301, 302, 303, 307, 308]) {
    const target = await serverThat(schedules);
    const { url, asked } = await serverThat((_, response) => void response.writeHead(status, { location: `${target.url}/login` }).end());
    for (const [name, call] of Object.entries(CALLS)) {
      await assert.rejects(call(new DelayqClient({ url, apiKey: "dq_x" })), (error) => {
        assert.ok(error instanceof RefusedError, name);
        assert.equal(error.message, `${url} answered ${status}, a redirect to '${target.url}/login', which delayq does not follow: is this the URL of its API?`);
        return true;
      });
    }
    assert.deepEqual([asked.length, target.asked.length], [Object.keys(CALLS).length, 0]);
  }
});

test("get is undefined only for an id that delayq does not know, and a proxy whose API is away is UnavailableError", async () => {
  const unknown = await serverThat(says(404, { ...problem(404, "not-found", "No message has this id."), field: "id", id: "x" }));
  assert.equal(await new DelayqClient(unknown.url).get("x"), undefined);
  for (const status of [502, 503, 504]) {
    const { url } = await serverThat((_, response) => void response.writeHead(status, HTML).end("<html>"));
    const client = new DelayqClient({ url, giveUpAfter: 0 });
    await assert.rejects(client.get("x"), (error) => error instanceof UnavailableError && error.message === `${url} answered ${status}`);
  }
});

test("a wrong URL and a server that is not delayq are named", async () => {
  assert.throws(() => new DelayqClient("redis://127.0.0.1"), /http/);
  assert.throws(() => new DelayqClient("http://user:secret@host"), /apiKey/);
  assert.throws(() => new DelayqClient("http://host/?key=secret"), /query/);
  assert.throws(() => new DelayqClient({ url: "http://host", apiKey: "dq_x\n" }), /no key has/);
  const { url } = await serverThat((_, response) => void response.writeHead(404).end("<html>"));
  await assert.rejects(new DelayqClient(url).me(), /is this the URL of its API/);
});
