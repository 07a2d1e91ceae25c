// Where everything has its address.

import { html } from "./dom.js";

const PAGES = {
  servers: "#/server/", hosts: "#/host/", groups: "#/groups/", clusters: "#/clusters/", aggregates: "#/aggregate/",
  nodes: "#/node/", actions: "#/action/", projects: "#/project/",
};

/**
 * The address of a thing. Hosts are known by their names, and scopes by what is in them.
 * @param {string} kind
 * @param {{id: any, name: string}} thing
 */
export function addressOf(kind, thing) {
  if (kind === "scopes") return `#/lists/aggregates?scope=${encodeURIComponent(thing.name)}`;
  const page = PAGES[/** @type {keyof typeof PAGES} */ (kind)] ?? "#/";
  return page + encodeURIComponent(kind === "hosts" ? thing.name : String(thing.id));
}

/** @param {string} kind @param {{id: any, name: string}} thing */
export function linkTo(kind, thing) {
  return html("a", { href: addressOf(kind, thing) }, thing.name || String(thing.id).slice(0, 8));
}

/** A command line that does the same, ready to copy. @param {string} text */
export function command(text) {
  const copy = html("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    copy.textContent = "Copied";
  });
  return html("p", { class: "command" }, html("code", {}, text), copy);
}
