// All conversations of the page, which of them is open, and the message that is being written there.

import { Conversation } from "./conversation.js";
import { $ } from "./dom.js";
import { PictureStrip } from "./pictures.js";
import { mebibytes } from "./words.js";

export class Conversations {
  list = [];
  current = null;
  mostBytes = Infinity; // of a request

  constructor(lanes) {
    this.lanes = lanes;
    this.strip = new PictureStrip(() => this.current.pictures);
    $("composer").onsubmit = (e) => {
      e.preventDefault();
      this.#submit();
    };
    $("ask").onkeydown = (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        $("composer").requestSubmit();
      }
    };
    $("stop").onclick = () => this.current.running?.abort();
    addEventListener("keydown", (e) => {
      if (e.key === "Escape" && !$("keys").open) this.current.running?.abort();
    });
    $("new").onclick = () => {
      this.select(this.list.find((c) => !c.messages.length) ?? this.#added());
      $("ask").focus();
    };
    this.select(this.#added());
  }

  #added() {
    const made = new Conversation(this, this.lanes);
    this.list.push(made);
    return made;
  }

  /** What the server says of itself. sees: whether the model reads pictures. mostBytes: of a request. */
  knows(sees, mostBytes) {
    this.mostBytes = mostBytes;
    this.strip.knows(sees, mostBytes);
  }

  remove(conversation) {
    const at = this.list.indexOf(conversation);
    this.list.splice(at, 1);
    if (conversation === this.current) this.select(this.list[Math.min(at, this.list.length - 1)] ?? this.#added());
  }

  select(conversation) {
    if (this.current) this.current.unsent = $("ask").value;
    this.current = conversation;
    for (const c of this.list) {
      c.log.hidden = c !== conversation;
      if (c === conversation) c.open.setAttribute("aria-current", "true");
      else c.open.removeAttribute("aria-current");
    }
    $("ask").value = conversation.unsent;
    this.strip.say("");
    this.strip.show();
    conversation.item.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.showRunning();
  }

  showRunning() {
    const runs = Boolean(this.current.running);
    const held = document.activeElement === $("stop") || document.activeElement === $("send");
    $("send").hidden = runs;
    $("stop").hidden = !runs;
    if (held) $("ask").focus(); // the button that had it is gone
  }

  /** A message that could not be sent stands in the composer again. */
  showUnsent(conversation) {
    if (conversation !== this.current) return;
    $("ask").value ||= conversation.unsent;
    this.strip.show();
  }

  async #submit() {
    const asked = this.current;
    await this.strip.ready;
    if (this.current !== asked) return;
    const text = $("ask").value.trim();
    const { pictures } = asked;
    if (!(text || pictures.length) || asked.running) return;
    const size = asked.sizeWith(text, pictures);
    if (size > this.mostBytes) {
      const what = pictures.length ? "remove a picture, or begin a new conversation" : "shorten it, or begin a new conversation";
      this.strip.say(`With this message the conversation has ${mebibytes(size)}, and the server takes ${mebibytes(this.mostBytes)} (--max-body); ${what}.`);
      return;
    }
    $("ask").value = "";
    asked.unsent = "";
    asked.send(text, this.strip.take());
  }
}
