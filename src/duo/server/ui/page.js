// The page of duo serve. Whatever comes from the server is shown as text, never as HTML.

import { $, make } from "./dom.js";
import { PictureStrip, contentOf } from "./pictures.js";

const number = (x, digits = 1) => x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = (x) => `${Math.round(100 * x)} %`;
const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// ---- the server

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
async function call(path, { body, signal } = {}) {
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
async function* eventsOf(response) {
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

// ---- who wrote what

/** Splits new text by origin: [text, whether the draft guessed it]. */
function byOrigin(text, tokens) {
  if (tokens.map((t) => t.text).join("") === text) return tokens.filter((t) => t.text).map((t) => [t.text, t.from_draft]);
  return [[text, tokens.at(-1)?.from_draft ?? false]]; // the server has taken something out
}

/** Appends to the last span if the origin is the same, so that a long text stays a small document. */
function append(node, text, fromDraft) {
  const kind = fromDraft ? "d" : "t";
  const last = node.lastElementChild;
  if (last?.className === kind) {
    last.firstChild.appendData(text);
    return;
  }
  // A space before a word of the target is not underlined.
  const words = fromDraft || !last ? text : text.trimStart();
  last?.firstChild.appendData(text.slice(0, text.length - words.length));
  if (words) node.append(make("span", { className: kind }, words));
}

/** Figures of a text while it is written: each pass brings the guesses that were right, and one token of the target. */
class Passes {
  n = 0;
  run = 0;
  accepted = [];
  fromDraft = 0;
  tokens = 0;

  add(fromDraft) {
    this.tokens += 1;
    if (fromDraft) {
      this.fromDraft += 1;
      this.run += 1;
      return;
    }
    this.n += 1;
    for (let i = 0; i < this.run; i++) this.accepted[i] = (this.accepted[i] ?? 0) + 1;
    this.run = 0;
  }

  get byPosition() {
    return this.accepted.map((n) => n / this.n);
  }
}

/** Milliseconds of a pass over one row: what plain decoding takes for a token. The newest measurement. */
let plainPassMs = null;

// ---- the figures beside an answer

class Figures {
  constructor(how) {
    this.rate = make("span", { className: "rate" }, "\u2013");
    this.times = make("span", { className: "times" });
    this.race = make("div", { className: "race" });
    this.mine = this.#lane("this text", "mine");
    this.plain = this.#lane("plain decoding", "plain");
    this.columns = make("ol");
    this.positions = make("div", { className: "positions", hidden: true }, make("span", {}, "Accepted by position"), this.columns);
    this.list = make("dl");
    const summary = make("summary", {}, this.rate, "tokens/s", this.times, make("span", { className: "how" }, how));
    this.node = make("details", { className: "figures", open: !matchMedia("(max-width: 45rem)").matches }, summary, this.race, this.positions, this.list);
  }

  #lane(name, kind) {
    const bar = make("i");
    const value = make("b", {}, "\u2013");
    this.race.append(make("div", { className: kind }, make("span", {}, name), make("span", {}, bar), value));
    return { bar, value };
  }

  show(timings, passes) {
    const rate = timings.predicted_per_second || 0;
    const plainMs = plainPassMs ?? lanes.plainPassMs;
    const plain = plainMs ? 1000 / plainMs : 0;
    const most = Math.max(rate, plain, 1e-9);
    this.rate.textContent = rate ? number(rate) : "\u2013";
    for (const [{ bar, value }, x] of [[this.mine, rate], [this.plain, plain]]) {
      bar.style.setProperty("--share", `${(100 * x) / most}%`);
      value.textContent = x ? number(x) : "\u2013";
    }
    const ratio = rate && plain ? rate / plain : 0;
    this.times.textContent = ratio ? `${number(ratio)} \u00d7 plain` : "";
    this.times.classList.toggle("less", ratio < 1);
    this.#showPositions(timings.draft_acceptance_by_position ?? passes.byPosition);
    this.#showList(timings, passes);
  }

  #showPositions(shares) {
    this.positions.hidden = shares.length === 0;
    while (this.columns.children.length > shares.length) this.columns.lastElementChild.remove();
    shares.forEach((share, i) => {
      const found = this.columns.children[i] ?? this.columns.appendChild(
        make("li", {}, make("span", { className: "column" }, make("i")), make("b"), make("small", {}, String(i + 1))));
      found.querySelector("i").style.setProperty("--share", `${100 * share}%`);
      found.querySelector("b").textContent = percent(share).replace(" ", "");
    });
  }

  #showList(t, passes) {
    const rows = [["tokens", passes.tokens.toLocaleString("en")]];
    if (passes.fromDraft) rows.push(["written by the draft", percent(passes.fromDraft / Math.max(1, passes.tokens))]);
    if (t.draft_n) rows.push(["guesses that were right", `${t.draft_n_accepted} of ${t.draft_n}`]);
    if (t.draft_hits !== undefined && passes.n) rows.push(["next guess was ready", percent(Math.min(1, t.draft_hits / passes.n))]);
    if (t.draft_wait_ms !== undefined) rows.push(["waited for the draft", `${number(t.draft_wait_ms, 0)} ms`]);
    if (t.ttft_ms) rows.push(["first token", `${number(t.ttft_ms, 0)} ms`]);
    if (t.queue_ms >= 100) rows.push(["waited for a slot", `${number(t.queue_ms, 0)} ms`]);
    this.list.replaceChildren(...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }
}

