// The panel beside the map: the fleet as a whole, or the one thing that was picked.

import { actionPage } from "./actions.js";
import { aggregatePage } from "./aggregates.js";
import { button, moveList, ruleChanges, strandedList, toMap } from "./answers.js";
import { html, refill, renew } from "./dom.js";
import { command } from "./links.js";
import { download } from "./lists.js";
import { swatch } from "./looks.js";
import { followMoves, isUnderWay } from "./moves.js";
import { nodePage } from "./nodes.js";
import { Places } from "./places.js";
import { projectPage } from "./projects.js";
import { get, mayOperate, post } from "./session.js";
import { hostPage, serverPage } from "./things.js";
import { loadTroubles, troubleList } from "./troubles.js";
import { count, nouns } from "./words.js";

/** @typedef {import("./fleet.js").Fleet} Fleet */
/** @typedef {import("./answers.js").Names} Names */
/** @typedef {{scope: string, identifier: string}} Place */

const DRAINS = "/compute/v2.1/os-drains";
const MOST_ARROWS = 60;
const LATER = 250;

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
    /** What the panel shows. @type {any} */
    this._shown = undefined;
    /** The drain that is followed. */
    this._following = "";
  }

  /**
   * @param {string[]} path what was picked: a kind and an id
   * @param {HTMLElement} panel
   */
  async open([kind, id], panel) {
    this._panel = panel;
    if (this._picked?.id !== id) this._forget();
    this._picked = { kind, id };
    this._shown = undefined;
    this._map.emphasise(kind === "server" ? { name: id ?? "", has: (server) => server.id === id } : null);
    await this.fleetChanged();
  }

  close() {
    this._forget();
    this._map.emphasise(null);
  }

  /** Take back what was asked and drawn. */
  _forget() {
    this._following = "";
    this._answer.replaceChildren();
    this._map.arrows([]);
  }

  async fleetChanged() {
    const picked = this._picked;
    const content = await this._content(picked?.kind, picked?.id);
    if (!this._panel || this._picked !== picked) return;
    // What is being pressed or selected stays under the pointer.
    if (this._panel.matches(":active") || selecting(this._panel)) {
      clearTimeout(this._later);
      this._later = setTimeout(() => this.fleetChanged().catch(() => {}), LATER);
      return;
    }
    if (this._shown === this._picked) return renew(this._panel, content);
    this._shown = this._picked;
    refill(this._panel, content);
  }

  /** @param {string|undefined} kind @param {string} [id] */
  async _content(kind, id = "") {
    /** @type {(scope: string, place: string, names: Names) => any[]} */
    const ask = (scope, place, names) => this._questions(scope, place, names);
    /** @type {Record<string, () => any>} */
    const pages = {
      aggregate: () => aggregatePage(id, this._fleet, ask),
      host: () => (this._fleet.all ? hostPage(id, ask) : this._ownHost(id)),
      server: () => serverPage(id),
      node: () => nodePage(id),
      action: () => actionPage(id),
      project: () => projectPage(id, this._fleet.all),
    };
    return kind && kind in pages ? [back(), ...(await pages[kind]())] : this._whole();
  }

  /** @param {any} change */
  async changed(change) {
    const concerned = ["node", "action"].includes(this._picked?.kind ?? "");
    if (concerned && change.clusters !== undefined) await this.fleetChanged();
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

  /** What a tenant sees of a host. @param {string} name */
  _ownHost(name) {
    const host = this._fleet.aggregates.flatMap((each) => each.hosts ?? []).find((each) => each.name === name);
    if (!host) return [html("p", {}, "This host is not open on the map.")];
    return [
      html("h2", {}, "A host"),
      html("p", { class: "muted" }, "Only operators see which host this is."),
      html("h3", {}, count(host.servers.length, "server")),
      html("ul", { class: "plain" }, ...host.servers.map(serverItem)),
    ];
  }

  /**
   * The questions that an operator asks before touching a place, and a tenant before trusting one.
   * @param {string} scope
   * @param {string} identifier
   * @param {Names} names
   */
  _questions(scope, identifier, names) {
    const named = this._fleet.scopes.find((each) => each.name === scope)?.named;
    if (identifier === "none" || (scope !== "host" && !named)) return [];
    const place = { scope, identifier };
    if (mayOperate()) this._takeUp(place).catch(() => {});
    return [
      html(
        "p",
        { class: "buttons" },
        button("What if we lose it?", () => this._ask("lose", place, names)),
        button("What if we drain it?", () => this._ask("drain", place, names)),
      ),
      this._answer,
    ];
  }

  /** @param {string} change @param {Place} place @param {Names} names */
  async _ask(change, place, names) {
    const fleet = this._fleet;
    const all = fleet.all ? "?all_projects=1" : "";
    this._tell(html("p", { class: "muted" }, "Working it out…"));
    const answer = post(`/compute/v2.1/os-server-groups/plan${all}`, { plan: { [change]: place } });
    // The button that was pressed may have been drawn anew meanwhile: the reason is shown here.
    const asked = await answer.catch((error) => this._tell(html("p", { class: "bad-text" }, error.message)));
    if (!asked) return;
    const { plan } = asked;
    const moves = plan.groups.flatMap((/** @type {any} */ each) => each.moves);
    const places = this._draw(moves);
    const shown = plan.groups.flatMap((/** @type {any} */ each) => [
      html("h3", {}, groupLink(fleet, each.server_group_id), ` ${each.affected} affected`),
      moveList(each.moves, fleet, places, names),
      strandedList(each.stranded, fleet, names),
      ...ruleChanges(each),
    ]);
    const forget = button("Leave it", () => this._forget());
    const drains = change === "drain" && mayOperate();
    this._tell(
      html("p", {}, plan.sentence),
      ...shown,
      moves.length > 0 && toMap(this._map),
      ...(drains ? this._draining(place, forget) : [forget]),
    );
  }

  /** @param {Place} place @param {Element} forget */
  _draining(place, forget) {
    const many = /** @type {HTMLInputElement} */ (html("input", { type: "number", id: "parallel", min: 1, max: 100, value: 2 }));
    const line = command(drainLine(place, 2));
    many.addEventListener("input", () => line.replaceChildren(...command(drainLine(place, Number(many.value) || 1)).childNodes));
    const begin = async () => {
      const { drain } = await post(DRAINS, { drain: { ...place, max_parallel: Number(many.value) || 1 } });
      this._follow(drain.id).catch(() => {});
    };
    return [
      html("p", {}, "To drain it is to disable its hosts, and to have the engine move these servers."),
      html("p", {}, html("label", { for: "parallel" }, "At once "), many),
      line,
      html("p", { class: "buttons" }, button("Disable and drain it", begin), forget),
    ];
  }

  /** Show a drain of this place that is under way. @param {Place} place */
  async _takeUp(place) {
    if (this._following || this._answer.childElementCount) return;
    const { drains } = await get(`${DRAINS}?${new URLSearchParams(place)}`);
    const [last] = drains.filter(isUnderWay);
    if (last) await this._follow(last.id);
  }

  /** @param {string} drainId */
  async _follow(drainId) {
    if (this._following === drainId) return;
    this._following = drainId;
    try {
      await followMoves(`${DRAINS}/${drainId}`, "drain", {
        tell: (...content) => this._tell(...content),
        still: () => this._following === drainId,
        seen: (left) => this._draw(left),
      });
    } finally {
      if (this._following === drainId) this._following = "";
    }
  }

  /** Draw arrows; the names of the places in the answer that they come from. @param {any[]} moves */
  _draw(moves) {
    const places = new Places(this._fleet);
    this._map.arrows(moves.slice(0, MOST_ARROWS), (scope, id) => places.name(scope, id));
    return places;
  }

  /** @param {...any} content */
  _tell(...content) {
    this._answer.replaceChildren(...content.filter(Boolean));
  }
}

/** Whether text in there is selected. @param {Element} panel */
function selecting(panel) {
  const selection = getSelection();
  // Whether it is empty is asked last: the browser lays the page out before it answers.
  return Boolean(selection?.anchorNode && panel.contains(selection.anchorNode) && !selection.isCollapsed);
}

/** @param {Place} place @param {number} many */
function drainLine({ scope, identifier }, many) {
  return `openstack drain start ${scope}=${identifier} --max-parallel ${many}`;
}

/** @param {Fleet} fleet @param {string|null} groupId */
function groupLink(fleet, groupId) {
  if (!groupId) return "In no group:";
  return html("a", { href: `#/groups/${groupId}` }, fleet.groups.get(groupId)?.name ?? groupId.slice(0, 8));
}

/** Hand out the map as a file, with its colours. @param {import("./map.js").FleetMap} map */
async function saveMap(map) {
  const style = await (await fetch("/web/style.css")).text();
  const copy = map.copy();
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

/** @param {any} server */
export function serverItem(server) {
  return html(
    "li",
    {},
    swatch(server.server_group_id),
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
      swatch(group.id),
      html("a", { href: `#/groups/${group.id}` }, group.name),
    ),
  );
  return html("ul", { class: "plain legend" }, ...items);
}
