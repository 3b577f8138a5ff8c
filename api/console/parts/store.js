// Values that several parts of the page use.

import { useEffect, useState } from "../vendor/standalone.module.js";

/**
 * @template T
 * @typedef {{ get(): T, set(next: T): void, subscribe(listener: () => void): () => void }} Store
 */

/**
 * @template T
 * @param {T} first
 * @returns {Store<T>}
 */
export function makeStore(first) {
  let value = first;
  /** @type {Set<() => void>} */
  const heard = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const one of [...heard]) one();
    },
    subscribe(one) {
      heard.add(one);
      return () => heard.delete(one);
    },
  };
}

/**
 * The value of a store; the component is drawn again when it changes.
 * @template T
 * @param {Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [, draw] = useState(0);
  const drawn = store.get();
  useEffect(() => {
    // A value that was set between the drawing and this moment had no listener.
    if (store.get() !== drawn) draw((n) => n + 1);
    return store.subscribe(() => draw((n) => n + 1));
  }, [store]);
  return drawn;
}
