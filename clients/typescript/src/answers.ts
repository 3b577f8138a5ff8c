/** Checks that what a server sent is an answer of delayq: a proxy, a login page or another service may stand at the URL. */
import { NotAllowedError, RefusedError, UnavailableError, type DelayqError, type Problem } from "./errors.js";

/** Whether a value has the form of the answers of one call. */
export type Check = (answer: Record<string, unknown>) => boolean;

type Kind = "string" | "number" | "boolean" | "object" | "list" | "list?";

const PREFIX = "urn:delayq:problem:";
/** The most characters of a redirect's target that an error names. */
const MOST_LOCATION = 200;

/** Answers that have these fields. A list has objects; `list?` may be null. */
export function fields(expected: Readonly<Record<string, Kind>>): Check {
  return (answer) =>
    Object.entries(expected).every(([name, kind]) => {
      const value = answer[name];
      if (kind === "list?" && value === null) return true;
      if (kind === "list" || kind === "list?") return Array.isArray(value) && value.every(isObject);
      return kind === "object" ? isObject(value) : typeof value === kind;
    });
}

/** Answers with a result for each of so many items: either a problem, or the id or key that it is about. */
export function resultsOf(count: number): Check {
  return ({ results }) => Array.isArray(results) && results.length === count && results.every(isResult);
}

function isResult(value: unknown): boolean {
  if (!isObject(value)) return false;
  if (value["problem"] !== undefined && value["problem"] !== null) return isProblem(value["problem"]);
  return typeof value["id"] === "string" || typeof value["key"] === "string";
}

/** Whether a value is a problem that delayq wrote. */
export function isProblem(value: unknown): value is Problem {
  return isObject(value) && typeof value["detail"] === "string" && String(value["type"]).startsWith(PREFIX);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An answer as it arrived. */
export interface Answer {
  status: number;
  contentType: string;
  /** Where a redirect leads. */
  location: string;
  text: string;
}

/** The value of an answer to a call, or the problem that stands in its place. */
export function read(answer: Answer, url: string, check: Check): { value: unknown } | { problem: Problem } {
  const { status, text } = answer;
  const value = isJson(answer.contentType) ? parse(text) : undefined;
  if (status >= 200 && status < 300) {
    return isObject(value) && check(value) ? { value } : { problem: unknown(`${url} answered ${status} without an answer of delayq`, status) };
  }
  if (isProblem(value)) {
    if (status === 404 && value.detail.startsWith("Unknown path")) return { problem: unknown(`${url} has no such path`, status) };
    return { problem: { ...value, status: typeof value.status === "number" ? value.status : status } };
  }
  if (status >= 500 || status === 429) {
    const detail = `${url} answered ${status}`; // a proxy before the API
    return { problem: { type: `${PREFIX}unavailable`, title: "Unavailable", status, detail } };
  }
  if (answer.location !== "") {
    // The key is for this address alone, and a redirect may turn POST into GET.
    const there = `a redirect to '${answer.location.slice(0, MOST_LOCATION)}', which delayq does not follow`;
    return { problem: unknown(`${url} answered ${status}, ${there}`, status) };
  }
  return { problem: unknown(`${url} answered ${status} without a problem of delayq`, status) };
}

/** The problem of an answer that is not from delayq. */
export function unknown(what: string, status: number): Problem {
  return { type: `${PREFIX}unknown`, title: "Unknown answer", status, detail: `${what}: is this the URL of its API?` };
}

/** The error for a problem. */
export function errorOf(problem: Problem, ids: readonly string[] = []): RefusedError | UnavailableError {
  if ([502, 503, 504].includes(problem.status)) return new UnavailableError(problem.detail, ids, problem);
  const isNotAllowed = problem.status === 401 || problem.status === 403;
  return isNotAllowed ? new NotAllowedError(problem, ids) : new RefusedError(problem, ids);
}

/** Whether the error of a call means that the API is away or busy, so that a later call may succeed. */
export function isPassing(error: unknown): error is DelayqError {
  return error instanceof UnavailableError || (error instanceof RefusedError && isPassingStatus(error.status));
}

/** The same for the status of one item. */
export function isPassingStatus(status: number): boolean {
  return status === 429 || status >= 500;
}

/** JSON may come without a type, or as plain text; a page of HTML is no answer, whatever is in it. */
function isJson(contentType: string): boolean {
  return contentType === "" || /json|^text\/plain/i.test(contentType);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
