// What the next message asks for: the choices below it.

import { $ } from "./dom.js";

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`)?.value ?? "";

/** Fields of the request. */
export function settings() {
  const mode = chosen("mode");
  const length = mode === "plain" ? "" : chosen("length");
  const temperature = $("temperature").valueAsNumber;
  const most = $("most").valueAsNumber;
  return {
    ...(mode && { mode }),
    ...(length && { draft: { n_max: Number(length) } }),
    ...(temperature >= 0 && { temperature }),
    ...(most >= 1 && { max_tokens: Math.round(most) }),
  };
}

/** Shows what the server does by itself. mode: plain, sync or async; speculates: whether another one is possible. */
export function showDefaults(mode, speculates, temperature) {
  document.querySelector(`input[name=mode][value=${CSS.escape(speculates ? mode : "plain")}]`).checked = true;
  $("mode").disabled = !speculates;
  $("mode").onchange();
  if (Number.isFinite(temperature)) $("temperature").value = Math.round(temperature * 100) / 100;
}

$("mode").onchange = () => { $("length").disabled = chosen("mode") === "plain"; };
