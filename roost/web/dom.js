// Elements made from a name, attributes and children; nothing here is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Record<string, string|number|boolean|null|undefined|EventListener>} Attributes */

/**
 * @param {Element} node
 * @param {Attributes} attributes
 */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} node
 * @param {(Node|string|null|undefined|false)[]} children
 */
function fill(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

/**
 * An HTML element.
 * @param {string} name
 * @param {Attributes} [attributes]
 * @param {...any} children
 */
export function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  set(node, attributes);
  fill(node, children);
  return node;
}

/**
 * An SVG element.
 * @param {string} name
 * @param {Attributes} [attributes]
 * @param {...any} children
 */
export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  set(node, attributes);
  fill(node, children);
  return node;
}

/**
 * Show something else in a node. The focus stays on its link or button, if that or one like it is still there.
 * @param {Element} node
 * @param {(Node|string|null|undefined|false)[]} children
 */
export function refill(node, children) {
  const at = document.activeElement;
  const inside = at && at !== node && node.contains(at);
  const place = inside ? [...node.querySelectorAll(at.tagName)].indexOf(at) : -1;
  node.replaceChildren();
  fill(node, children);
  if (!inside || node.contains(at)) return;
  const alike = [...node.querySelectorAll(at.tagName)];
  const same = (/** @type {Element|undefined} */ each) => each?.textContent === at.textContent;
  const next = same(alike[place]) ? alike[place] : (alike.find(same) ?? alike[place]);
  /** @type {HTMLElement|undefined} */ (next)?.focus({ preventScroll: true });
}

/**
 * Show a page as it is now, and leave alone what is in use: opened details, and parts with an answer or the focus.
 * @param {Element} node
 * @param {(Node|string|null|undefined|false)[]} children
 */
export function renew(node, children) {
  const fresh = html("div", {}, ...children);
  const at = /** @type {HTMLElement|null} */ (document.activeElement);
  for (const part of node.querySelectorAll(".doing")) {
    const used = part.contains(at) || part.querySelector("[aria-busy], .answer:not(:empty)");
    if (used) fresh.querySelector(`.doing[aria-label="${part.getAttribute("aria-label")}"]`)?.replaceWith(part);
  }
  const keyOf = (/** @type {Element} */ each) => `${each.closest("li")?.textContent ?? ""} ${each.textContent}`;
  const open = new Set([...node.querySelectorAll("details[open] > summary")].map(keyOf));
  for (const each of fresh.querySelectorAll("details > summary")) {
    if (open.has(keyOf(each))) each.parentElement?.setAttribute("open", "");
  }
  refill(node, [...fresh.childNodes]);
  if (at?.isConnected && at !== document.activeElement) at.focus({ preventScroll: true });
}

/**
 * The element with this id, which the page has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Announce something to screen readers.
 * @param {string} sentence
 */
export function say(sentence) {
  part("said").textContent = sentence;
}
