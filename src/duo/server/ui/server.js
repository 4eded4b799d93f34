// Requests to the server, with the key that the user gives.

import { $ } from "./dom.js";

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const KEY = "duo-key"; // in sessionStorage only

/** Asks the user for the key. False: they would rather not say. */
let asking = null;
function askForKey() {
  asking ??= new Promise((done) => {
    const dialog = $("keys");
    dialog.onclose = () => {
      asking = null;
      done(dialog.returnValue === "given");
    };
    dialog.returnValue = "";
    $("key").value = "";
    dialog.showModal();
  });
  return asking;
}
$("keys-form").onsubmit = (e) => {
  e.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  $("keys").close("given");
};
$("no-key").onclick = () => $("keys").close("");

/** fetch with the key. Throws an Error with the server's sentence. */
export async function call(path, { body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...(body && { "Content-Type": "application/json" }) };
    let response;
    try {
      response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
    } catch (e) {
      if (e.name === "AbortError") throw e;
      throw new Error("The server cannot be reached.");
    }
    if (response.ok) return response;
    if (response.status === 401 && sessionStorage.getItem(KEY) !== key) continue; // another request has asked
    if (response.status === 401 && (await askForKey())) continue;
    const said = await response.json().catch(() => null);
    throw Object.assign(new Error(said?.error?.message ?? `The server answered with status ${response.status}.`), { status: response.status });
  }
}

/** The data of a stream of events, parsed, until [DONE]. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}
