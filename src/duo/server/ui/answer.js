// An answer while it is written, and who wrote what of it.

import { make } from "./dom.js";
import { Figures } from "./figures.js";

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

export class Answer {
  /** how: mode and draft length, for the summary. lanes: they measure passes, too. */
  constructor(how, lanes) {
    this.lanes = lanes;
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
      this.figures.show(this.timings, this.passes, plainPassMs ?? this.lanes.plainPassMs);
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
