// What the next message asks for: the choices below it.

import { $ } from "./dom.js";

let fields = {}; // of each request, from --ui-config
let system = "";
const shown = { temperature: null, most: null }; // what the owner wants, as the page shows it

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`)?.value ?? "";

/** Fields of the request. */
export function settings() {
  const mode = chosen("mode");
  const length = mode === "plain" ? "" : chosen("length");
  const { temperature, max_tokens, ...others } = fields;
  return {
    ...others,
    ...(mode && { mode }),
    ...(length && { draft: { n_max: Number(length) } }),
    ...number("temperature", "temperature", temperature, 0),
    ...number("most", "max_tokens", max_tokens, 1, Math.round),
  };
}

/** A field of the request: the owner's value as it is, unless the reader has changed what is shown. Without a number there is none. */
function number(id, name, own, least, rounded = (x) => x) {
  const { value, valueAsNumber } = $(id);
  if (value === shown[id]) return own === undefined ? {} : { [name]: own };
  return valueAsNumber >= least ? { [name]: rounded(valueAsNumber) } : {};
}

/** The messages before those of a conversation. */
export const instructions = () => (system ? [{ role: "system", content: system }] : []);

/** Shows what the server does by itself. mode: plain, sync or async; speculates: whether another one is possible; own: what its owner wants of the page. */
export function showDefaults(mode, speculates, own, temperature) {
  ({ system, fields } = own);
  document.querySelector(`input[name=mode][value=${CSS.escape(speculates ? mode : "plain")}]`).checked = true;
  $("mode").disabled = !speculates;
  $("mode").onchange();
  const warmth = fields.temperature ?? temperature;
  if (Number.isFinite(warmth)) $("temperature").value = Math.round(warmth * 100) / 100;
  shown.temperature = $("temperature").value;
  if (fields.max_tokens === undefined) return;
  $("most").value = fields.max_tokens >= 1 ? fields.max_tokens : "";
  shown.most = $("most").value;
}

$("mode").onchange = () => { $("length").disabled = chosen("mode") === "plain"; };
