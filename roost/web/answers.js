// What is answered to a question, as the panel shows it; and the buttons that ask.

import { html, say } from "./dom.js";
import { moment } from "./words.js";

/** @typedef {import("./fleet.js").Fleet} Fleet */
/** @typedef {import("./places.js").Places} Places */

const MOST = 30;

/**
 * A button that says what went wrong, if it does.
 * @param {string} name
 * @param {() => Promise<any>|void} act
 */
export function button(name, act) {
  const node = html("button", { type: "button" }, name);
  node.addEventListener("click", async () => {
    node.setAttribute("aria-busy", "true");
    try {
      await act();
    } catch (error) {
      const said = /** @type {Error} */ (error).message;
      say(said);
      const near = node.closest("details, .doing")?.querySelector(".answer") ?? node.closest(".panel")?.querySelector(".answer");
      near?.replaceChildren(html("p", { class: "bad-text" }, said));
    } finally {
      node.removeAttribute("aria-busy");
    }
  });
  return node;
}

/** Where previews and answers are shown, and what shows them. */
export function answerBox() {
  const node = html("div", { class: "answer", role: "status" });
  return { node, tell: (/** @type {any[]} */ ...content) => node.replaceChildren(...content.flat().filter(Boolean)) };
}

/** Where the map is below the panel, a way to it. @param {import("./map.js").FleetMap} map */
export function toMap(map) {
  const node = button("Show it on the map", () => map.node.scrollIntoView({ block: "center" }));
  node.className = "to-map";
  return node;
}

/** @typedef {Map<string, string>} Names The names of servers that the map does not show, by id. */

/**
 * Servers that would move, one a line.
 * @param {any[]} moves
 * @param {Fleet} fleet
 * @param {Places} places
 * @param {Names} [names]
 */
export function moveList(moves, fleet, places, names) {
  const item = (/** @type {any} */ move) =>
    html("li", {}, `${nameOf(fleet, move.server_id, names)}: ${places.way(move.source, move.target)}`);
  return list("ol", moves, item);
}

/**
 * Servers that would find no place, and why.
 * @param {any[]} stranded
 * @param {Fleet} fleet
 * @param {Names} [names]
 */
export function strandedList(stranded, fleet, names) {
  const item = (/** @type {any} */ each) =>
    html("li", { class: "bad-text" }, `${nameOf(fleet, each.server_id, names)} would find no place: ${each.sentence}`);
  return list("ul", stranded, item);
}

/**
 * New servers, and where they would be.
 * @param {any[]} placements
 * @param {Places} places
 */
export function placementList(placements, places) {
  const item = (/** @type {any} */ each) =>
    html("li", {}, `${each.name} → ${places.describe({ ...each.placements, host: each.host }) || "a host"}`);
  return list("ul", placements, item);
}

/** Why there is a place, or none, and what would help. @param {any} explanation */
export function explained(explanation) {
  const sentences = (/** @type {any[]} */ some) => list("ul", some, (each) => html("li", {}, each.sentence));
  return [
    html("p", { class: explanation.verdict === "placed" ? "good" : "bad-text" }, explanation.sentence),
    sentences(explanation.refused),
    explanation.help.length > 0 && html("h3", {}, "What would help"),
    sentences(explanation.help),
  ];
}

/** Rules that are, or would be, broken. @param {any[]} violations */
export function violationList(violations) {
  const since = (/** @type {any} */ each) => each.since && html("span", { class: "muted" }, ` since ${moment(each.since)}`);
  return html("ul", { class: "violations" }, ...violations.map((each) => html("li", {}, each.message, since(each))));
}

/** What a plan says of rules: what it breaks, what is broken already, and what it mends. @param {any} plan */
export function ruleChanges(plan) {
  const kinds = { violations: "Would be broken", broken_before: "Broken already", mended: "Would be mended" };
  return Object.entries(kinds).flatMap(([kind, title]) =>
    plan[kind].length ? [html("h3", {}, title), violationList(plan[kind])] : [],
  );
}

/** @param {Fleet} fleet @param {string} serverId @param {Names} [names] */
function nameOf(fleet, serverId, names) {
  return names?.get(serverId) ?? fleet.find(serverId)?.server.name ?? serverId.slice(0, 8);
}

/**
 * @param {string} kind
 * @param {any[]} items
 * @param {(item: any) => Node} show
 */
function list(kind, items, show) {
  if (!items.length) return null;
  const more = items.length > MOST && html("li", { class: "muted" }, `and ${items.length - MOST} more`);
  return html(kind, {}, ...items.slice(0, MOST).map(show), more);
}
