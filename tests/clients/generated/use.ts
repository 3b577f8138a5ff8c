import createClient from "openapi-fetch";
import type { components, paths } from "./delayq.js";

type Message = components["schemas"]["MessageIn"];
type Problem = components["schemas"]["ProblemOut"];

export const dated: Message = { topic: "t", expectDate: "2027-01-31T08:00:00Z", body: { order: 42 }, keys: ["order-42"] };
export const level: Message = { topic: "t", delayLevel: 3, orderingKey: "order-42" };
export const moved: components["schemas"]["PatchIn"] = { delayTime: "1s" };
export const paused: components["schemas"]["PauseIn"] = { match: "orders.*" };
export const policy: components["schemas"]["PolicyIn"] = { match: "sms.*", rate: 50, backoff: ["10s", "1m"] };

// @ts-expect-error there is no topic
export const nowhere: Message = { delayTime: "1s" };
// @ts-expect-error there is no such field
export const wrong: Message = { topic: "t", delayTime: "1s", tag: "paid" };

export function tags(message: components["schemas"]["MessageOut"]): string {
  // @ts-expect-error a message without tags comes without the field
  return message.tags;
}

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });
const message: Message = { topic: "orders.unpaid", delayTime: "30m", id: "use", keys: ["order-42"], body: { order: 42 } };
const scheduled = await client.POST("/v1/messages", { body: message });
console.log(scheduled.data?.state);
const found = await client.GET("/v1/messages/{id}", { params: { path: { id: "use" } } });
console.log(found.data?.message?.keys?.[0], (found.data?.dueMs ?? 0) > 2 ** 32);
const cancelled = await client.POST("/v1/messages:cancel", { body: { keys: ["order-42"] } });
console.log(cancelled.data?.results[0]?.messages?.[0]?.result);
const problem: Problem | undefined = (await client.POST("/v1/messages", { body: message })).error;
console.log(problem?.type);
