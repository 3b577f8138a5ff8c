// Single keys, which nothing on the page needs, and which are off in every text field.

import { useLayoutEffect, useRef } from "../vendor/standalone.module.js";

/** @param {EventTarget | null} target */
function types(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/**
 * The actions of single keys while the component exists; `"g o"` is o after g.
 * @param {Record<string, () => unknown>} meanings
 */
export function useKeys(meanings) {
  const current = useRef(meanings);
  current.current = meanings;
  // Keys work from the moment at which their targets are visible.
  useLayoutEffect(() => {
    let before = "";
    let at = 0;
    const heard = (/** @type {KeyboardEvent} */ event) => {
      const checkbox = event.target instanceof HTMLInputElement && event.target.type === "checkbox";
      if (event.ctrlKey || event.metaKey || event.altKey || (types(event.target) && !checkbox)) return;
      if (document.querySelector("dialog[open]")) return;
      const two = performance.now() - at < 1_500 ? `${before} ${event.key}` : "";
      before = event.key;
      at = performance.now();
      const act = current.current[two] ?? (two.startsWith("g ") ? undefined : current.current[event.key]);
      if (act === undefined) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", heard);
    return () => removeEventListener("keydown", heard);
  }, []);
}
