// The page of duo serve. Whatever comes from the server is shown as text, never as HTML.

import { Conversations } from "./conversations.js";
import { $ } from "./dom.js";
import { Lanes } from "./lanes.js";
import { call, pause } from "./server.js";
import { showDefaults } from "./settings.js";

// ---- looks

const THEMES = ["auto", "light", "dark"];
function wear(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  lanes.recolour();
}
$("theme").onclick = () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("duo-theme", next);
  wear(next);
};
$("colours").onclick = () => {
  const on = $("colours").getAttribute("aria-pressed") !== "true";
  $("colours").setAttribute("aria-pressed", String(on));
  $("logs").classList.toggle("bare", !on);
};

// ---- start

const lanes = new Lanes($("lanes"));
const worn = () => localStorage.getItem("duo-theme");
wear(THEMES.includes(worn()) ? worn() : "auto");
const conversations = new Conversations(lanes);

async function start() {
  for (;;) {
    try {
      const props = await (await call("props")).json();
      const defaults = props.default_generation_settings.params;
      const { draft, speculates, max_body: mostBytes, page } = props.duo;
      conversations.knows(Boolean(props.modalities?.vision), mostBytes);
      $("models").textContent = draft ? `${props.model_name} with ${draft}` : props.model_name;
      document.title = `duo: ${props.model_alias}`;
      showDefaults(defaults.mode, speculates, page, defaults.temperature);
      if (!THEMES.includes(worn())) wear(page.theme);
      lanes.wake();
      return;
    } catch (e) {
      $("models").textContent = e.status === 503 ? "The models are being loaded" : e.message;
      if (e.status === 401) return;
      await pause(1000);
    }
  }
}
start();
