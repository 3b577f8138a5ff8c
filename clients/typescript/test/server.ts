/** A small server for the tests. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";

export type Answer = (request: { method: string; path: string; body: any; headers: IncomingMessage["headers"] }, response: ServerResponse) => void;

const open: ReturnType<typeof createServer>[] = [];

after(() => open.forEach((server) => server.close()));

/** A server that gives these answers in turn, the last one for ever; and what it was asked. */
export async function serverThat(...answers: Answer[]): Promise<{ url: string; asked: any[]; texts: string[] }> {
  const asked: any[] = [];
  const texts: string[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.setEncoding("utf-8");
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const seen = { method: request.method ?? "", path: request.url ?? "", body: text && JSON.parse(text), headers: request.headers };
      asked.push(seen);
      texts.push(text);
      (answers[Math.min(asked.length, answers.length) - 1] as Answer)(seen, response);
    });
  });
  server.keepAliveTimeout = 1;
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, texts };
}

export function says(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  return (_, response) => void response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
}

export function problem(status: number, kind: string, detail = "No."): object {
  return { type: `urn:delayq:problem:${kind}`, title: kind, status, detail };
}

export const drops: Answer = (_, response) => void response.destroy();
export const schedules: Answer = (request, response) =>
  says(200, {
    results: request.body.messages.map((one: any) => ({ status: 201, id: one.id, queue: 0, state: "scheduled", dueTime: "2033-01-01T00:00:00.000Z", dueMs: 1988150400000 })),
  })(request, response);
