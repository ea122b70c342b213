// Makes elements. Text is always a text node: a name from a file can never become markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// Draws into a node only if what it draws from has changed: scroll, focus and what is unfolded stay.
const drawn = new WeakMap();

export function whenChanged(node, source, draw) {
  const now = JSON.stringify(source);
  if (drawn.get(node) === now) return false;
  drawn.set(node, now);
  draw(node);
  return true;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
}

// The server's own markup, in which every name from a file is text. It is parsed where no script runs, and the
// policy of the page lets none run here.
export function parsed(html) {
  return [...new DOMParser().parseFromString(html, "text/html").body.childNodes];
}
