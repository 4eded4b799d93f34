// Luminance and contrast of all text on a page, as WCAG 2 defines them. A canvas turns any colour into bytes.
(() => {
  const c = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colours) => { c.clearRect(0, 0, 1, 1); for (const f of colours) { c.fillStyle = f; c.fillRect(0, 0, 1, 1) }
    return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3) };
  const light = (rgb) => { const [r, g, b] = rgb.map((x) => x / 255).map((x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b };
  const behind = (e) => { const found = []; for (; e; e = e.parentElement) found.unshift(getComputedStyle(e).backgroundColor); return found };
  return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && !e.closest(":disabled, .unseen, .skip")
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
      const back = behind(e), a = light(paint(back)), b = light(paint([...back, getComputedStyle(e).color]));
      return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.className || e.id || e.tagName, e.textContent.slice(0, 20)] });
})()
