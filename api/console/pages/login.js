// The login. The key is sent once, and the browser keeps a session that no script can read.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { prefix } from "../parts/frame.js";
import { tellTabs } from "../parts/live.js";
import { Trouble } from "../parts/notices.js";
import { ask, Problem } from "../parts/server.js";
import { t } from "../parts/texts.js";

/**
 * @param {{ why: Problem | null, entered: () => Promise<void> }} props `why` the session that there was has ended
 */
export function Login({ why, entered }) {
  const [problem, setProblem] = useState(why);
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => {
    document.title = `${t("page.login")} · delayq`;
    field.current.focus();
  }, []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const key = field.current.value.trim();
    setBusy(true);
    try {
      await ask("POST", "console/session", { body: { key, path: prefix() } });
      tellTabs();
      field.current.value = "";
      // A browser stores no secure cookie of a page without HTTPS: then a successful answer has no session.
      await ask("GET", "v1/me");
      await entered();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const insecure = error.status === 401 && key !== "" && !isSecureContext;
      setProblem(insecure ? new Problem(401, { detail: t("login.insecure") }) : error);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="alone">
    <h1>delayq</h1>
    <form onSubmit=${submit}>
      <label>${t("login.key")} <input ref=${field} type="password" autocomplete="current-password" required /></label>
      <button type="submit" class="primary" aria-busy=${busy ? "true" : "false"}>${t("login.enter")}</button>
    </form>
    <${Trouble} problem=${problem} />
  </main>`;
}
