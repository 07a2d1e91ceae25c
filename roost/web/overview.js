// The panel beside the map: the fleet as a whole, or the one thing that was picked.

import { button, moveList, strandedList, toMap, violationList } from "./answers.js";
import { html, refill } from "./dom.js";
import { hueOf, loadOf, titleOf } from "./map.js";
import { keyOf } from "./layout.js";
import { Places } from "./places.js";
import { get, post } from "./session.js";
import { count, nouns } from "./words.js";

/** @typedef {import("./fleet.js").Fleet} Fleet */

const MOST_ARROWS = 60;

/** The overview, and what is known of a tile. */
export class Overview {
  /** @param {{fleet: Fleet, map: import("./map.js").FleetMap}} page */
  constructor(page) {
    this._fleet = page.fleet;
    this._map = page.map;
    this.title = "Overview";
    this._answer = html("div", { class: "answer", role: "status" });
    /** @type {{kind: string|undefined, id: string|undefined}|undefined} */
    this._picked = undefined;
  }

  /**
   * @param {string[]} path what was picked: a kind and an id
   * @param {HTMLElement} panel
   */
  async open([kind, id], panel) {
    this._panel = panel;
    if (this._picked?.id !== id) this.close();
    this._picked = { kind, id };
    await this.fleetChanged();
  }

  close() {
    this._answer.replaceChildren();
    this._map.arrows([]);
  }

  async fleetChanged() {
    const { kind, id } = this._picked ?? {};
    const content = await this._content(kind, id);
    if (this._picked?.id === id && this._panel) refill(this._panel, content);
  }

  /** @param {string|undefined} kind @param {string} [id] */
  async _content(kind, id = "") {
    if (kind === "aggregate") return this._aggregate(id);
    if (kind === "host") return this._host(id);
    if (kind === "server") return this._server(id);
    return this._whole();
  }

  _whole() {
    const fleet = this._fleet;
    const facts = [["servers", fleet.servers]];
    if (fleet.all) facts.unshift(["hosts", fleet.hosts]);
    facts.push([nouns(fleet.scope), fleet.aggregates.length]);
    return [
      html("h2", {}, fleet.all ? "The fleet" : "Your servers"),
      html("dl", { class: "totals" }, ...facts.map(([name, number]) => total(String(name), Number(number)))),
      html("h3", {}, "Broken rules"),
      broken(fleet.violations, fleet.violationCount),
      fleet.groups.size > 0 && html("h3", {}, "Groups on the map"),
      fleet.groups.size > 0 && legend([...fleet.groups.values()].slice(0, 40)),
    ];
  }

  /** @param {string} key */
  _aggregate(key) {
    const found = this._fleet.aggregates.find((each) => keyOf(each) === key);
    if (!found) return [back(), html("p", {}, "This place is no longer on the map.")];
    const facts = [
      ["Zone", found.zone],
      ["Servers", found.servers],
      found.host_count !== undefined && ["Hosts", found.host_count],
      found.disabled !== undefined && ["Disabled", found.disabled],
      found.load !== undefined && ["Load", `${Math.round(found.load * 100)} %`],
      ["Broken rules", found.violations],
    ];
    const opens = this._fleet.all && button(
      found.hosts ? "Close on the map" : "Open on the map",
      () => this._fleet.toggle(found.id),
    );
    const hosts = (found.hosts ?? []).map((host) => hostItem(host));
    return [
      back(),
      html("h2", {}, heading(this._fleet.scope, titleOf(found))),
      factList(facts),
      opens,
      ...this._questions(this._fleet.scope, found.id),
      hosts.length > 0 && html("h3", {}, "Hosts"),
      hosts.length > 0 && html("ul", { class: "plain" }, ...hosts),
    ];
  }

  /** @param {string} name */
  _host(name) {
    const host = this._fleet.aggregates.flatMap((each) => each.hosts ?? []).find((each) => each.name === name);
    if (!host) return [back(), html("p", {}, "This host is not open on the map.")];
    const load = loadOf(host);
    const facts = [
      ["State", host.enabled ? "enabled" : host.reason || "disabled"],
      load !== null && ["Load", `${Math.round(load * 100)} %`],
      host.vcpus && ["VCPUs", `${host.vcpus[0]} of ${host.vcpus[1]}`],
      host.memory_mb && ["Memory", `${gib(host.memory_mb[0])} of ${gib(host.memory_mb[1])} GiB`],
    ];
    return [
      back(),
      html("h2", {}, host.vcpus ? host.name : "A host"),
      host.vcpus ? factList(facts) : html("p", { class: "muted" }, "Which host this is, only operators are told."),
      ...(this._fleet.all ? this._questions("host", host.name) : []),
      html("h3", {}, count(host.servers.length, "server")),
      html("ul", { class: "plain" }, ...host.servers.map(serverItem)),
    ];
  }

  /**
   * The questions that an operator asks before touching a place, and a tenant before trusting one.
   * @param {string} scope
   * @param {string} id
   */
  _questions(scope, id) {
    if (scope === this._fleet.scope && (!this._fleet.named || id === "none")) return [];
    const ask = (/** @type {string} */ change) => this._ask(change, { scope, identifier: id });
    return [
      html(
        "p",
        { class: "buttons" },
        button("What if we lose it?", () => ask("lose")),
        button("What if we drain it?", () => ask("drain")),
      ),
      this._answer,
    ];
  }

