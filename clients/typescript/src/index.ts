export { DelayqClient } from "./client.js";
export type * from "./client.js";
export type { ConsumeOptions, Handler } from "./consume.js";
export { DelayqError, NotAllowedError, RefusedError, UnavailableError, type Problem } from "./errors.js";
export type { ClientOptions } from "./http.js";
export { RawJson } from "./json.js";
export {
  handBacksOf,
  json,
  Leased,
  Received,
  readKafka,
  readRabbitMq,
  readRocketMq,
  readWebhook,
  text,
  type AmqpProperties,
  type HeaderSource,
  type ReceivedFields,
  type RocketMqMessage,
} from "./received.js";
export { SignatureError, verifyWebhook } from "./webhook.js";
export type { components, paths } from "./schema.js";