// ---- an answer

class Answer {
  constructor(how) {
    this.text = make("div", { className: "text", dir: "auto" });
    this.thought = make("div", { dir: "auto" });
    this.thoughts = make("details", { className: "thoughts", hidden: true }, make("summary", {}, "Thoughts"), this.thought);
    this.figures = new Figures(how);
    this.body = make("div", {}, this.thoughts, this.text);
    this.node = make("article", { className: "answer writes" }, this.body, this.figures.node);
    this.passes = new Passes();
    this.timings = {};
    this.content = "";
    this.waiting = []; // what the next frame shows
    this.asked = false;
  }

  /** One event of the stream. */
  take(event) {
    if (event.error) throw Object.assign(new Error(event.error.message), { status: event.error.code });
    const tokens = event.duo?.tokens ?? [];
    for (const t of tokens) this.passes.add(t.from_draft);
    const { content, reasoning_content: thought } = event.choices?.[0]?.delta ?? {};
    if (content) this.content += content;
    for (const [node, text] of [[this.thought, thought], [this.text, content]]) {
      if (text) for (const [part, fromDraft] of byOrigin(text, tokens)) this.waiting.push([node, part, fromDraft]);
    }
    if (event.timings) {
      this.timings = event.timings;
      plainPassMs = event.timings.plain_pass_ms ?? plainPassMs;
    }
    this.finish = event.choices?.[0]?.finish_reason ?? this.finish;
    if (!this.asked) {
      this.asked = true;
      requestAnimationFrame(() => this.flush());
    }
  }

  flush() {
    this.asked = false;
    const follow = this.#following();
    for (const [node, text, fromDraft] of this.waiting.splice(0)) append(node, text, fromDraft);
    this.thoughts.hidden = !this.thought.firstChild;
    const now = performance.now();
    if (!this.shownAt || now - this.shownAt > 200) {
      this.shownAt = now;
      this.figures.show(this.timings, this.passes);
    }
    follow();
  }

  /** A function that keeps the end of the conversation in sight, if it is in sight now. */
  #following() {
    const log = this.node.parentElement;
    const follows = log && log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    return () => { if (follows) log.scrollTop = log.scrollHeight; };
  }

  end(note, { bad = false, again } = {}) {
    this.shownAt = 0;
    this.flush();
    const follow = this.#following();
    this.node.classList.remove("writes");
    if (!this.passes.tokens) this.figures.node.remove();
    if (note) {
      const line = make("p", { className: bad ? "note bad" : "note" }, note);
      if (again) line.append(make("button", { type: "button", className: "quiet", onclick: again }, "Try again"));
      this.body.append(line);
    }
    follow();
  }
}

