// A section of the runbook, which the API serves beside the console: it opens without a connection to the internet.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { href } from "../parts/router.js";
import { t } from "../parts/texts.js";

const PAGE = new URL("../docs/runbook.md", import.meta.url);

/**
 * A section: its title, its anchor, and its blocks.
 * @typedef {{ title: string, anchor: string, lines: string[] }} Section
 */

/** @param {{ rest: string[] }} props */
export function Runbook({ rest: [wanted] }) {
  const [sections, setSections] = useState(/** @type {Section[] | null} */ (null));
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    fetch(PAGE)
      .then((answer) => (answer.ok ? answer.text() : Promise.reject(new Error(String(answer.status)))))
      .then((text) => setSections(sectionsOf(text)))
      .catch(() => setFailed(true));
  }, []);
  const one = sections?.find(({ anchor }) => anchor === wanted);
  return html`<h1 tabindex="-1">${one?.title ?? t("page.runbook")}</h1>
    ${failed && html`<p class="trouble" role="alert">${t("runbook.missing")} <code>docs/runbook.md${wanted && `#${wanted}`}</code></p>`}
    ${!failed && sections === null && html`<p class="empty" aria-busy="true">${t("fresh.loading")}</p>`}
    ${one && html`<section class="card prose">${blocksOf(one.lines)}</section>`}
    ${sections && wanted && !one && html`<p class="empty">${t("runbook.no_such")}</p>`}
    ${
      sections &&
      html`<section class="prose">
        ${one && html`<h2>${t("runbook.others")}</h2>`}
        <p class="actions">${sections.filter((other) => other !== one).map(({ title, anchor }) => html`<a key=${anchor} href=${href(["runbook", anchor])}>${title}</a>`)}</p>
      </section>`
    }`;
}

/** @param {string} text of the page @returns {Section[]} */
function sectionsOf(text) {
  const parts = text.split(/^## /m).slice(1);
  return parts.map((part) => {
    const [title, ...lines] = part.split("\n");
    return { title, anchor: title.toLowerCase().replace(/[^a-z0-9 -]/g, "").replaceAll(" ", "-"), lines };
  });
}

/**
 * The paragraphs and lists of a section. A line that begins an item begins a block; other lines continue it.
 * @param {string[]} lines
 */
function blocksOf(lines) {
  /** @type {{ level: number, text: string }[]} */
  const blocks = [];
  let ended = true;
  for (const line of lines) {
    const item = /^( *)- (.*)$/.exec(line);
    if (line.trim() === "") ended = true;
    else if (item !== null) blocks.push({ level: 1 + item[1].length / 2, text: item[2] });
    else if (ended || blocks.length === 0) blocks.push({ level: 0, text: line.trim() });
    else blocks[blocks.length - 1].text += ` ${line.trim()}`;
    if (line.trim() !== "") ended = false;
  }
  return listsOf(blocks, 0);
}

/** @param {{ level: number, text: string }[]} blocks @param {number} level @returns {any[]} */
function listsOf(blocks, level) {
  const made = [];
  for (let at = 0; at < blocks.length; ) {
    let end = at + 1;
    if (blocks[at].level > level) {
      // The items of one list, each with the lists in it.
      while (end < blocks.length && blocks[end].level > level) end += 1;
      const own = blocks.slice(at, end);
      const begins = own.flatMap((one, i) => (one.level === level + 1 ? [i] : []));
      made.push(html`<ul>${begins.map((from, i) => html`<li>${inline(own[from].text)}${listsOf(own.slice(from + 1, begins[i + 1] ?? own.length), level + 1)}</li>`)}</ul>`);
    } else made.push(html`<p>${inline(blocks[at].text)}</p>`);
    at = end;
  }
  return made;
}

const MARK = /`([^`]+)`|\*\*(.+?)\*\*|\*([^*]+)\*|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)]+)\)/g;

/**
 * Code, emphasis and links. A link to a section of the runbook leads there. The console has no other page of the docs, so
 * it shows only the text of such a link.
 * @param {string} text
 * @returns {any[]}
 */
function inline(text) {
  const made = [];
  let from = 0;
  for (const found of text.matchAll(MARK)) {
    const [whole, code, strong, weak, name, to] = found;
    made.push(text.slice(from, found.index));
    from = Number(found.index) + whole.length;
    if (code !== undefined) made.push(html`<code>${code}</code>`);
    else if (strong !== undefined) made.push(html`<strong>${inline(strong)}</strong>`);
    else if (weak !== undefined) made.push(html`<em>${inline(weak)}</em>`);
    else if (to.startsWith("#")) made.push(html`<a href=${href(["runbook", to.slice(1)])}>${inline(name)}</a>`);
    else made.push(...inline(name));
  }
  return [...made, text.slice(from)];
}
