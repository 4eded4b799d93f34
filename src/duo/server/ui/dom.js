// Elements of the page.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
