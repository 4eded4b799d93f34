// The figures beside an answer.

import { make } from "./dom.js";
import { number, percent } from "./words.js";

export class Figures {
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

  /** plainMs: what a pass over one row takes, which plain decoding needs for each token. null: not known. */
  show(timings, passes, plainMs) {
    const rate = timings.predicted_per_second || 0;
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
