import type { components } from "./schema.js";

/** What the API answers in place of a result: RFC 9457, with the fields of delayq. */
export type Problem = components["schemas"]["ProblemOut"];

/** Everything that this client throws, except for mistakes in its options. */
export class DelayqError extends Error {
  /** The ids of the messages that the failed call was about. Repeat it with these ids. */
  readonly ids: readonly string[];

  constructor(message: string, ids: readonly string[] = [], options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.ids = ids;
  }
}

/** The API refused the call. `problem` says why, and what to do. */
export class RefusedError extends DelayqError {
  readonly problem: Problem;

  constructor(problem: Problem, ids: readonly string[] = []) {
    super(problem.field ? `${problem.detail} (${problem.field})` : problem.detail, ids);
    this.problem = problem;
  }

  get status(): number {
    return this.problem.status;
  }

  /** The end of `problem.type`: `invalid`, `conflict`, `not-found`, … */
  get kind(): string {
    return this.problem.type.replace(/^urn:delayq:problem:/, "");
  }
}

/** The key is unknown (401) or does not allow the call (403). */
export class NotAllowedError extends RefusedError {}

/**
 * The API gave no final answer in time. The outcome of the last attempt may be unknown.
 * Repeat the call; for a message, with the id in `ids`.
 */
export class UnavailableError extends DelayqError {
  /** The last problem that the API answered, if there was one. */
  readonly problem: Problem | undefined;

  constructor(message: string, ids: readonly string[] = [], problem?: Problem, options?: { cause?: unknown }) {
    super(message, ids, options);
    this.problem = problem;
  }
}
