// Pictures of the next message: dropped, pasted, or chosen. They are drawn on canvases, so the page loads no images.

import { $, make } from "./dom.js";
import { mebibytes } from "./words.js";

const N_BYTES_AS_IT_IS = 1e6; // each turn sends all pictures
const N_BYTES_MOST = 4e6; // of one that is drawn anew; few need more
const SHARE_OF_BODY = 0.7; // of the largest request: base64 needs four bytes for three, and there are words beside it
const SIDE_LEAST = 32; // pixels; nobody sees anything on a smaller one
const SIDE_SENT = 2048; // pixels; projectors scale down further
const N_PIXELS_MOST = 50e6; // as the server
const SIDE = 96; // of a thumbnail, pixels
const STARTS = ["\x89PNG", "GIF8", "BM"]; // what the server decodes as it is: a JPEG file may have to be turned (EXIF)

const NO_EYES = "This model reads no pictures. The server needs its projector (duo serve --mmproj FILE).";
const millions = (n) => (n / 1e6).toLocaleString("en", { maximumFractionDigits: 1 });

/** The file as a data: URL. */
function urlOf(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

function drawn(bitmap, width, height) {
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
  return canvas;
}

/** At most `side` pixels long and wide. */
function fitted(bitmap, side) {
  const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  return drawn(bitmap, Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
}

function isOpaque(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 3; i < data.length; i += 4) if (data[i] !== 255) return false;
  return true;
}

/** The picture as the page sends it: upright, not larger than a model can use, and of so many bytes at most. */
async function redrawn(bitmap, name, mostBytes) {
  for (let side = SIDE_SENT; side >= SIDE_LEAST; side /= 2) {
    const canvas = fitted(bitmap, side);
    const kind = isOpaque(canvas) ? "image/jpeg" : "image/png";
    const blob = await new Promise((done) => canvas.toBlob(done, kind, 0.92));
    if (!blob) throw new Error(`The browser cannot scale ${name} down. Try a smaller picture.`);
    if (blob.size <= mostBytes) return blob;
  }
  return null;
}

/** A picture's name, its data: URL, and a canvas. mostOfBody: bytes of a request. Throws an Error with a sentence: it is
    none, or too large. */
async function read(file, mostOfBody) {
  const name = file.name || "The picture";
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) throw new Error(`${name} is no picture that this browser can read.`);
  const { width, height } = bitmap;
  if (width * height > N_PIXELS_MOST) {
    throw new Error(`${name} has ${millions(width * height)} million pixels, and ${millions(N_PIXELS_MOST)} million are allowed. Scale it down.`);
  }
  const start = String.fromCharCode(...new Uint8Array(await file.slice(0, 4).arrayBuffer()));
  const most = SHARE_OF_BODY * mostOfBody;
  const fits = file.size <= Math.min(N_BYTES_AS_IT_IS, most) && Math.max(width, height) <= SIDE_SENT;
  const sent = fits && STARTS.some((s) => start.startsWith(s)) ? file : await redrawn(bitmap, name, Math.min(N_BYTES_MOST, most));
  if (!sent) throw new Error(`${name} does not fit into a request, which has at most ${mebibytes(mostOfBody)} (--max-body).`);
  const canvas = fitted(bitmap, SIDE);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  bitmap.close();
  return { name, url: await urlOf(sent), canvas };
}

/** The content of a message: text alone, or parts as OpenAI has them. */
export function contentOf(text, pictures) {
  if (!pictures.length) return text;
  const parts = pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

/** The pictures above the message. Each conversation has a list of its own, which this changes. */
export class PictureStrip {
  sees = null; // whether the model does; null: not known yet
  mostOfBody = Infinity; // bytes of a request
  ready = Promise.resolve(); // when all that was given is read

  constructor(listOfCurrent) {
    this.list = listOfCurrent;
    $("attach").onclick = () => $("files").click();
    $("files").onchange = () => {
      this.add($("files").files);
      $("files").value = ""; // so that the same file can be chosen again
    };
    $("ask").addEventListener("paste", (e) => this.#pasted(e));
    for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) addEventListener(kind, (e) => this.#dragged(e));
  }

  knows(sees, mostOfBody) {
    Object.assign(this, { sees, mostOfBody });
    $("attach").hidden = !sees;
  }

  say(words) {
    $("picture-note").textContent = words;
    $("picture-note").hidden = !words;
  }

  /** Reads files and adds the pictures. What is none is said. */
  add(files) {
    const list = this.list();
    this.ready = [...files].reduce((before, file) => before.then(() => this.#add(file, list)), this.ready.then(() => this.say("")));
    return this.ready;
  }

  async #add(file, list) {
    try {
      if (this.sees === false) throw new Error(NO_EYES);
      list.push(await read(file, this.mostOfBody));
    } catch (e) {
      this.say(e.message);
    }
    this.show();
  }

  /** Those of the conversation that is open. */
  show() {
    const list = this.list();
    $("pictures").hidden = !list.length;
    $("pictures").replaceChildren(...list.map((picture) => {
      const away = make("button", { type: "button", onclick: () => this.#remove(picture) }, "\u00d7");
      away.setAttribute("aria-label", `Remove ${picture.name}`);
      return make("li", {}, picture.canvas, away);
    }));
  }

  #remove(picture) {
    const list = this.list();
    list.splice(list.indexOf(picture), 1);
    this.say("");
    this.show();
    $("ask").focus();
  }

  /** All of them, which are then no longer here. */
  take() {
    const taken = this.list().splice(0);
    this.say("");
    this.show();
    return taken;
  }

  #pasted(e) {
    const { files, types } = e.clipboardData;
    const isText = types.includes("text/plain") && types.includes("text/html"); // of a word processor, with its picture
    if (!files.length || isText) return;
    e.preventDefault();
    this.add(files);
  }

  #dragged(e) {
    if (!e.dataTransfer?.types.includes("Files")) return;
    e.preventDefault(); // the browser would open the file in place of the page
    $("composer").classList.toggle("drops", e.type === "dragenter" || e.type === "dragover");
    if (e.type === "drop") this.add(e.dataTransfer.files);
  }
}
