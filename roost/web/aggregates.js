// An aggregate's own page, whether it is on the map or not: a rack, a switch, a zone.

import { button } from "./answers.js";
import { html } from "./dom.js";
import { keyOf } from "./layout.js";
import { loadOf, titleOf } from "./map.js";
import { get, Refused } from "./session.js";
import { factList } from "./things.js";
import { count } from "./words.js";

/** @typedef {import("./fleet.js").Fleet} Fleet */
/** @typedef {import("./layout.js").Aggregate} Aggregate */
/** @typedef {{scope: string, tiles: Aggregate[]}} Found */

const COMPUTE = "/compute/v2.1";

/**
 * Everything about an aggregate.
 * @param {string} key its id, or, as the map has it, its zone and its id
 * @param {Fleet} fleet
 * @param {(scope: string, id: string, names: Map<string, string>) => any[]} questions
 */
export async function aggregatePage(key, fleet, questions) {
  const onMap = fleet.aggregates.filter((each) => keyOf(each) === key || each.id === key);
  const { scope, tiles } = fleet.all ? await read(key, fleet, onMap) : { scope: fleet.scope, tiles: onMap };
  if (!tiles.length) return [html("h2", {}, "There is no such place on the map")];
  const sum = (/** @type {(tile: Aggregate) => number|undefined} */ of) => tiles.reduce((all, each) => all + (of(each) ?? 0), 0);
  const hosts = tiles.flatMap((each) => each.hosts ?? []);
  const names = new Map(hosts.flatMap((host) => host.servers.map((/** @type {any} */ each) => [each.id, each.name])));
  const facts = [
    ["Zone", [...new Set(tiles.map((each) => each.zone))].join(", ")],
    ["Servers", sum((each) => each.servers)],
    fleet.all && ["Hosts", sum((each) => each.host_count)],
    fleet.all && ["Disabled", sum((each) => each.disabled)],
    fleet.all && ["Load", `${Math.round(Math.max(...tiles.map((each) => each.load ?? 0)) * 100)} %`],
    ["Broken rules", sum((each) => each.violations)],
  ];
  const [shown] = onMap;
  return [
    html("h2", {}, heading(scope, titleOf(tiles[0]))),
    factList(facts),
    fleet.all && shown && button(shown.hosts ? "Close on the map" : "Open on the map", () => void fleet.toggle(shown.id)),
    ...questions(scope, tiles[0].id, names),
    hosts.length > 0 && html("h3", {}, "Hosts"),
    hosts.length > 0 && html("ul", { class: "plain" }, ...hosts.map(hostItem)),
  ];
}

/**
 * The aggregate with its hosts, from the scope that it is in. @param {string} key @param {Fleet} fleet @param {Aggregate[]} onMap
 * @returns {Promise<Found>}
 */
async function read(key, fleet, onMap) {
  // What is open on the map is known, and kept up to date there.
  if (onMap.length && onMap.every((each) => each.hosts)) return { scope: fleet.scope, tiles: onMap };
  const id = onMap[0]?.id ?? key.split("/").pop() ?? "";
  const scope = onMap.length ? fleet.scope : await scopeOf(id);
  if (!scope) return { scope: "", tiles: [] };
  const ask = async (/** @type {Record<string, string>} */ query) =>
    (await get(`${COMPUTE}/os-fleet?${new URLSearchParams({ scope, only: id, ...query })}`)).fleet.aggregates;
  const tiles = await ask({ open: id }).catch((error) => {
    // Of one with too many hosts, the figures are enough.
    if (error instanceof Refused && error.status === 400) return ask({});
    throw error;
  });
  return { scope, tiles: tiles.filter((/** @type {Aggregate} */ each) => !key.includes("/") || keyOf(each) === key) };
}

/** @param {string} id */
async function scopeOf(id) {
  const { list } = await get(`${COMPUTE}/os-lists/aggregates?id=${encodeURIComponent(id)}`);
  return list.rows[0]?.scope ?? "";
}

/** @param {string} scope @param {string} name */
function heading(scope, name) {
  const kind = scope.replaceAll("_", " ");
  return name.startsWith(`${kind} `) ? name : `${kind} ${name}`;
}

/** @param {any} host */
function hostItem(host) {
  const load = loadOf(host);
  const said = `${count(host.servers.length, "server")}${load === null ? "" : `, ${Math.round(load * 100)} %`}`;
  const name = html("a", { href: `#/host/${encodeURIComponent(host.name)}` }, host.vcpus ? host.name : "a host");
  return html("li", {}, name, html("span", { class: "muted" }, ` ${said}${host.enabled ? "" : ", disabled"}`));
}
