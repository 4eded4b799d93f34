// The two lanes: what both workers have done.

import { $ } from "./dom.js";
import { call, pause } from "./server.js";
import { plural } from "./words.js";

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

export class Lanes {
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
  nRunning = 0; // texts of this page that are being written
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

  began() {
    this.nRunning += 1;
    this.wake();
  }

  ended() {
    this.nRunning -= 1;
    this.wake();
  }

  /** Asks for events from now on: often while something happens, rarely otherwise, never where nobody looks. */
  async wake() {
    this.urgent = true;
    this.hurry?.();
    if (!this.asleep) return;
    this.asleep = false;
    while (!document.hidden) {
      this.urgent = false;
      let soon = this.nRunning > 0;
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
    const rests = this.nRunning === 0 && now > this.last + 50;
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
