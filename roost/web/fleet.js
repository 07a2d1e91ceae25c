// What the page knows of the fleet: loaded once by aggregates, then only what changed.

import { keyOf } from "./layout.js";
import { get } from "./session.js";

/** @typedef {import("./layout.js").Aggregate} Aggregate */

const FEW_HOSTS = 200;
const MANY = 100;
const ZONE = "availability_zone";

/** The fleet by the aggregates of one scope. */
export class Fleet {
  /** @param {() => void} changed */
  constructor(changed) {
    this._changed = changed;
    this.scope = "";
    /** Which scopes there are, and whether the viewer may name their aggregates. @type {{name: string, named: boolean}[]} */
    this.scopes = [];
    this.all = false;
    /** @type {Aggregate[]} */
    this.aggregates = [];
    /** The groups on the map. @type {Map<string, {id: string, name: string, project_id: string}>} */
    this.groups = new Map();
    /** @type {any[]} */
    this.violations = [];
    this.violationCount = 0;
    /** Ids of the aggregates that are open; null: all of them. @type {Set<string>|null} */
    this.opened = new Set();
    /** The group whose members are counted. @type {string|null} */
    this.group = null;
    /** Whether they have yet to be counted. */
    this._uncounted = false;
    /** @type {Set<string>|null|undefined} */
    this._wanted = undefined;
    /** @type {Promise<void>|null} */
    this._asking = null;
    /** How often the fleet was divided anew: answers from before are dropped. */
    this._division = 0;
  }

  /** Whether the viewer may name the aggregates on the map. */
  get named() {
    return Boolean(this.scopes.find((each) => each.name === this.scope)?.named);
  }

  get hosts() {
    return this.aggregates.reduce((sum, each) => sum + (each.host_count ?? 0), 0);
  }

  get servers() {
    return this.aggregates.reduce((sum, each) => sum + each.servers, 0);
  }

  /** Divide by a scope. Where there are few hosts, all aggregates are open. @param {string} scope */
  async divide(scope) {
    this.scope = scope;
    this.opened = new Set();
    const division = ++this._division;
    await this._load();
    if (division === this._division && this.all && this.hosts && this.hosts <= FEW_HOSTS) {
      this.opened = null;
      this._division++;
      await this._load();
    }
  }

  /** Ask again for these aggregates; null is all. @param {string[]|null} ids */
  refresh(ids) {
    if (ids === null || this._wanted === null) this._wanted = null;
    else this._wanted = new Set([...(this._wanted ?? []), ...ids]);
    this._asking ??= this._ask().finally(() => (this._asking = null));
    return this._asking;
  }

  /** Open or close an aggregate. @param {string} id */
  async toggle(id) {
    const open = new Set(this.opened ?? this.aggregates.map((each) => each.id));
    if (!open.delete(id)) open.add(id);
    this.opened = open;
    await this.refresh([id]);
  }

  /** Count the members of a group where they are; null is of none. @param {string|null} groupId */
  async count(groupId) {
    if (this.group === groupId) return;
    this.group = groupId;
    this._uncounted = groupId !== null;
    if (this.aggregates.some((each) => each.members)) {
      this.aggregates = this.aggregates.map(uncounted);
      this._changed();
    }
    if (this._uncounted) await this.refresh(this.all ? [] : null);
  }

  /** The server, where it is. @param {string} serverId */
  find(serverId) {
    for (const aggregate of this.aggregates) {
      for (const host of aggregate.hosts ?? []) {
        const server = host.servers.find((/** @type {any} */ each) => each.id === serverId);
        if (server) return { server, host, aggregate };
      }
    }
    return null;
  }

  /**
   * Where members of a group are, as far as the viewer may name it: zones, aggregates of the scope, open hosts.
   * @param {string} groupId
   */
  placesOf(groupId) {
    const has = (/** @type {any} */ host) => host.servers.some((/** @type {any} */ each) => each.server_group_id === groupId);
    const tiles = this.aggregates.filter((each) => each.members || each.hosts?.some(has));
    const zones = [...new Set(tiles.map((each) => each.zone))];
    const found = zones.map((zone) => ({ scope: ZONE, id: zone, name: zone }));
    if (this.named && this.scope !== ZONE) {
      found.push(...tiles.map((each) => ({ scope: this.scope, id: each.id, name: each.name ?? each.id.slice(0, 8) })));
    }
    if (this.all) {
      const hosts = tiles.flatMap((each) => (each.hosts ?? []).filter(has));
      found.push(...hosts.map((each) => ({ scope: "host", id: each.name, name: each.name })));
    }
    return found;
  }

