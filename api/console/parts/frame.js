// The frame of every page: the menu, the search, the pauses, the age of the figures, and the keys.

import { html, useRef, useState } from "../vendor/standalone.module.js";
import { Dialog } from "./dialog.js";
import { useKeys } from "./keys.js";
import { live, mayEverywhere, me, tellTabs } from "./live.js";
import { Freshness, PauseText, why } from "./notices.js";
import { go, href } from "./router.js";
import { ask, Problem } from "./server.js";
import { makeStore, useStore } from "./store.js";
import { language, LANGUAGES, speak, t } from "./texts.js";
import { setTheme, theme, THEMES } from "./theme.js";
import { setZone, zone } from "./times.js";

/** The outcome of an action, read out by screen readers; actions set it. */
export const announced = makeStore("");

/**
 * @param {{ pages: { name: string, key: string }[], here: import("./router.js").Place, children?: any }} props
 */
export function Frame({ pages, here, children }) {
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false); // open, on a phone
  const [stays, setStays] = useState(/** @type {Problem | null} */ (null));
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const who = useStore(me);
  const { at, problem } = useStore(live);
  useKeys({
    "/": () => search.current?.select(),
    "?": () => setHelp(true),
    ...Object.fromEntries(pages.map((one) => [`g ${one.key}`, () => go([one.name])])),
  });
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => {
    e.preventDefault();
    main.current?.focus();
  }}>${t("frame.skip")}</a>
    <header class=${menu ? "top open" : "top"}>
      <button type="button" class="menu" aria-expanded=${menu ? "true" : "false"} aria-controls="pages" onClick=${() => setMenu(!menu)}>
        <span aria-hidden="true">${menu ? "✕" : "☰"}</span><span class="hidden">${t("frame.menu")}</span>
      </button>
      <a class="brand" href="#/">delayq</a>
      <nav id="pages" aria-label=${t("frame.menu")}>
        <ul>
          ${pages.map(
            (one) => html`<li key=${one.name}>
              <a href=${href([one.name])} aria-current=${here.page === one.name ? "page" : undefined} onClick=${() => setMenu(false)}>${t(`page.${one.name}`)}</a>
            </li>`,
          )}
        </ul>
      </nav>
      <${Search} input=${search} />
      <div class="tools">
        <${Choices} />
        ${who?.session &&
        html`<span>${who.name} <button type="button" class="small" onClick=${() => leave().then(setStays)}>${t("frame.leave")}</button></span>`}
        <button type="button" class="small keyboard" aria-label=${t("frame.keys")} onClick=${() => setHelp(true)}>?</button>
      </div>
    </header>
    ${stays && html`<p class="trouble" role="alert">${why(stays)} ${t("frame.stays")}</p>`}
    <${Pauses} />
    <main id="main" tabindex="-1" ref=${main}>${children}</main>
    <div class="hidden" role="status" aria-live="polite"><${Announced} /></div>
    <footer class="bottom">
      <${Freshness} at=${at} problem=${problem} />
      ${who?.name === null && html`<span>${t("frame.open")}</span>`}
      ${who && !mayEverywhere("read") && html`<span>${t("frame.some", { topics: topicsRead(who) })}</span>`}
      ${who?.console === "readOnly" && html`<span>${t("frame.read_only")}</span>`}
      <span>delayq ${who?.version}</span>
      <a href="../docs">${t("frame.api")}</a>
    </footer>
    ${help && html`<${Keys} pages=${pages} close=${() => setHelp(false)} />`}`;
}

/** @param {import("./live.js").Me} who */
function topicsRead({ scopes }) {
  return Object.keys(scopes).filter((match) => scopes[match].includes("read")).join(", ");
}

function Announced() {
  return useStore(announced);
}

/** End the session, or show why it continues. @returns {Promise<Problem | null>} */
async function leave() {
  try {
    await ask("DELETE", "console/session", { query: { path: prefix() } });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return error;
  }
  tellTabs();
  location.reload();
  return null;
}

/** The base of the API's paths for this page: a proxy may serve it under a prefix. */
export function prefix() {
  return location.pathname.replace(/console\/[^/]*$/, "");
}

/** @param {{ input: any }} props */
function Search({ input }) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = input.current.value.trim();
    if (text) go(["messages"], { find: text });
  };
  return html`<form role="search" onSubmit=${submit}>
    <input ref=${input} type="search" aria-label=${t("frame.search")} placeholder=${t("frame.search")} maxlength="1024" />
    <button type="submit">${t("frame.find")}</button>
  </form>`;
}

function Choices() {
  const look = useStore(theme);
  const tongue = useStore(language);
  const clock = useStore(zone);
  const choice = (/** @type {string} */ name, /** @type {string} */ value, /** @type {[string, string][]} */ all, /** @type {(v: string) => unknown} */ set) =>
    html`<label
      >${name}
      <select value=${value} onChange=${(/** @type {any} */ e) => set(e.target.value)}>
        ${all.map(([one, text]) => html`<option value=${one} selected=${one === value}>${text}</option>`)}
      </select></label
    >`;
  return html`<details class="choices">
    <summary>${t("frame.choices")}</summary>
    <div>
      ${choice(t("frame.theme"), look, THEMES.map((one) => [one, t(`theme.${one}`)]), setTheme)}
      ${choice(t("frame.language"), tongue, Object.entries(LANGUAGES).map(([tag, one]) => [tag, one.name]), speak)}
      ${choice(t("frame.zone"), clock, [["local", t("zone.local")], ["UTC", "UTC"]], setZone)}
    </div>
  </details>`;
}

/** The pauses, on every page, so that everybody knows why nothing is delivered. */
function Pauses() {
  const { data } = useStore(live);
  const pauses = data?.pauses ?? [];
  if (pauses.length === 0) return null;
  const one = (/** @type {any} */ pause) => html`<li key=${pause.match}>
    <a href=${href(["topics"], { match: pause.match })}><strong>${pause.match}</strong></a>${" "}
    <span class="reason"><${PauseText} pause=${pause} /></span>
  </li>`;
  return html`<aside class="banner" aria-label=${t("pauses.paused")}>
    <b class="state held">${t("pauses.paused")}</b>
    <ul>${pauses.slice(0, 3).map(one)}</ul>
    ${pauses.length > 3 && html`<a href=${href(["topics"], { paused: "yes" })}>${t("pauses.more", { count: pauses.length - 3 })}</a>`}
  </aside>`;
}

/** @param {{ pages: { name: string, key: string }[], close: () => void }} props */
function Keys({ pages, close }) {
  const rows = [
    ["/", t("keys.search")],
    ...pages.map((one) => [`g ${one.key}`, t(`page.${one.name}`)]),
    ["j k", t("keys.rows")],
    ["x", t("keys.select")],
    ["Enter", t("keys.open")],
    ["?", t("keys.help")],
  ];
  return html`<${Dialog} title=${t("frame.keys")} close=${close}>
    <dl class="keys">${rows.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
  <//>`;
}
