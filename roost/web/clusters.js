// Clusters: how large they are and want to be, what their policies decided, and what is happening now.

import { bar, unfinished } from "./actions.js";
import { button } from "./answers.js";
import { byName, gauge } from "./charts.js";
import { html, refill } from "./dom.js";
import { eventItems } from "./nodes.js";
import { back } from "./overview.js";
import { get, mayChange, Refused, session } from "./session.js";
import { Steering } from "./steering.js";
import { actionName, chain, count, kindOf, moment, outcome, reasonOf, story } from "./words.js";

const API = "/clustering/v1";
const MOST_ASKED = 60;
const MOST_CARDS = 200;
const MOST_NODES = 50;

/** The list of clusters, and one of them. */
export class Clusters {
  /** @param {{fleet: import("./fleet.js").Fleet, map: import("./map.js").FleetMap}} page */
  constructor(page) {
    this._map = page.map;
    this._fleet = page.fleet;
    this.title = "Clusters";
    /** Zones of servers that the map does not show. @type {Map<string, string>} */
    this._zones = new Map();
    this._busy = false;
    this._again = false;
  }

  /**
   * @param {string[]} path
   * @param {HTMLElement} panel
   */
  async open([id], panel) {
    this._panel = panel;
    this._id = id;
    if (!id) this._map.emphasise(null);
    this._head = html("div", {});
    this._rest = html("div", {});
    this._steering = id && mayChange() ? new Steering(id) : null;
    panel.replaceChildren(...(id ? [back("#/clusters"), this._head, this._steering?.node ?? "", this._rest] : [this._rest]));
    await this._draw();
  }

  close() {
    this._id = undefined;
    this._map.emphasise(null);
  }

  /** @param {any} change */
  async changed(change) {
    const clusters = change.clusters;
    if (clusters === undefined) return;
    if (!this._id || clusters === null || clusters.includes(this._id)) await this._draw().catch((error) => this._gone(error));
  }

  /** Where the cluster was deleted meanwhile, go to the list; its nodes and actions may be refused before it is. @param {unknown} error */
  async _gone(error) {
    if (!(error instanceof Refused && this._id)) throw error;
    const again = await get(`${API}/clusters/${this._id}`).catch((refusal) => refusal);
    if (!(again instanceof Refused && again.status === 404)) throw error;
    location.hash = "#/clusters";
  }

  /** One drawing at a time; what changes meanwhile is drawn once afterwards. */
  async _draw() {
    this._again = true;
    if (this._busy) return;
    this._busy = true;
    try {
      while (this._again) {
        this._again = false;
        await (this._id ? this._one(this._id) : this._list());
      }
    } finally {
      this._busy = false;
    }
  }

  async _list() {
    const everybody = session.roles.includes("admin") ? "&global_project=true" : "";
    const { clusters } = await get(`${API}/clusters?limit=${MOST_CARDS}${everybody}`);
    const cards = clusters.map((/** @type {any} */ cluster) =>
      html(
        "li",
        {},
        html("a", { href: `#/clusters/${cluster.id}` }, cluster.name),
        status(cluster.status),
        gauge(cluster),
      ),
    );
    if (this._id || !this._rest) return;
    const more = clusters.length === MOST_CARDS && html("p", {}, html("a", { href: "#/lists/clusters" }, "All clusters"));
    refill(this._rest, [
      html("h2", {}, "Clusters"),
      html("ul", { class: "cards" }, ...(cards.length ? cards : [html("li", { class: "muted" }, "There are no clusters.")])),
      more,
    ]);
  }

  /** @param {string} id */
  async _one(id) {
    const everybody = session.roles.includes("admin") ? "&global_project=true" : "";
    const [{ cluster }, { nodes }, { cluster_policies: bindings }, { actions }, { events }] = await Promise.all([
      get(`${API}/clusters/${id}`),
      get(`${API}/nodes?cluster_id=${id}&limit=1000${everybody}`),
      get(`${API}/clusters/${id}/policies`),
      get(`${API}/actions?target=${id}&sort=created_at:desc&limit=20${everybody}`),
      get(`${API}/events?cluster_id=${id}&sort=timestamp:desc&limit=20${everybody}`),
    ]);
    this._emphasise(id, nodes);
    const zones = nodes.length ? byName(await this._byZone(nodes)) : html("p", { class: "muted" }, "It has no nodes.");
    if (this._id !== id || !this._head || !this._rest) return;
    const asked = actions.find((/** @type {any} */ each) => decided(each)) ?? null;
    this._steering?.know(cluster, bindings);
    refill(this._head, [
      html("h2", {}, cluster.name, status(cluster.status)),
      html("p", { class: "muted" }, reasonOf(cluster.status_reason ?? "")),
      gauge(cluster),
      ...actions.filter(unfinished).map(running),
    ]);
    refill(this._rest, [
      html("h3", {}, "Policies, in the order in which they are asked"),
      policies(bindings, asked, this._steering),
      asked && lastAction(asked),
      html("h3", {}, "Nodes by zone"),
      zones,
      ...nodeList(id, nodes),
      html("h3", {}, "Events"),
      eventItems(events),
    ]);
  }

