// A conversation: its messages, its answers, and its place in the list.

import { Answer } from "./answer.js";
import { $, make } from "./dom.js";
import { contentOf } from "./pictures.js";
import { call, eventsOf, pause } from "./server.js";
import { instructions, settings } from "./settings.js";
import { number, plural } from "./words.js";

const N_AT_ONCE = 4; // a browser opens 6 connections to a server, and the page needs some itself
const TOO_LARGE = 413; // the request's body

export class Conversation {
  messages = [];
  running = null; // an AbortController
  unsent = "";
  pictures = []; // of the next message
  title = "New conversation";

  /** all: the Conversations that this one is added to. lanes: they are told when an answer begins and ends. */
  constructor(all, lanes) {
    this.all = all;
    this.lanes = lanes;
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
    this.open = make("button", { type: "button", className: "open", onclick: () => all.select(this) }, this.words, this.speed);
    this.shut = make("button", { type: "button", className: "shut", onclick: () => this.close() }, "\u00d7");
    this.item = make("li", {}, this.open, this.shut);
    this.name(this.title);
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
    this.all.remove(this);
    $("ask").focus();
  }

  // ---- requests

  /** The request for an answer to these messages. */
  #body(messages) {
    return { messages: [...instructions(), ...messages], stream: true, timings_per_token: true, ...settings() };
  }

  /** The messages with this one at the end. */
  #with(text, pictures) {
    const before = this.messages.at(-1)?.role === "user" ? this.messages.slice(0, -1) : this.messages; // nobody has answered it, and templates want turns
    return [...before, { role: "user", content: contentOf(text, pictures) }];
  }

  /** Bytes of the request that would send this message. */
  sizeWith(text, pictures) {
    return new Blob([JSON.stringify(this.#body(this.#with(text, pictures)))]).size;
  }

  async send(text, pictures) {
    if (!this.messages.length) {
      this.log.replaceChildren();
      this.name((text || pictures[0].name).replace(/\s+/g, " ").slice(0, 40));
    }
    this.messages = this.#with(text, pictures);
    const seen = pictures.map(({ canvas }) => make("li", {}, canvas));
    this.log.append(make("div", { className: "question" },
      ...(seen.length ? [make("ul", { className: "pictures" }, ...seen)] : []), ...(text ? [make("p", { dir: "auto" }, text)] : [])));
    if ((await this.answer()) === TOO_LARGE) this.#takeBack(text, pictures);
  }

  /** What is in between, as a proxy, may take less than the server. Then some of it can be removed. */
  #takeBack(text, pictures) {
    this.pictures.unshift(...pictures);
    this.unsent ||= text;
    this.all.showUnsent(this);
  }

  /** Returns the status that the server refuses with, if it does. */
  async answer() {
    const body = this.#body(this.messages);
    const { mode, draft } = body;
    const answer = new Answer(mode === "plain" ? "plain" : `${mode}, ${draft ? `length ${draft.n_max}` : "auto"}`, this.lanes);
    this.log.append(answer.node);
    this.log.scrollTop = this.log.scrollHeight;
    this.running = new AbortController();
    const { signal } = this.running;
    this.all.showRunning();
    let ticking = null;
    let status;
    try {
      while (this.lanes.nRunning >= N_AT_ONCE && !signal.aborted) await pause(100);
      signal.throwIfAborted();
      this.lanes.began();
      ticking = setInterval(() => {
        this.speed.textContent = answer.timings.predicted_per_second ? `${number(answer.timings.predicted_per_second, 0)}/s` : "\u2026";
      }, 250);
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
        this.lanes.ended();
      }
      this.speed.textContent = "";
      this.running = null;
      if (answer.content) this.messages.push({ role: "assistant", content: answer.content });
      this.all.showRunning();
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
