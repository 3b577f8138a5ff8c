// The console: it identifies the caller, then shows the page in the address, within the frame of all pages.

import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/standalone.module.js";
import { Frame } from "./parts/frame.js";
import { hello, keepLooking, live, mayEverywhere, me, whenSeen } from "./parts/live.js";
import { Trouble } from "./parts/notices.js";
import { place } from "./parts/router.js";
import { Problem, session } from "./parts/server.js";
import { useStore } from "./parts/store.js";
import { language, preferred, speak, t } from "./parts/texts.js";
import { showTheme } from "./parts/theme.js";
import { today, zone } from "./parts/times.js";
import { Login } from "./pages/login.js";

/**
 * The component of a page, or of a part of it; it is loaded on the first visit. A page has a name in the address, a key after
 * `g`, a component, and a component of one of its items. `everywhere`: it shows all topics, so a key for some topics does not
 * get it.
 * @typedef {() => Promise<any>} Load
 *
 * A page: its name in the address, the key behind `g` that leads to it, what shows it, and what shows one thing of it.
 * `everywhere`: it is of all topics, so not for a key that may read some.
 * @typedef {{ name: string, key: string, page: Load, one?: Load, everywhere?: boolean }} Page
 */

/** The pages in the order of the menu. A page of a later feature is one line here. @type {Page[]} */
const PAGES = [
  { name: "overview", key: "o", page: async () => (await import("./pages/overview.js")).Overview, everywhere: true },
  {
    name: "messages",
    key: "m",
    page: async () => (await import("./pages/messages.js")).Messages,
    one: async () => (await import("./pages/message.js")).Message,
  },
  { name: "timeline", key: "s", page: async () => (await import("./pages/timeline.js")).Timeline },
  {
    name: "topics",
    key: "t",
    page: async () => (await import("./pages/topics.js")).Topics,
    one: async () => (await import("./pages/topic.js")).Topic,
  },
  { name: "queues", key: "q", page: async () => (await import("./pages/queues.js")).Queues, everywhere: true },
  { name: "consumers", key: "c", page: async () => (await import("./pages/consumers.js")).Consumers },
  { name: "dead-letters", key: "d", page: async () => (await import("./pages/dead_letters.js")).DeadLetters },
  { name: "audit", key: "a", page: async () => (await import("./pages/audit.js")).Audit },
];

/** The runbook is not in the menu: findings lead to its sections. */
const RUNBOOK = { name: "runbook", key: "", page: async () => (await import("./pages/runbook.js")).Runbook };

/** The loaded components. @type {Map<Load, any>} */
const loaded = new Map();

/** Whether a key is required; null until that is known. @type {{ why: Problem | null }} */
const wanted = { why: null };

function App() {
  const [state, setState] = useState("starting");
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const who = useStore(me);
  useStore(language);
  useStore(zone); // texts hold times
  useStore(today);
  const start = async () => {
    try {
      const known = await hello();
      setState(known ? "in" : "out");
      if (known) keepLooking();
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, { detail: String(error) }));
      setState("away");
      whenSeen(start, 2_000);
    }
  };
  useEffect(() => {
    session.ended = (why) => {
      wanted.why = me.get() === null ? null : why;
      me.set(null);
      live.set({ data: null, at: 0, problem: null });
      setState("out");
    };
    void start();
  }, []);
  if (state === "away") return html`<main class="alone"><h1>delayq</h1><${Trouble} problem=${problem} /></main>`;
  if (state === "starting") return null;
  if (state === "out" || who === null) return html`<${Login} why=${wanted.why} entered=${start} />`;
  return html`<${Inside} />`;
}

function Inside() {
  const here = useStore(place);
  const pages = PAGES.filter((one) => !one.everywhere || mayEverywhere("read"));
  const name = here.page || pages[0].name;
  const found = name === RUNBOOK.name ? RUNBOOK : pages.find((one) => one.name === name);
  const load = found && here.rest.length > 0 && "one" in found && found.one ? found.one : found?.page;
  useEffect(() => {
    document.title = `${found === undefined ? t("page.nowhere") : t(`page.${found.name}`)} · delayq`;
  });
  return html`<${Frame} pages=${pages} here=${{ ...here, page: name }}>
    <${Guard} key=${[name, ...here.rest].join("/")} view=${JSON.stringify(here.query)}>
      ${load === undefined ? html`<${Nowhere} />` : html`<${Loaded} load=${load} rest=${here.rest} query=${here.query} />`}
    <//>
  <//>`;
}

/**
 * A page, once it is loaded. If it cannot be loaded, the API may have another version, whose files have other names.
 * @param {{ load: Load, rest: string[], query: Record<string, string> }} props
 */
function Loaded({ load, rest, query }) {
  const [, draw] = useState(0);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    if (loaded.has(load)) return;
    load().then(
      (page) => {
        loaded.set(load, page);
        draw((n) => n + 1);
      },
      () => setFailed(true),
    );
  }, [load]);
  const Shown = loaded.get(load);
  useArrival(Shown !== undefined);
  if (Shown !== undefined) return html`<${Shown} key=${rest.join("/")} rest=${rest} query=${query} />`;
  if (!failed) return null;
  return html`<div role="alert" class="trouble">
    <p>${t("trouble.not_loaded")}</p>
    <button type="button" onClick=${() => location.reload()}>${t("trouble.reload")}</button>
  </div>`;
}

/**
 * A page that fails shows that, and the other parts continue, as does another view of the page.
 * @param {{ view: string, children?: any }} props
 */
function Guard({ view, children }) {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(reset, [view]);
  if (!error) return children;
  return html`<div role="alert" class="trouble">
    <p>${t("trouble.broken", { error: String(error.message ?? error) })}</p>
    <button type="button" onClick=${reset}>${t("refresh.now")}</button>
  </div>`;
}

let arrived = false;

/**
 * A reader that follows a link gets the page's heading read out, not the menu again.
 * @param {boolean} there the page is drawn
 */
function useArrival(there) {
  useEffect(() => {
    if (!there) return;
    if (arrived) /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus();
    arrived = true;
  }, [there]);
}

function Nowhere() {
  useArrival(true);
  return html`<h1 tabindex="-1">${t("page.nowhere")}</h1>
    <p><a href="#/">${t("frame.first")}</a></p>`;
}

showTheme();
speak(preferred()).finally(() => {
  const root = document.getElementById("app");
  if (root) render(html`<${App} />`, root);
});