  /** The cluster's own servers stand out on the map. @param {string} id @param {any[]} nodes */
  _emphasise(id, nodes) {
    const servers = new Set(nodes.map((node) => node.physical_id).filter(Boolean));
    const name = `${id} ${[...servers].sort().join(" ")}`;
    if (this._id === id) this._map.emphasise({ name, has: (server) => servers.has(server.id) });
  }

  /** @param {any[]} nodes */
  async _byZone(nodes) {
    const zoneOf = (/** @type {any} */ node) =>
      this._fleet.find(node.physical_id)?.aggregate.zone ?? node.data?.placement?.zone ?? this._zones.get(node.physical_id);
    // Nodes come and go all day: what is known of those that went is forgotten.
    const servers = new Set(nodes.map((node) => node.physical_id));
    for (const id of this._zones.keys()) if (!servers.has(id)) this._zones.delete(id);
    const unknown = nodes.filter((node) => node.physical_id && !zoneOf(node));
    await Promise.all(unknown.slice(0, MOST_ASKED).map((node) => this._ask(node.physical_id)));
    const counts = new Map();
    for (const node of nodes) {
      const zone = zoneOf(node) ?? (node.physical_id ? "elsewhere" : "no server yet");
      counts.set(zone, (counts.get(zone) ?? 0) + 1);
    }
    return counts;
  }

  /** @param {string} serverId */
  async _ask(serverId) {
    try {
      const { server } = await get(`/compute/v2.1/servers/${serverId}`);
      if (server["OS-EXT-AZ:availability_zone"]) this._zones.set(serverId, server["OS-EXT-AZ:availability_zone"]);
    } catch {
      // A server that is gone has no zone.
    }
  }
}

/** Whether policies had something to say about this action. @param {any} action */
function decided(action) {
  const data = action.data ?? {};
  return ["creation", "deletion", "placement", "update", "health", "status"].some((key) => key in data);
}

/** @param {string} word */
function status(word) {
  const kind = word === "ACTIVE" ? "fine" : ["ERROR", "CRITICAL"].includes(word) ? "bad" : "busy";
  return html("span", { class: `badge ${kind}` }, word.toLowerCase());
}

/** @param {any} action */
function running(action) {
  const left = action.depends_on.length;
  const status = action.status.toLowerCase().replaceAll("_", " ");
  const said = `: ${status}${left ? `, ${count(left, "node")} left` : ""}`;
  return html("p", { class: "running" }, html("span", {}, actionLink(action, actionName(action.action)), said), bar(action));
}

/** @param {any} action @param {string} words */
function actionLink(action, words) {
  return html("a", { href: `#/action/${action.id}` }, words);
}

/** @param {any[]} bindings @param {any} asked @param {Steering|null|undefined} steering */
function policies(bindings, asked, steering) {
  if (!bindings.length) return html("p", { class: "muted" }, "No policy governs this cluster.");
  const items = chain(bindings).map((each) =>
    html(
      "li",
      { class: each.enabled ? null : "muted" },
      html("strong", {}, each.policy_name),
      html("span", { class: "muted" }, ` ${kindOf(each.policy_type).replaceAll("_", " ")} policy`),
      html("p", {}, each.enabled ? story(each.policy_type, asked) : "Switched off."),
      steering &&
        html(
          "p",
          { class: "buttons small" },
          named(each.enabled ? "Switch off" : "Switch on", each, () => steering.toggle(each)),
          named("Detach", each, () => steering.detach(each)),
        ),
    ),
  );
  return html("ol", { class: "chain" }, ...items);
}

/** A button for one of several policies. @param {string} verb @param {any} binding @param {() => Promise<any>} act */
function named(verb, binding, act) {
  const node = button(verb, act);
  node.setAttribute("aria-label", `${verb} ${binding.policy_name}`);
  return node;
}

/** @param {string} id @param {any[]} nodes */
function nodeList(id, nodes) {
  const unwell = nodes.filter((each) => each.status !== "ACTIVE");
  const shown = [...unwell, ...nodes.filter((each) => each.status === "ACTIVE")].slice(0, MOST_NODES);
  const items = shown.map((each) =>
    html(
      "li",
      {},
      html("a", { href: `#/node/${each.id}` }, each.name),
      html("span", { class: each.status === "ERROR" ? "bad-text" : "muted" }, ` ${each.status.toLowerCase()}`),
    ),
  );
  const all = html("a", { href: `#/lists/nodes?cluster_id=${id}` }, `All ${nodes.length} nodes`);
  return [html("ul", { class: "plain" }, ...items), nodes.length > MOST_NODES && html("p", {}, all)];
}

/** @param {any} action */
function lastAction(action) {
  return html(
    "p",
    { class: "last-action" },
    html("strong", {}, actionLink(action, `Last ${actionName(action.action)}`)),
    ` (${action.status.toLowerCase()}, ${moment(action.created_at)}): ${outcome(action)}`,
  );
}
