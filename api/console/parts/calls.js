// The program behind an action: one description of a call, written in each language. It imports nothing, so that tests run it.

/**
 * A call. `delay`: a duration as it was typed; `date`: RFC 3339.
 * @typedef {{
 *   does: "get" | "cancel" | "reschedule" | "deliverNow" | "redrive" | "discard" | "schedule" | "receive",
 *   id?: string, topic?: string, body?: string, delay?: string, date?: string, force?: boolean, group?: string,
 * }} Call
 * @typedef {{ url: string, key: boolean }} Api  `key`: it needs a key, which the program reads from DELAYQ_API_KEY
 */

/** The languages of the programs. @type {Record<string, { name: string, write: (call: Call, api: Api) => string }>} */
export const LANGUAGES = {
  curl: { name: "curl", write: curl },
  python: { name: "Python", write: python },
  typescript: { name: "TypeScript", write: typescript },
  go: { name: "Go", write: go },
  java: { name: "Java", write: java },
};

/**
 * Whether the call can be written: a delay may be half-typed.
 * @param {Call} call
 */
export function isComplete({ does, topic, delay, date }) {
  if (does === "schedule" && !topic) return false;
  return !["schedule", "reschedule"].includes(does) || Boolean(date) || msOf(delay ?? "") !== null;
}

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

/**
 * The ms of a duration in a format of the API: 1500, 90s, 1h30m, PT30M; null for another text.
 * @param {string} text
 * @returns {number | null}
 */
