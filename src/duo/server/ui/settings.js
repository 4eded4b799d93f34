// What the next message asks for: the choices below it.

import { $ } from "./dom.js";

let fields = {}; // of each request, from --ui-config
let system = "";

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`)?.value ?? "";

/** Fields of the request. */
export function settings() {
  const mode = chosen("mode");
  const length = mode === "plain" ? "" : chosen("length");
  const temperature = $("temperature").valueAsNumber;
  const most = $("most").valueAsNumber;
  return {
    ...fields,
    ...(mode && { mode }),
    ...(length && { draft: { n_max: Number(length) } }),
    ...(temperature >= 0 && { temperature }),
    ...(most >= 1 && { max_tokens: Math.round(most) }),
  };
}

/** The messages before those of a conversation. */
export const instructions = () => (system ? [{ role: "system", content: system }] : []);

/** Shows what the server does by itself. mode: plain, sync or async; speculates: whether another one is possible; own: what its owner wants of the page. */
export function showDefaults(mode, speculates, own, temperature) {
  ({ system, fields } = own);
  document.querySelector(`input[name=mode][value=${CSS.escape(speculates ? mode : "plain")}]`).checked = true;
  $("mode").disabled = !speculates;
  $("mode").onchange();
  const shown = fields.temperature ?? temperature;
  if (Number.isFinite(shown)) $("temperature").value = Math.round(shown * 100) / 100;
  if (fields.max_tokens !== undefined) $("most").value = fields.max_tokens >= 1 ? fields.max_tokens : "";
}

$("mode").onchange = () => { $("length").disabled = chosen("mode") === "plain"; };
