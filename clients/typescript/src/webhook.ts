import { createHmac, timingSafeEqual } from "node:crypto";

import { bytes, readWebhook, reader, Received, type HeaderSource } from "./received.js";

export { json, readWebhook, Received, text, type HeaderSource, type ReceivedFields } from "./received.js";

/** The request was not signed by this delayq, or it was signed too long ago. Answer it with 401. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/**
 * The message of a webhook request that delayq signed within the last `tolerance` seconds (300).
 * Throws SignatureError for everything else.
 *
 * `body` is the body as it arrived, in bytes: a parsed and written one has another signature.
 * `secret` is the route's (`whsec_…`); give both secrets while you change them.
 */
export function verifyWebhook(
  headers: HeaderSource,
  body: Uint8Array | string,
  secret: string | readonly string[],
  options: { tolerance?: number; now?: number } = {},
): Received {
  const get = reader(headers);
  const [id, timestamp, signatures] = [get("webhook-id"), get("webhook-timestamp"), get("webhook-signature")];
  if (!id || !timestamp || !signatures) throw new SignatureError("the request is not signed");
  const given = signatures.split(" ").map((one) => Buffer.from(one));
  const signed = (Array.isArray(secret) ? (secret as readonly string[]) : [secret as string]).some((one) => {
    const key = Buffer.from(one.replace(/^whsec_/, ""), "base64");
    const digest = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(bytes(body)).digest("base64");
    const expected = Buffer.from(`v1,${digest}`);
    return given.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  });
  if (!signed) throw new SignatureError("the signature is wrong");
  const age = Math.abs((options.now ?? Date.now()) / 1_000 - Number(timestamp));
  if (!(age <= (options.tolerance ?? 300))) throw new SignatureError("it was signed too long ago: it may be a replay");
  const message = readWebhook(headers, body);
  // Only the id, the time and the body are signed: the id of the message is the signed one.
  return new Received({ ...message, id: id.replaceAll("~", ".") });
}