export function msOf(text) {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  if (/^(?:\d{1,15}(?:ms|[dhms]))+$/.test(text)) {
    const parts = [...text.matchAll(/(\d+)(ms|[dhms])/g)];
    return parts.reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[/** @type {keyof typeof UNITS} */ (unit)], 0);
  }
  const iso = /^P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/.exec(text);
  if (iso === null) return null;
  const [weeks, days, hours, minutes, seconds] = iso.slice(1).map((one) => Number(one ?? 0));
  return ((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000;
}

/**
 * A text between double quotes. `escape` writes each character that would end it, change its meaning, or be invisible.
 * @param {string} text
 * @param {(code: number, one: string) => string} escape
 */
function quoted(text, escape) {
  return `"${text.replace(/["\\]|(?! )[\p{C}\p{Z}]/gu, (one) => escape(Number(one.codePointAt(0)), one))}"`;
}

/** @param {number} n @param {number} digits */
const hex = (n, digits) => n.toString(16).padStart(digits, "0");

/** A character as units of UTF-16, as JSON and JavaScript write it. @param {string} one */
const units = (one) => one.split("").map((unit) => `\\u${hex(unit.charCodeAt(0), 4)}`).join("");

/** @type {Record<string, string>} */
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\" };

/** Text of JSON and JavaScript. @param {string} text */
const ofScript = (text) => quoted(text, (_, one) => SHORT[one] ?? units(one));

/** Text of Python and Go, which write a character beyond 16 bits by eight digits. @param {string} text */
const ofCodes = (text) => quoted(text, (code, one) => SHORT[one] ?? (code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`));

/**
 * Text of Java, which replaces \u before it reads the program: a control character must not be written by it.
 * @param {string} text
 */
const ofJava = (text) => quoted(text, (code, one) => SHORT[one] ?? (code < 0x100 ? `\\${code.toString(8).padStart(3, "0")}` : units(one)));

/** A word of a shell. @param {string} text */
const ofShell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/**
 * JSON with the invisible characters escaped.
 * @param {any} value
 * @returns {string}
 */
function json(value) {
  if (typeof value === "string") return ofScript(value);
  if (Array.isArray(value)) return `[${value.map(json).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${ofScript(name)}: ${json(one)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** @param {Call} call the due time, as a field of the API @returns {Record<string, string | number>} */
function dueOf({ date, delay }) {
  if (date) return { expectDate: date };
  return { delayTime: /^\d+$/.test(delay ?? "") ? Number(delay) : (delay ?? "") };
}

/**
 * The request: its method, path and body.
 * @param {Call} call
 * @returns {[string, string, any]}
 */
function requestOf(call) {
  const { does, id = "", topic = "", body, force, group } = call;
  const message = `/v1/messages/${encodeURIComponent(id)}`;
  if (does === "get") return ["GET", `${message}?explain=true`, undefined];
  if (does === "cancel") return ["POST", "/v1/messages:cancel", { ids: [id] }];
  if (does === "reschedule") return ["PATCH", message, dueOf(call)];
  if (does === "deliverNow") return ["POST", `${message}:deliverNow`, { force: Boolean(force) }];
  if (does === "redrive" || does === "discard") return ["POST", `/v1/dead-letters:${does}`, { ids: [id] }];
  if (does === "receive") return ["POST", `/v1/topics/${encodeURIComponent(topic)}:receive`, { group, max: 10, wait: "20s", lease: "30s" }];
  return ["POST", "/v1/messages", { topic, ...(body ? { body } : {}), ...dueOf(call) }];
}

/** @param {Call} call @param {Api} api */
function curl(call, { url, key }) {
  const [method, path, body] = requestOf(call);
  const lines = [`curl ${method === "GET" ? "" : `-X ${method} `}${ofShell(url + path)}`];
  if (key) lines.push('-H "Authorization: Bearer $DELAYQ_API_KEY"');
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${ofShell(json(body))}`);
  return `${lines.join(" \\\n  ")}\n`;
}

/** @param {Call} call @param {Api} api */
function python(call, { url, key }) {
  const { does, topic = "", body, force, date, delay = "", group = "" } = call;
  const id = ofCodes(call.id ?? "");
  const due = date ? `expect_date=${ofCodes(date)}` : `delay_time=${/^\d+$/.test(delay) ? Number(delay) : ofCodes(delay)}`;
  const lines = {
    get: [`found = client.get(${id})`, "print(found and (found.state, client.explain(found).text))"],
    cancel: [`print(client.cancel(${id}).result)`],
    reschedule: [`print(client.reschedule(${id}, ${due}).result)`],
    deliverNow: [`print(client.deliver_now(${id}${force ? ", force=True" : ""}).result)`],
    redrive: [`print(client.redrive([${id}]))`],
    discard: [`print(client.discard(${id}))`],
    schedule: [`message = delayq.Message(topic=${ofCodes(topic)}${body ? `, body=${ofCodes(body)}` : ""}, ${due})`, "print(client.schedule(message).id)"],
    receive: [
      `for message in client.receive(${ofCodes(topic)}, group=${ofCodes(group)}, wait="20s"):`,
      "    print(message.id, message.body)",
      "    client.ack(message)",
    ],
  }[does];
  const with_key = key ? ', api_key=os.environ["DELAYQ_API_KEY"]' : "";
  return `${key ? "import os\n\n" : ""}import delayq

with delayq.connect(${ofCodes(url)}${with_key}) as client:
${lines.map((line) => `    ${line}\n`).join("")}`;
}

/** @param {Call} call @param {Api} api */
function typescript(call, { url, key }) {
  const { does, topic = "", body, force, group = "" } = call;
  const id = ofScript(call.id ?? "");
  const fields = (/** @type {Record<string, unknown>} */ given) =>
    `{ ${Object.entries(given).map(([name, value]) => `${name}: ${json(value)}`).join(", ")} }`;
  const lines = {
    get: [`const found = await delayq.get(${id}, { explain: true });`, "console.log(found?.state, found?.explain?.text);"],
    cancel: [`console.log((await delayq.cancel(${id})).result);`],
    reschedule: [`console.log((await delayq.reschedule(${id}, ${fields(dueOf(call))})).dueTime);`],
    deliverNow: [`console.log((await delayq.deliverNow(${id}${force ? ", { force: true }" : ""})).state);`],
    redrive: [`console.log(await delayq.redrive([${id}]));`],
    discard: [`console.log(await delayq.discard([${id}]));`],
    schedule: [`const message = ${fields({ topic, ...(body ? { body } : {}), ...dueOf(call) })};`, "console.log((await delayq.schedule(message)).id);"],
    receive: [
      `const messages = await delayq.receive(${ofScript(topic)}, ${ofScript(group)}, { max: 10, wait: "20s" });`,
      "for (const message of messages) console.log(message.id, message.body);",
      `if (messages.length > 0) await delayq.ack(${ofScript(topic)}, ${ofScript(group)}, messages);`,
    ],
  }[does];
  const options = key ? `{ url: ${ofScript(url)}, apiKey: process.env["DELAYQ_API_KEY"] ?? "" }` : ofScript(url);
  return `import { DelayqClient } from "@delayq/client";

const delayq = new DelayqClient(${options});
${lines.map((line) => `${line}\n`).join("")}`;
}

/** @param {Call} call @param {Api} api */
function go(call, { url, key }) {
  const { does, topic = "", body, force, date, delay = "", group = "" } = call;
  const id = ofCodes(call.id ?? "");
  const wait = msOf(delay);
  const due = date ? `ExpectDate: time.UnixMilli(${Date.parse(date)})` : wait === 0 ? "Now: true" : `DelayTime: ${wait} * time.Millisecond`;
  const lines = {
    get: [`found, known, err := client.Get(ctx, ${id})`, "check(err)", "fmt.Println(known, found.State)"],
    cancel: [`result, err := client.Cancel(ctx, ${id})`, "check(err)", "fmt.Println(result.Result)"],
    reschedule: [`scheduled, err := client.Reschedule(ctx, ${id}, delayq.Due{${due}})`, "check(err)", "fmt.Println(scheduled.State)"],
    deliverNow: [`scheduled, err := client.DeliverNow(ctx, ${id}, ${Boolean(force)})`, "check(err)", "fmt.Println(scheduled.State)"],
    redrive: [`results, err := client.Redrive(ctx, ${id})`, "check(err)", "fmt.Println(results)"],
    discard: [`results, err := client.Discard(ctx, ${id})`, "check(err)", "fmt.Println(results)"],
    schedule: [
      `message := delayq.Message{Topic: ${ofCodes(topic)}, ${body ? `Body: ${ofCodes(body)}, ` : ""}${due}}`,
      "scheduled, err := client.Schedule(ctx, message)", "check(err)", "fmt.Println(scheduled.Id)",
    ],
    receive: [
      `messages, err := client.Receive(ctx, ${ofCodes(topic)}, delayq.ReceiveIn{Group: ${ofCodes(group)}})`, "check(err)",
      "for _, message := range messages {",
      "\tfmt.Println(message.Id)",
      `\t_, err := client.Ack(ctx, ${ofCodes(topic)}, delayq.LeasesIn{Group: ${ofCodes(group)}, Messages: []delayq.LeaseIn{{Id: message.Id, Lease: message.Lease}}})`,
      "\tcheck(err)",
      "}",
    ],
  }[does];
  const imports = ['"context"', '"fmt"', key && '"os"', lines.some((line) => line.includes("time.")) && '"time"'].filter(Boolean);
  return `package main

import (
${imports.map((one) => `\t${one}\n`).join("")}
\t"github.com/delayq/delayq/clients/go"
)

func main() {
\tctx := context.Background()
\tclient, err := delayq.New(${ofCodes(url)}${key ? ', delayq.WithAPIKey(os.Getenv("DELAYQ_API_KEY"))' : ""})
\tcheck(err)
${lines.map((line) => `\t${line}\n`).join("")}}

func check(err error) {
\tif err != nil {
\t\tpanic(err)
\t}
}
`;
}

/** @param {Call} call @param {Api} api */
function java(call, { url, key }) {
  const { does, topic = "", body, force, date, delay = "", group = "" } = call;
  const id = ofJava(call.id ?? "");
  const due = date ? `Due.at(Instant.parse(${ofJava(date)}))` : `Due.in(Duration.ofMillis(${msOf(delay)}L))`;
  const print = (/** @type {string} */ value) => [`System.out.println(${value});`];
  const lines = {
    get: print(`delayq.get(${id}).map(Found::state)`),
    cancel: print(`delayq.cancel(${id}).result()`),
    reschedule: print(`delayq.reschedule(${id}, ${due}).due()`),
    deliverNow: print(`delayq.deliverNow(${id}, ${Boolean(force)}).state()`),
    redrive: print(`delayq.redrive(List.of(${id}))`),
    discard: print(`delayq.discard(List.of(${id}))`),
    schedule: [`var message = Message.to(${ofJava(topic)})${body ? `.text(${ofJava(body)})` : ""}.due(${due});`, ...print("delayq.schedule(message).id()")],
    receive: [
      `var messages = delayq.receive(${ofJava(topic)}, ${ofJava(group)}, 10, Duration.ofSeconds(20), Duration.ofSeconds(30));`,
      "for (var message : messages) System.out.println(message.id());",
      `if (!messages.isEmpty()) delayq.ack(${ofJava(topic)}, ${ofJava(group)}, messages);`,
    ],
  }[does];
  const needs = (/** @type {string} */ name) => lines.some((line) => line.includes(`${name}.`) || line.includes(`${name}::`));
  const imports = [
    "io.delayq.DelayqClient", needs("Due") && "io.delayq.Due", needs("Found") && "io.delayq.Found", needs("Message") && "io.delayq.Message",
    needs("Duration") && "java.time.Duration", needs("Instant") && "java.time.Instant", needs("List") && "java.util.List",
  ].filter(Boolean);
  const client = key ? `DelayqClient.builder(${ofJava(url)}).apiKey(System.getenv("DELAYQ_API_KEY")).build()` : `DelayqClient.of(${ofJava(url)})`;
  return `${imports.map((one) => `import ${one};\n`).join("")}
public class Call {
    public static void main(String[] args) {
        var delayq = ${client};
${lines.map((line) => `        ${line}\n`).join("")}    }
}
`;
}