// ---- conversations

const N_AT_ONCE = 4; // a browser opens 6 connections to a server, and the page needs some itself
const TOO_LARGE = 413; // the request's body
const conversations = [];
let current = null;
let nRunning = 0;

class Conversation {
  messages = [];
  running = null; // an AbortController
  unsent = "";
  pictures = []; // of the next message
  title = "New conversation";

  constructor() {
    this.log = make("div", { className: "log", tabIndex: 0, hidden: true });
    this.log.setAttribute("role", "log");
    this.log.setAttribute("aria-live", "off"); // a reader is told when an answer ends
    this.log.setAttribute("aria-label", "Conversation");
    this.log.append(make("div", { className: "empty" },
      make("h2", {}, "Two models, one text"),
      make("p", {}, "The ", make("span", { className: "of-draft" }, "draft"), " guesses, the ",
        make("span", { className: "of-target" }, "target"), " checks and decides. Ask for something and watch both at work.")));
    this.words = make("span", { className: "title" }, this.title);
    this.speed = make("span", { className: "speed" });
    this.open = make("button", { type: "button", className: "open", onclick: () => select(this) }, this.words, this.speed);
    this.shut = make("button", { type: "button", className: "shut", onclick: () => this.close() }, "\u00d7");
    this.item = make("li", {}, this.open, this.shut);
    this.name(this.title);
    conversations.push(this);
    $("logs").append(this.log);
    $("conversations").append(this.item);
  }

  name(title) {
    this.title = title;
    this.words.textContent = title;
    this.shut.setAttribute("aria-label", `Close ${title}`);
  }

  close() {
    this.running?.abort();
    this.log.remove();
    this.item.remove();
    const at = conversations.indexOf(this);
    conversations.splice(at, 1);
    if (this === current) select(conversations[Math.min(at, conversations.length - 1)] ?? new Conversation());
    $("ask").focus();
  }

  async send(text, pictures) {
    if (!this.messages.length) {
      this.log.replaceChildren();
      this.name((text || pictures[0].name).replace(/\s+/g, " ").slice(0, 40));
    }
    if (this.messages.at(-1)?.role === "user") this.messages.pop(); // nobody has answered it, and templates want turns
    this.messages.push({ role: "user", content: contentOf(text, pictures) });
    const seen = pictures.map(({ canvas }) => make("li", {}, canvas));
    this.log.append(make("div", { className: "question" },
      ...(seen.length ? [make("ul", { className: "pictures" }, ...seen)] : []), ...(text ? [make("p", { dir: "auto" }, text)] : [])));
    if ((await this.answer()) === TOO_LARGE) this.#takeBack(text, pictures);
  }

  /** So that one of them can be removed. */
  #takeBack(text, pictures) {
    this.pictures.unshift(...pictures);
    if (current !== this) this.unsent ||= text;
    else {
      $("ask").value ||= text;
      strip.show();
    }
  }

  /** Returns the status that the server refuses with, if it does. */
  async answer() {
    const wanted = settings();
    const answer = new Answer(wanted.mode === "plain" ? "plain" : `${wanted.mode}, ${wanted.draft ? `length ${wanted.draft.n_max}` : "auto"}`);
    this.log.append(answer.node);
    this.log.scrollTop = this.log.scrollHeight;
    this.running = new AbortController();
    const { signal } = this.running;
    showRunning();
    let ticking = null;
    let status;
    try {
      while (nRunning >= N_AT_ONCE && !signal.aborted) await pause(100);
      signal.throwIfAborted();
      nRunning += 1;
      lanes.wake();
      ticking = setInterval(() => {
        this.speed.textContent = answer.timings.predicted_per_second ? `${number(answer.timings.predicted_per_second, 0)}/s` : "\u2026";
      }, 250);
      const body = { messages: this.messages, stream: true, timings_per_token: true, ...wanted };
      for await (const event of eventsOf(await call("v1/chat/completions", { body, signal }))) answer.take(event);
      if (!answer.finish) throw new Error("The server ended the answer before it was complete.");
      answer.end(answer.finish === "length" ? "The answer has reached its longest length." : "");
    } catch (e) {
      if (e.name === "AbortError") answer.end("Stopped.");
      else answer.end(e.message, { bad: true, again: () => this.again(answer) });
      status = e.status;
    } finally {
      if (ticking !== null) {
        clearInterval(ticking);
        nRunning -= 1;
        lanes.wake();
      }
      this.speed.textContent = "";
      this.running = null;
      if (answer.content) this.messages.push({ role: "assistant", content: answer.content });
      showRunning();
      const rate = answer.timings.predicted_per_second;
      $("said").textContent = `${this.title}: the answer has ended, ${plural(answer.passes.tokens, "token")}${rate ? `, ${number(rate)} per second` : ""}`;
    }
    return status;
  }

  again(answer) {
    if (this.running) return;
    answer.node.remove();
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    this.answer();
  }
}

