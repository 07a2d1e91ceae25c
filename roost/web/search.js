// One field that finds anything: `/` goes to it, the arrow keys and Tab through what it found.

import { html, part, refill } from "./dom.js";
import { linkTo } from "./links.js";
import { get } from "./session.js";

const PAUSE = 60;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let waiting;
let asked = 0;

/** The field, for the head of the page. */
export function searchField() {
  const found = html("div", { id: "found", class: "found", hidden: true });
  const field = html("input", {
    type: "search",
    id: "search",
    placeholder: "Search",
    "aria-label": "Search servers, groups, hosts, scopes, clusters and nodes",
    autocomplete: "off",
    input: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => look(/** @type {HTMLInputElement} */ (field).value, found).catch(() => close(found)), PAUSE);
    },
    keydown: (event) => {
      const key = /** @type {KeyboardEvent} */ (event).key;
      if (key === "Escape") close(found);
      if (key === "Enter") /** @type {HTMLElement|null} */ (found.querySelector("a"))?.click();
      if (key === "ArrowDown") /** @type {HTMLElement|null} */ (found.querySelector("a"))?.focus();
    },
  });
  found.addEventListener("keydown", (event) => step(event, found, /** @type {HTMLElement} */ (field)));
  found.addEventListener("click", (event) => {
    if (/** @type {Element} */ (event.target).closest("a")) close(found);
  });
  return html("div", { class: "search", role: "search" }, field, found);
}

/** @param {string} text @param {HTMLElement} found */
async function look(text, found) {
  const query = text.trim();
  if (!query) return close(found);
  asked += 1;
  const mine = asked;
  const { search } = await get(`/compute/v2.1/os-search?q=${encodeURIComponent(query)}`);
  if (mine !== asked) return;
  const sections = search.results.map((/** @type {any} */ each) =>
    html(
      "section",
      {},
      html("h3", {}, html("a", { href: `#/lists/${each.kind}?q=${encodeURIComponent(query)}` }, `All ${each.kind}`)),
      html("ul", { class: "plain" }, ...each.rows.map((/** @type {any} */ row) => item(each.kind, row))),
    ),
  );
  found.hidden = false;
  const none = `No word, id, address, state or project is "${query}".`;
  refill(found, sections.length ? sections : [html("p", { class: "muted", role: "status" }, none)]);
}

/** @param {string} kind @param {any} row */
function item(kind, row) {
  const facts = [row.status ?? row.state, row.host ?? row.zone, row.project].filter(Boolean).join(", ");
  return html("li", {}, linkTo(kind, row), html("span", { class: "muted" }, ` ${facts}`));
}

/** @param {HTMLElement} found */
function close(found) {
  asked += 1;
  found.hidden = true;
}

/** @param {KeyboardEvent} event @param {HTMLElement} found @param {HTMLElement} field */
function step(event, found, field) {
  if (event.key === "Escape") {
    close(found);
    return field.focus();
  }
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!way) return;
  event.preventDefault();
  const links = [...found.querySelectorAll("a")];
  const next = links.indexOf(/** @type {any} */ (document.activeElement)) + way;
  (next < 0 ? field : links[Math.min(next, links.length - 1)]).focus();
}

document.addEventListener("keydown", (event) => {
  const typing = /** @type {Element} */ (event.target).closest("input, select, textarea");
  if (event.key !== "/" || typing || !part("search")) return;
  event.preventDefault();
  part("search").focus();
});
