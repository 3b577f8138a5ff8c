/** Runs ../../story.json: `node build/test/story.js STORY RUN ROUNDS AT_ONCE`. Prints how many calls it made; exits with 1 at the first difference. */
import { readFileSync } from "node:fs";

import { DelayqClient, RefusedError, SignatureError, UnavailableError, text, verifyWebhook, type ScheduleResult } from "../src/index.js";

interface Step {
  name: string;
  call: string;
  with: any;
  expect: unknown;
}

const [file = "", run = "ts", rounds = "1", atOnce = "8"] = process.argv.slice(2);
const steps = (JSON.parse(readFileSync(file, "utf-8")) as { steps: Step[] }).steps;
const client = new DelayqClient({ url: process.env["DELAYQ_API_URL"] ?? "", giveUpAfter: 60_000 });

function problemOf(error: unknown): unknown {
  if (error instanceof RefusedError) return { problem: { status: error.status, kind: error.kind, field: error.problem.field } };
  throw error;
}

function outcome(result: ScheduleResult): unknown {
  if (result.ok) return result;
  if (result.error instanceof UnavailableError) throw result.error;
  return problemOf(result.error);
}

const CALLS: Record<string, (given: any, earlier: any) => Promise<unknown>> = {
  schedule: (message) => client.schedule(message).catch(problemOf),
  scheduleMany: async ({ messages }) => ({ results: (await client.scheduleMany(messages)).map(outcome) }),
  reschedule: ({ id, delayTime }) => client.reschedule(id, { delayTime }).catch(problemOf),
  get: async ({ id }) => {
    const found = await client.get(id);
    return found ? { ...found, topic: found.message?.topic } : null;
  },
  find: async ({ key }) => {
    let count = 0;
    for await (const _ of client.search({ key })) count += 1;
    return { count };
  },
  cancel: ({ id }) => client.cancel(id),
  cancelByKeys: async ({ keys }) => ({
    keys: (await client.cancelMany({ keys })).keys.map(({ key, messages }) => ({
      key,
      count: messages.length,
      results: [...new Set(messages.map(({ result }) => result))],
    })),
  }),
  receive: async ({ topic, group }) => {
    for (;;) {
      const [found] = await client.receive(topic, group, { max: 1, wait: "20s", lease: "1h" });
      if (found) return found;
    }
  },
  ack: async ({ topic, group, received }, earlier) => (await client.ack(topic, group, [earlier[received]]))[0],
  handBack: async ({ topic, group, received }, earlier) => (await client.handBack(topic, group, [earlier[received]]))[0],
  verifyWebhook: async ({ secret, now, headers, body }) => {
    try {
      const message = verifyWebhook(headers, body, secret, { now: now * 1_000 });
      return { ...message, body: text(message) };
    } catch (error) {
      if (error instanceof SignatureError) return { refused: true };
      throw error;
    }
  },
};

/** Where `found` lacks what is expected; undefined if it does not. */
function difference(found: any, expected: any, earlier: any, path = "$"): string | undefined {
  if (expected !== null && typeof expected === "object" && "same" in expected) {
    return difference(found, path.split(".").slice(1).reduce((value, name) => value?.[name], earlier[expected.same]), {}, path);
  }
  if (expected === null || typeof expected !== "object") {
    return found === expected ? undefined : `${path} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`;
  }
  if (found === null || typeof found !== "object") return `${path} is ${JSON.stringify(found)}`;
  if (Array.isArray(expected) && found.length !== expected.length) return `${path} has ${found.length} items, not ${expected.length}`;
  for (const name of Object.keys(expected)) {
    const wrong = difference(found[name], expected[name], earlier, `${path}.${name}`);
    if (wrong) return wrong;
  }
  return undefined;
}

let next = 0;
let calls = 0;

async function work(): Promise<void> {
  while (next < Number(rounds)) {
    const n = next++;
    const earlier: Record<string, unknown> = {};
    for (const step of JSON.parse(JSON.stringify(steps).replaceAll("{n}", String(n)).replaceAll("{run}", run)) as Step[]) {
      const found = await (CALLS[step.call] as (given: any, earlier: any) => Promise<unknown>)(step.with, earlier);
      earlier[step.name] = found;
      const wrong = difference(found, step.expect, earlier);
      if (wrong) throw new Error(`round ${n}, ${step.name}: ${wrong}`);
      calls += 1;
    }
  }
}

await Promise.all(Array.from({ length: Number(atOnce) }, work));
console.log(calls);