function select(conversation) {
  if (current) current.unsent = $("ask").value;
  current = conversation;
  for (const c of conversations) {
    c.log.hidden = c !== current;
    if (c === current) c.open.setAttribute("aria-current", "true");
    else c.open.removeAttribute("aria-current");
  }
  $("ask").value = current.unsent;
  strip.say("");
  strip.show();
  current.item.scrollIntoView({ block: "nearest", inline: "nearest" });
  showRunning();
}

function showRunning() {
  const runs = Boolean(current.running);
  const held = document.activeElement === $("stop") || document.activeElement === $("send");
  $("send").hidden = runs;
  $("stop").hidden = !runs;
  if (held) $("ask").focus(); // the button that had it is gone
}

// ---- what the next message asks for

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`)?.value ?? "";

function settings() {
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

$("mode").onchange = () => { $("length").disabled = chosen("mode") === "plain"; };
const strip = new PictureStrip(() => current.pictures);
$("composer").onsubmit = async (e) => {
  e.preventDefault();
  const asked = current;
  await strip.ready;
  if (current !== asked) return;
  const text = $("ask").value.trim();
  if (!(text || current.pictures.length) || current.running) return;
  $("ask").value = "";
  current.send(text, strip.take());
};
$("ask").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $("composer").requestSubmit();
  }
};
$("stop").onclick = () => current.running?.abort();
addEventListener("keydown", (e) => {
  if (e.key === "Escape" && !$("keys").open) current.running?.abort();
});
$("new").onclick = () => {
  select(conversations.find((c) => !c.messages.length) ?? new Conversation());
  $("ask").focus();
};

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

// ---- the two lanes

const SPANS_S = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60];
const DELAY_MS = 400; // events come in pieces; the lanes run a little late and so without jumps
const FRAME_MS = 30; // the models may need the same cores
const KEPT_MS = 70_000;
const LATE_MS = 5000; // events of the two workers are in order but for so much
const PIXELS = 12; // of a pass, where the span is chosen by the page

/** Passes after which it matters whether the next guess was ready: those in which the draft ran ahead. */
function hitsAndMisses(passes, steps) {
  steps.sort((a, b) => a.t1 - b.t1);
  return passes.filter((e) => {
    if (e.hit || e.stance !== "ahead") return e.hit;
    let [low, high] = [0, steps.length]; // the first step that ends in the pass, or later
    while (low < high) {
      const i = (low + high) >> 1;
      if (steps[i].t1 <= e.t0) low = i + 1;
      else high = i;
    }
    return low < steps.length && steps[low].t0 < e.t1;
  });
}

class Lanes {
  events = [];
  after = 0;
  last = 0; // end of the last event, ms
  offset = null; // page's clock minus workers' clock, ms
  edge = 0; // right end, on the workers' clock, ms
  span = null; // s, chosen by the user
  seconds = 2; // the span that is shown
  plainPassMs = null;
  moving = false;
  asleep = true;
  urgent = false; // something has begun or ended: the next question does not wait

  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    document.addEventListener("visibilitychange", () => this.wake());
    $("wider").onclick = () => this.zoom(1);
    $("closer").onclick = () => this.zoom(-1);
  }

  recolour() {
    this.colours = Object.fromEntries(["target", "draft", "miss"].map((name) => [name, getComputedStyle(document.querySelector(`.legend .of-${name} i`)).color]));
    this.colours.line = getComputedStyle($("lanes-words")).color;
    this.draw();
  }

  zoom(by) {
    const at = SPANS_S.indexOf(this.seconds) + by;
    this.span = this.seconds = SPANS_S[Math.min(Math.max(at, 0), SPANS_S.length - 1)];
    this.draw();
  }

  // -- events

  /** Asks for events from now on: often while something happens, rarely otherwise, never where nobody looks. */
  async wake() {
    this.urgent = true;
    this.hurry?.();
    if (!this.asleep) return;
    this.asleep = false;
    while (!document.hidden) {
      this.urgent = false;
      let soon = nRunning > 0;
      try {
        soon = this.take(await (await call(`duo/trace?after=${this.after}`)).json()) || soon;
      } catch (e) {
        if (e.status === 401 || e.status === 404) break; // no key was given
      }
      if (!this.urgent) await Promise.race([pause(soon ? 150 : 1500), new Promise((go) => { this.hurry = go; })]);
    }
    this.asleep = true;
  }

  /** Whether there is something new. */
  take({ now_us, next, fields, events }) {
    if (next < this.after) Object.assign(this, { events: [], last: 0, edge: 0, offset: null }); // another server
    this.after = next;
    const late = performance.now() - now_us / 1000;
    this.offset = this.offset === null || Math.abs(late - this.offset) > 1000 ? late : Math.min(this.offset + 0.05, late);
    const oldest = now_us / 1000 - KEPT_MS;
    for (const values of events) {
      const e = Object.fromEntries(fields.map((name, i) => [name, values[i]]));
      e.t0 = e.t0_us / 1000;
      e.t1 = e.t1_us / 1000;
      if (e.t1 > oldest) this.events.push(e);
      this.last = Math.max(this.last, e.t1);
    }
    this.#measure();
    if (this.events.length && this.events[0].t1 < oldest) this.events = this.events.filter((e) => e.t1 >= oldest);
    if (events.length && !this.moving) {
      this.moving = true;
      requestAnimationFrame(() => this.frame());
    }
    return events.length > 0;
  }

  // -- time

  /** What the last passes tell: the span that shows them well, and what a pass over one row takes. */
  #measure() {
    const passes = this.events.slice(-2000).filter((e) => e.kind === "verify");
    const median = (some) => some.map((e) => e.t1 - e.t0).sort((a, b) => a - b)[some.length >> 1];
    this.plainPassMs = median(passes.filter((e) => e.n_rows === 1)) ?? null;
    if (this.span !== null || passes.length < 2) return;
    const wanted = (median(passes) * this.canvas.clientWidth) / PIXELS / 1000;
    this.seconds = SPANS_S.find((s) => s >= Math.max(2, Math.min(wanted, 20)));
  }

  /** Time stands still when nobody writes, so that the last passes can be looked at. */
  frame() {
    const now = performance.now() - this.offset - DELAY_MS;
    const rests = nRunning === 0 && now > this.last + 50;
    this.edge = rests ? this.last + 50 : now;
    this.moving = !rests;
    this.draw();
    if (this.moving) setTimeout(() => requestAnimationFrame(() => this.frame()), FRAME_MS);
  }

  // -- picture

  draw() {
    if (!this.colours) return;
    const { canvas, context: c, edge } = this;
    const [w, h, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
      canvas.width = Math.round(w * scale);
      canvas.height = Math.round(h * scale);
    }
    const { seconds } = this;
    const from = edge - seconds * 1000;
    const shown = [];
    for (let i = this.events.length - 1; i >= 0 && this.events[i].t1 > from - LATE_MS; i--) {
      if (this.events[i].t1 > from && this.events[i].t0 < edge) shown.push(this.events[i]);
    }
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, w, h);
    const middle = Math.round(h * 0.56);
    const room = { target: middle - 12, draft: h - middle - 12 };
    const x = (t) => ((t - from) / (seconds * 1000)) * w;
    const guessed = { target: (e) => e.n_drafted + 1, draft: (e) => e.n_drafted };
    const most = (lane) => shown.reduce((n, e) => (e.lane === lane ? Math.max(n, guessed[lane](e)) : n), 4);
    const top = { target: most("target"), draft: most("draft") };

    c.globalAlpha = 0.35;
    c.fillStyle = this.colours.line;
    c.fillRect(0, middle - 0.5, w, 1);
    for (const e of shown) {
      const [x0, x1] = [x(e.t0), x(e.t1)];
      const width = Math.max(x1 - x0 - (x1 - x0 > 3 ? 1 : 0), 0.75);
      const bar = (share, alpha) => {
        const height = room[e.lane] * Math.min(1, share);
        c.globalAlpha = alpha;
        c.fillRect(x0, e.lane === "target" ? middle - 6 - height : middle + 6, width, height);
      };
      const tall = (n) => 0.15 + (0.85 * n) / top[e.lane];
      c.fillStyle = this.colours[e.lane];
      if (e.kind === "prompt") bar(1, 0.3);
      else if (e.kind === "wait") bar(0.05, 0.4);
      else if (e.lane === "draft") bar(tall(e.n_drafted), 0.8);
      else {
        bar(tall(e.n_drafted + 1), 0.22); // all that was in the pass
        bar(tall(e.n_accepted + 1), 0.85); // what the text has got
      }
    }
    const passes = shown.filter((e) => e.kind === "verify");
    const met = hitsAndMisses(passes, shown.filter((e) => e.lane === "draft"));
    const radius = Math.min(3, Math.max(1, (w / Math.max(1, passes.length)) * 0.3));
    c.globalAlpha = 1;
    for (const e of met) {
      c.beginPath();
      c.arc(x(e.t1), middle, e.hit ? radius : radius - 0.25, 0, 7);
      c.fillStyle = c.strokeStyle = e.hit ? this.colours.draft : this.colours.miss;
      if (e.hit || radius < 2) c.fill();
      else {
        c.lineWidth = 1.25;
        c.stroke();
      }
    }
    this.#tell(seconds, passes, shown);
  }

  /** The picture in words, for everybody and at most four times a second. */
  #tell(seconds, passes, shown) {
    const now = performance.now();
    if (this.moving && now - (this.toldAt ?? 0) < 250) return;
    this.toldAt = now;
    if (!shown.length) return;
    const n = new Set(passes.map((e) => e.t0_us)).size; // several texts share a pass
    const hits = passes.filter((e) => e.hit).length;
    const steps = shown.filter((e) => e.lane === "draft").length;
    const words = [plural(n, "pass", "passes"), plural(steps, "step"), plural(hits, "hit")].join(", ");
    $("lanes-words").textContent = `Last ${seconds} s: ${words}`;
    this.canvas.setAttribute("aria-label", `The target's passes above, the draft's steps below. Last ${seconds} seconds: ${words}`);
  }
}

// ---- start

const lanes = new Lanes($("lanes"));
wear(THEMES.includes(localStorage.getItem("duo-theme")) ? localStorage.getItem("duo-theme") : "auto");
select(new Conversation());

async function start() {
  for (;;) {
    try {
      const props = await (await call("props")).json();
      const defaults = props.default_generation_settings.params;
      const { draft, speculates } = props.duo;
      strip.knows(Boolean(props.modalities?.vision));
      $("models").textContent = draft ? `${props.model_name} with ${draft}` : props.model_name;
      document.title = `duo: ${props.model_alias}`;
      const mode = speculates ? defaults.mode : "plain";
      document.querySelector(`input[name=mode][value=${CSS.escape(mode)}]`).checked = true;
      $("mode").disabled = !speculates;
      $("mode").onchange();
      if (Number.isFinite(defaults.temperature)) $("temperature").value = Math.round(defaults.temperature * 100) / 100;
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