  async _ask() {
    while (this._wanted !== undefined) {
      const wanted = this._wanted;
      this._wanted = undefined;
      if (wanted === null || !this.all || wanted.size > MANY) await this._load();
      else await this._update(wanted);
    }
  }

  async _load() {
    const fleet = await this._get([]);
    if (!fleet) return;
    this._take(fleet);
    this.aggregates = this.named ? fleet.aggregates : numbered(fleet);
    const ids = new Set(this.aggregates.map((each) => each.id));
    if (this.opened) this.opened = new Set([...this.opened].filter((each) => ids.has(each)));
    this._forget();
    this._changed();
  }

  /** @param {Set<string>} wanted */
  async _update(wanted) {
    if (!wanted.size && !this._uncounted) return;
    const fleet = await this._get([...wanted], this._uncounted);
    if (!fleet) return;
    const fresh = new Map(fleet.aggregates.map((/** @type {Aggregate} */ each) => [keyOf(each), each]));
    const known = new Set(this.aggregates.map(keyOf));
    if ([...fresh.keys()].some((key) => !known.has(/** @type {string} */ (key)))) return this._load();
    this.aggregates = this.aggregates.map((each) => /** @type {Aggregate} */ (fresh.get(keyOf(each)) ?? each));
    this._take(fleet);
    const stale = this._recount(fleet.violating);
    this._forget();
    this._changed();
    if (stale.length) this._wanted = new Set([...(this._wanted ?? []), ...stale]);
  }

  /**
   * Which tiles glow now; the opened ones whose marks have to be asked for again.
   * @param {{zone: string, id: string, violations: number}[]} violating
   */
  _recount(violating) {
    const now = new Map(violating.map((each) => [`${each.zone}/${each.id}`, each.violations]));
    const stale = [];
    for (const [index, each] of this.aggregates.entries()) {
      const violations = now.get(keyOf(each)) ?? 0;
      if (each.violations === violations) continue;
      this.aggregates[index] = { ...each, violations };
      if (each.hosts) stale.push(each.id);
    }
    return stale;
  }

  /** The fleet, unless it was divided anew meanwhile. @param {string[]} only @param {boolean} [members] also where there are members */
  async _get(only, members = false) {
    const [division, group] = [this._division, this.group];
    const query = new URLSearchParams(this.scope ? { scope: this.scope } : {});
    for (const id of only) query.append("only", id);
    for (const id of this.opened ?? ["all"]) query.append("open", id);
    if (group) query.set("group", group);
    if (members) query.set("members", "1");
    this._uncounted = false;
    const { fleet } = await get(`/compute/v2.1/os-fleet?${query}`);
    if (group !== this.group) fleet.aggregates = fleet.aggregates.map(uncounted);
    return division === this._division ? fleet : null;
  }

  /** @param {any} fleet */
  _take(fleet) {
    this.scope = fleet.scope;
    this.scopes = fleet.scopes;
    this.all = fleet.all;
    this.violations = fleet.violations;
    this.violationCount = fleet.violation_count;
    for (const group of fleet.groups) this.groups.set(group.id, group);
  }

  /** Keep only the groups that servers on open hosts are in. */
  _forget() {
    const shown = new Set();
    for (const { hosts } of this.aggregates) {
      for (const host of hosts ?? []) for (const server of host.servers) shown.add(server.server_group_id);
    }
    for (const id of this.groups.keys()) if (!shown.has(id)) this.groups.delete(id);
  }
}

/** Without the members of a group. @param {Aggregate} aggregate */
function uncounted(aggregate) {
  return aggregate.members ? { ...aggregate, members: undefined } : aggregate;
}

/**
 * Where a tenant may name nothing, identifiers are made up for each answer: tiles are told apart by their place.
 * @param {any} fleet
 * @returns {Aggregate[]}
 */
function numbered(fleet) {
  return fleet.aggregates.map((/** @type {Aggregate} */ each, /** @type {number} */ index) => {
    const name = `${fleet.scope.replaceAll("_", " ")} ${index + 1}`;
    return { ...each, id: name, name };
  });
}