  /** @param {string} change @param {{scope: string, identifier: string}} place */
  async _ask(change, place) {
    const fleet = this._fleet;
    const everybody = fleet.all ? "?all_projects=1" : "";
    const { plan } = await post(`/compute/v2.1/os-server-groups/plan${everybody}`, { plan: { [change]: place } });
    const places = new Places(fleet);
    const moves = plan.groups.flatMap((/** @type {any} */ each) => each.moves);
    this._map.arrows(moves.slice(0, MOST_ARROWS), (scope, id) => places.name(scope, id));
    const told = plan.groups.flatMap((/** @type {any} */ each) => [
      html("h4", {}, groupLink(fleet, each.server_group_id), ` ${each.affected} affected`),
      moveList(each.moves, fleet, places),
      strandedList(each.stranded, fleet),
      each.violations.length > 0 && violationList(each.violations),
    ]);
    const forget = button("Leave it", () => this.close());
    const shown = [html("p", {}, plan.sentence), ...told, moves.length > 0 && toMap(this._map), forget];
    this._answer.replaceChildren(...shown.filter(Boolean));
  }

  /** @param {string} id */
  async _server(id) {
    const found = this._fleet.find(id);
    if (!found) return [back(), html("p", {}, "This server is not on the map.")];
    const { server, host } = found;
    const group = this._fleet.groups.get(server.server_group_id);
    const facts = [
      ["State", server.state],
      ["Zone", found.aggregate.zone],
      [this._fleet.scope.replaceAll("_", " "), titleOf(found.aggregate)],
      host.vcpus && ["Host", host.name],
      group && ["Group", html("a", { href: `#/groups/${group.id}` }, group.name)],
      ["Id", server.id],
    ];
    return [back(), html("h2", {}, server.name), factList(facts), html("h3", {}, "Why it is here"), await why(id)];
  }
}

/** @param {string} scope @param {string} name */
function heading(scope, name) {
  const kind = scope.replaceAll("_", " ");
  return name.startsWith(`${kind} `) ? name : `${kind} ${name}`;
}

/** @param {string} id */
async function why(id) {
  const { explanation } = await get(`/compute/v2.1/servers/${id}/explanation`);
  if (!explanation) return html("p", { class: "muted" }, "Nothing was written down when it was placed.");
  return html("p", {}, explanation.sentence);
}

/** @param {Fleet} fleet @param {string|null} groupId */
function groupLink(fleet, groupId) {
  if (!groupId) return "In no group:";
  return html("a", { href: `#/groups/${groupId}` }, fleet.groups.get(groupId)?.name ?? groupId.slice(0, 8));
}

/** @param {number} megabytes */
function gib(megabytes) {
  return Math.round((megabytes / 1024) * 10) / 10;
}

/** @param {string} name @param {number} number */
function total(name, number) {
  return html("div", {}, html("dt", {}, name), html("dd", {}, number.toLocaleString("en")));
}

/** @param {any[]} facts */
export function factList(facts) {
  const rows = facts.filter(Boolean).flatMap(([name, value]) => [
    html("dt", {}, name),
    html("dd", {}, value instanceof Node ? value : String(value)),
  ]);
  return html("dl", { class: "facts" }, ...rows);
}

export function back(href = "#/") {
  return html("p", {}, html("a", { href, class: "back" }, "← All"));
}

/** @param {any} host */
function hostItem(host) {
  const load = loadOf(host);
  const said = `${count(host.servers.length, "server")}${load === null ? "" : `, ${Math.round(load * 100)} %`}`;
  const name = html("a", { href: `#/host/${encodeURIComponent(host.name)}` }, host.vcpus ? host.name : "a host");
  return html("li", {}, name, html("span", { class: "muted" }, ` ${said}${host.enabled ? "" : ", disabled"}`));
}

/** @param {any} server */
export function serverItem(server) {
  return html(
    "li",
    {},
    html("span", { class: `swatch ${hueOf(server.server_group_id)}` }),
    html("a", { href: `#/server/${server.id}` }, server.name),
    html("span", { class: "muted" }, ` ${server.state}`),
    server.violates && html("span", { class: "badge bad" }, "breaks a rule"),
  );
}

/** @param {any[]} groups */
function legend(groups) {
  const items = groups.map((group) =>
    html(
      "li",
      {},
      html("span", { class: `swatch ${hueOf(group.id)}` }),
      html("a", { href: `#/groups/${group.id}` }, group.name),
    ),
  );
  return html("ul", { class: "plain legend" }, ...items);
}

/** @param {any[]} violations @param {number} all */
export function broken(violations, all) {
  if (!all) return html("p", { class: "good" }, "None: every rule holds.");
  const items = violations.slice(0, 50).map((each) =>
    html(
      "li",
      {},
      html("a", { href: `#/groups/${each.server_group_id}` }, each.server_group_name),
      html("span", {}, `: ${each.message}`),
    ),
  );
  const more = all > items.length ? html("p", { class: "muted" }, `and ${all - items.length} more`) : "";
  return html("div", { class: "violations" }, html("ul", { class: "plain" }, ...items), more);
}
