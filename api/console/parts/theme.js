// Light, dark, or the system's choice.

import { makeStore } from "./store.js";
import { remember, remembered } from "./texts.js";

const KEPT = "delayq.theme";
export const THEMES = ["system", "light", "dark"];

/** @type {import("./store.js").Store<string>} */
export const theme = makeStore("system");

/** @param {string} wanted */
export function setTheme(wanted) {
  remember(KEPT, wanted);
  showTheme(wanted);
}

/** @param {string | null} [wanted] without it as it was chosen last */
export function showTheme(wanted = remembered(KEPT)) {
  const one = wanted !== null && THEMES.includes(wanted) ? wanted : "system";
  document.documentElement.dataset.theme = one;
  theme.set(one);
}

const system = matchMedia("(prefers-color-scheme: dark)");

/** Whether it is dark now. */
export function isDark() {
  return theme.get() === "dark" || (theme.get() === "system" && system.matches);
}

// Charts read their colors when they are drawn.
system.addEventListener("change", () => theme.set(theme.get()));
