// The panel beside the map: the fleet as a whole, or the one thing that was picked.

import { button, moveList, ruleChanges, strandedList, toMap } from "./answers.js";
import { html, refill } from "./dom.js";
import { keyOf } from "./layout.js";
import { download } from "./lists.js";
import { hueOf, loadOf, titleOf } from "./map.js";
import { Places } from "./places.js";
import { post } from "./session.js";
import { factList, hostPage, serverPage } from "./things.js";
import { loadTroubles, troubleList } from "./troubles.js";
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

  /** A page of its own is not filled anew while somebody works in it, also not by what was asked for before. */
  async fleetChanged() {
    const { kind, id } = this._picked ?? {};
    const again = this._shown === `${kind}/${id}`;
    if (again && this._inUse()) return;
    this._shown = `${kind}/${id}`;
    const content = await this._content(kind, id);
    if (this._picked?.id === id && this._panel && !(again && this._inUse())) refill(this._panel, content);
  }

  /** Whether something is opened, being worked out, or answered in the panel. */
  _inUse() {
    return Boolean(this._panel?.querySelector('details[open], [aria-busy="true"], .answer:not(:empty)'));
  }

  /** @param {string|undefined} kind @param {string} [id] */
  async _content(kind, id = "") {
    if (kind === "aggregate") return this._aggregate(id);
    if (kind === "host") return this._host(id);
    if (kind === "server") return this._server(id);
    return this._whole();
  }

  async _whole() {
    const fleet = this._fleet;
    const troubles = await loadTroubles();
    const facts = [["servers", fleet.servers]];
    if (fleet.all) facts.unshift(["hosts", fleet.hosts]);
    facts.push([nouns(fleet.scope), fleet.aggregates.length]);
    return [
      html("h2", {}, troubles.total ? `${count(troubles.total, "thing")} wrong` : "Nothing is wrong"),
      troubleList(troubles),
      html("h3", {}, fleet.all ? "The fleet" : "Your servers"),
      html("dl", { class: "totals" }, ...facts.map(([name, number]) => total(String(name), Number(number)))),
      button("Save the map as SVG", () => saveMap(this._map)),
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
    if (this._fleet.all) return this._hostOfAll(name);
    const host = this._fleet.aggregates.flatMap((each) => each.hosts ?? []).find((each) => each.name === name);
    if (!host) return [back(), html("p", {}, "This host is not open on the map.")];
    return [
      back(),
      html("h2", {}, "A host"),
      html("p", { class: "muted" }, "Only operators see which host this is."),
      html("h3", {}, count(host.servers.length, "server")),
      html("ul", { class: "plain" }, ...host.servers.map(serverItem)),
    ];
  }

  /** @param {string} name */
  async _hostOfAll(name) {
    return [back(), ...(await hostPage(name, (place) => this._questions(place.scope, place.identifier)))];
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
    const all = fleet.all ? "?all_projects=1" : "";
    const { plan } = await post(`/compute/v2.1/os-server-groups/plan${all}`, { plan: { [change]: place } });
    const places = new Places(fleet);
    const moves = plan.groups.flatMap((/** @type {any} */ each) => each.moves);
    this._map.arrows(moves.slice(0, MOST_ARROWS), (scope, id) => places.name(scope, id));
    const shown = plan.groups.flatMap((/** @type {any} */ each) => [
      html("h4", {}, groupLink(fleet, each.server_group_id), ` ${each.affected} affected`),
      moveList(each.moves, fleet, places),
      strandedList(each.stranded, fleet),
      ...ruleChanges(each),
    ]);
    const forget = button("Leave it", () => this.close());
    const content = [html("p", {}, plan.sentence), ...shown, moves.length > 0 && toMap(this._map), forget];
    this._answer.replaceChildren(...content.filter(Boolean));
  }

  /** @param {string} id */
  async _server(id) {
    return [back(), ...(await serverPage(id))];
  }
}

/** @param {string} scope @param {string} name */
function heading(scope, name) {
  const kind = scope.replaceAll("_", " ");
  return name.startsWith(`${kind} `) ? name : `${kind} ${name}`;
}

/** @param {Fleet} fleet @param {string|null} groupId */
function groupLink(fleet, groupId) {
  if (!groupId) return "In no group:";
  return html("a", { href: `#/groups/${groupId}` }, fleet.groups.get(groupId)?.name ?? groupId.slice(0, 8));
}

/** Hand out the map as a file, with its colours. @param {import("./map.js").FleetMap} map */
async function saveMap(map) {
  const style = await (await fetch("/web/style.css")).text();
  const copy = /** @type {Element} */ (map.svg.cloneNode(true));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const look = document.createElementNS("http://www.w3.org/2000/svg", "style");
  look.textContent = style;
  copy.prepend(look);
  download(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), "map.svg");
}

/** @param {string} name @param {number} number */
function total(name, number) {
  return html("div", {}, html("dt", {}, name), html("dd", {}, number.toLocaleString("en")));
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
