/**
 * A body that is JSON text already. It is sent as it is, so that numbers such as `1.0` and `12345678901234567890` keep their digits.
 * Throws SyntaxError if the text is not JSON.
 */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    JSON.parse(text);
    this.text = text;
  }
}

/** The JSON text of a value. Throws TypeError for values that `JSON.stringify` would write as something else. */
export function write(value: unknown): string {
  return JSON.stringify(value, refuse);
}

/** The JSON text of an object with one more field, whose text is given. */
export function withField(fields: object, name: string, text: string): string {
  const written = write(fields);
  return `${written.slice(0, -1)}${written === "{}" ? "" : ","}${JSON.stringify(name)}:${text}}`;
}

function refuse(name: string, value: unknown): unknown {
  const where = name === "" ? "" : ` (${name})`;
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`JSON has no number ${value}${where}; use a string or null`);
  }
  if (typeof value === "bigint") throw new TypeError(`JSON.stringify writes no BigInt${where}; give the body as a RawJson`);
  if (value instanceof Map || value instanceof Set || value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
    throw new TypeError(`JSON has no ${value.constructor.name}${where}; use an object, an array or text`);
  }
  return value;
}
