// Server groups: their rules in words, how members are spread, what is broken, and what would mend it.

import { button, explained, moveList, placementList, ruleChanges, strandedList, toMap, violationList } from "./answers.js";
import { distribution } from "./charts.js";
import { html, refill, renew, set } from "./dom.js";
import { swatch } from "./looks.js";
import { titleOf } from "./map.js";
import { followMoves, isUnderWay } from "./moves.js";
import { back } from "./overview.js";
import { arrangement, Places } from "./places.js";
import { composer } from "./composer.js";
import { historyOf } from "./feed.js";
import { command, linkTo } from "./links.js";
import { get, mayChange, mayOperate, post, request } from "./session.js";
import { count } from "./words.js";

const GROUPS = "/compute/v2.1/os-server-groups";
const MEANINGS = "/compute/v2.1/os-rule-meanings";
const CHANGES = { create: "it grows by", lose: "we lose", drain: "we drain" };
const MOST_MEMBERS = 100;
/** Of how many different rules it is remembered what they mean. */
const MOST_MEANINGS = 200;
/** @type {Record<string, string>} */
const SHORT = { availability_zone: "zone" };

/** The list of groups, and one of them. */
export class Groups {
  /** @param {{fleet: import("./fleet.js").Fleet, map: import("./map.js").FleetMap}} page */
  constructor(page) {
    this._page = page;
    this.title = "Groups";
    this._filter = "";
    /** The names of the members, by id. @type {Map<string, string>} */
    this._names = new Map();
    /** What was known of the group when it was last read. @type {string|undefined} */
    this._known = undefined;
  }

  /**
   * @param {string[]} path
   * @param {HTMLElement} panel
   */
  async open([id], panel) {
    this._panel = panel;
    this._id = id;
    const { fleet, map } = this._page;
    map.emphasise(id ? { name: id, has: (server) => server.server_group_id === id, counted: true } : null);
    if (id) await this._one(id);
    else await this._list();
    if (this._id === id) fleet.count(id ?? null).catch(() => {});
  }

  close() {
    this._id = undefined;
    this._page.map.emphasise(null);
    this._page.map.arrows([]);
    this._page.fleet.count(null).catch(() => {});
  }

  /** @param {any} change */
  async changed(change) {
    const groups = change.groups;
    if (groups === undefined && change.aggregates === undefined) return;
    if (!this._id) {
      if (groups !== undefined) await this._mark();
    } else if (groups === null || groups?.includes(this._id) || change.aggregates !== undefined) {
      await this._facts(this._id);
    }
  }

  async fleetChanged() {
    if (this._id) this._offer();
  }

  // The list

  async _list() {
    const field = html("input", {
      type: "search",
      id: "filter",
      value: this._filter,
      input: (event) => {
        this._filter = /** @type {HTMLInputElement} */ (event.target).value;
        clearTimeout(this._typing);
        this._typing = setTimeout(() => this._mark().catch(() => {}), 150);
      },
    });
    this._cards = html("ul", { class: "cards" });
    this._panel?.replaceChildren(
      html("h2", {}, "Server groups"),
      html("p", { class: "filter" }, html("label", { for: "filter" }, "Find "), field),
      ...(mayChange() ? [composer()] : []),
      this._cards,
    );
    await this._mark();
  }

  async _mark() {
    if (!this._cards) return;
    const query = new URLSearchParams({ q: this._filter, limit: "200" });
    const { list } = await get(`/compute/v2.1/os-lists/groups?${query}`);
    const found = list.rows.sort((/** @type {any} */ a, /** @type {any} */ b) => b.broken + b.failed - a.broken - a.failed);
    const cards = found.map(card);
    const more = list.total - found.length;
    if (more > 0) cards.push(html("li", {}, html("a", { href: "#/lists/groups" }, `and ${more.toLocaleString("en")} more`)));
    const none = this._filter ? "No group has these words." : "There are no groups yet.";
    refill(this._cards, cards.length ? cards : [html("li", { class: "muted" }, none)]);
  }

  // One group

  /** @param {string} id */
  async _one(id) {
    this._head = html("div", {});
    this._seen = html("div", {});
    this._answer = html("div", { class: "answer", role: "status" });
    this._known = undefined;
    this._page.map.arrows([]);
    this._past = html("div", {});
    await this._facts(id);
    if (this._id !== id) return;
    this._panel?.replaceChildren(back("#/groups"), this._head, this._questions(id), this._answer, this._seen);
    this._underWay(id).catch(() => {});
  }

  /** @param {string} id */
  async _facts(id) {
    const [group, { server_group_policy_audit: audit }, { list: own }] = await Promise.all([
      get(`${GROUPS}/${id}`).then(({ server_group: one }) => explainRules(one)),
      get(`${GROUPS}/${id}/audit`),
      get(`/compute/v2.1/os-lists/servers?group_id=${id}&sort=fault:desc&limit=1000`),
    ]);
    if (this._id !== id) return;
    const past = this._past;
    // It is the last on the page, and nothing else waits for it.
    historyOf({ group_id: id }).then((happened) => past && refill(past, happened)).catch(() => {});
    this._names = new Map(own.rows.map((/** @type {any} */ each) => [each.id, each.name]));
    const fleet = this._page.fleet;
    const places = new Places(fleet);
    const where = (/** @type {any} */ member, /** @type {string} */ scope) => placeOf(member, scope, fleet, places);
    this._learn([group.policies, arrangement(audit.members)]);
    this._head?.replaceChildren(
      html("h2", {}, swatch(group.id), group.name),
      html("p", { class: "rules" }, group.meaning.sentence),
      html("p", { class: "muted" }, count(group.members.length, "member")),
    );
    if (!this._seen) return;
    // What is opened in it stays open.
    renew(this._seen, [
      html("h3", {}, "Broken rules"),
      audit.violations.length ? violationList(audit.violations) : html("p", { class: "good" }, "None: every rule holds."),
      ...failedMembers(own.rows.filter((/** @type {any} */ each) => each.status === "ERROR")),
      html("h3", {}, "Distribution"),
      ...charts(group, audit, where),
      html("h3", {}, "Audit"),
      auditTable(group, audit, this._names, where),
      ...(past ? [past] : []),
      ...(mayChange() ? [removal(group)] : []),
    ]);
  }

  /** @param {string} id */
  _questions(id) {
    const number = html("input", { type: "number", min: 1, max: 1000, value: 1, "aria-label": "How many" });
    const flavor = html("select", { "aria-label": "Flavor" });
    const offered = flavorOptions().then((options) => flavor.replaceChildren(...options));
    offered.catch(() => {});
    const kinds = Object.entries(CHANGES).map(([value, name]) => html("option", { value }, name));
    const kind = html("select", { id: "change", change: () => this._offer() }, ...kinds);
    this._kind = /** @type {HTMLSelectElement} */ (kind);
    this._grows = html("span", {}, number, " of ", flavor);
    this._places = /** @type {HTMLSelectElement} */ (html("select", { "aria-label": "Place", hidden: true }));
    // Who presses at once asks for the first flavor, which may still be on its way.
    const asked = async () => {
      await offered;
      return {
        flavorRef: /** @type {HTMLSelectElement} */ (flavor).value,
        count: Number(/** @type {HTMLInputElement} */ (number).value) || 1,
      };
    };
    this._explains = button("Explain", async () => this._explain(id, await asked()));
    this._offer();
    return html(
      "section",
      { class: "questions", "aria-label": "Ask and change" },
      html("p", { class: "change" }, html("label", { for: "change" }, "What if "), kind, this._grows, this._places),
      html(
        "p",
        { class: "buttons" },
        button("Plan", async () => this._plan(id, this._change(await asked()))),
        this._explains,
        button("Repair", () => this._repair(id)),
      ),
    );
  }

  /** The places that can be lost or drained: those of members that the viewer may name. */
  _offer() {
    const [kind, places] = [this._kind, this._places];
    if (!kind || !places) return;
    const grows = kind.value === "create";
    for (const node of [this._grows, this._explains]) set(/** @type {Element} */ (node), { hidden: !grows });
    set(places, { hidden: grows });
    const before = places.value;
    const found = this._page.fleet.placesOf(this._id ?? "");
    const options = found.map(({ scope, id, name }) =>
      html("option", { value: JSON.stringify({ scope, identifier: id }) }, `${SHORT[scope] ?? scope.replaceAll("_", " ")} ${name}`),
    );
    places.replaceChildren(...options);
    if (options.some((each) => each.getAttribute("value") === before)) places.value = before;
  }

  /** The change that is chosen, as the API is asked for it. @param {any} growth */
  _change(growth) {
    const kind = this._kind?.value ?? "create";
    if (kind === "create") return { create: growth };
    if (!this._places?.value) throw new Error("No member is in a place that you may name.");
    return { [kind]: JSON.parse(this._places.value) };
  }

  /** @param {string} id @param {any} asked */
  async _explain(id, asked) {
    const { explanation } = await post(`${GROUPS}/${id}/explain`, { explain: asked });
    const places = this._draw(explanation.chosen.map(arrival));
    this._tell(...explained(explanation), placementList(named(explanation.chosen), places), this._look());
  }

  /** @param {string} id @param {any} change */
  async _plan(id, change) {
    const { plan } = await post(`${GROUPS}/${id}/plan`, { plan: change });
    if (change.create && !plan.placements.length) return this._explain(id, change.create);
    const places = this._draw([...plan.placements.map(arrival), ...plan.moves]);
    const apply = async () => {
      const made = await post(`${GROUPS}/${id}/plan`, { plan: { ...change, generation: plan.generation } });
      this._page.map.arrows([]);
      this._tell(html("p", { class: "good" }, made.plan.sentence));
      if (made.plan.repair_id) this._follow(id, made.plan.repair_id).catch(() => {});
    };
    const fleet = this._page.fleet;
    const can = (change.create && mayChange()) || (change.drain && plan.moves.length > 0 && mayOperate());
    this._tell(
      html("p", {}, plan.sentence),
      placementList(plan.placements, places),
      moveList(plan.moves, fleet, places, this._names),
      strandedList(plan.stranded, fleet, this._names),
      ...ruleChanges(plan),
      this._look(),
      command(planLine(id, change, plan.generation)),
      can && this._offering("Apply this plan", apply, () => this._plan(id, change)),
    );
  }

  /** @param {string} id */
  async _repair(id) {
    const { repair } = await post(`${GROUPS}/${id}/repairs`, { repair: { dry_run: true } });
    const places = this._draw(repair.moves);
    const apply = async () => {
      const { repair: begun } = await post(`${GROUPS}/${id}/repairs`, { repair: {} });
      this._follow(id, begun.id).catch(() => {});
    };
    const moves = repair.moves.length > 0;
    this._tell(
      html("p", {}, repair.sentence),
      moveList(repair.moves, this._page.fleet, places, this._names),
      this._look(),
      moves && command(`openstack server group repair ${id}`),
      moves && mayOperate() && this._offering("Apply this repair", apply, () => this._repair(id)),
      moves && !mayOperate() && html("p", { class: "muted" }, "Ask the operator to move them."),
    );
  }

  /** Draw arrows; the names of the places in the answer that they come from. @param {any[]} moves */
  _draw(moves) {
    const places = new Places(this._page.fleet);
    this._arrows = moves.length;
    this._page.map.arrows(moves, (scope, id) => places.name(scope, id));
    return places;
  }

  _look() {
    return this._arrows ? toMap(this._page.map) : null;
  }

  /** Follow the repair that is under way, if one is. @param {string} id */
  async _underWay(id) {
    const { repairs } = await get(`${GROUPS}/${id}/repairs`);
    if (repairs.length && isUnderWay(repairs[0])) await this._follow(id, repairs[0].id);
  }

  /** Show how far a repair has come. @param {string} id @param {string} repairId */
  _follow(id, repairId) {
    return followMoves(`${GROUPS}/${id}/repairs/${repairId}`, "repair", {
      tell: (...content) => this._tell(...content),
      still: () => this._id === id,
      seen: (left) => this._draw(left),
    });
  }

  /**
   * Offer to do what is shown; no longer once the group has changed.
   * @param {string} name
   * @param {() => Promise<any>} apply
   * @param {() => Promise<any>} again
   */
  _offering(name, apply, again) {
    this._offered = html("p", { class: "buttons" }, button(name, apply), this._never());
    this._again = again;
    return this._offered;
  }

  /** What the page has read of the group. @param {any} read */
  _learn(read) {
    const now = JSON.stringify(read);
    if (this._known !== undefined && now !== this._known) this._outdate();
    this._known = now;
  }

  /** What was planned before the group changed is not to be applied. */
  _outdate() {
    if (!this._offered?.isConnected || this._offered.querySelector("[aria-busy]")) return;
    const again = button("Plan again", async () => this._again?.());
    refill(this._offered, [html("span", { class: "muted" }, "The group has changed since."), again, this._never()]);
  }

  _never() {
    return button("Leave it", () => {
      this._page.map.arrows([]);
      this._answer?.replaceChildren();
    });
  }

  /** @param {...any} content */
  _tell(...content) {
    this._answer?.replaceChildren(...content.filter(Boolean));
  }
}

async function flavorOptions() {
  const { flavors } = await get("/compute/v2.1/flavors");
  return flavors.map((/** @type {any} */ each) => html("option", { value: each.id }, each.name));
}

/** Members in ERROR, with the reason. @param {any[]} failed */
function failedMembers(failed) {
  if (!failed.length) return [];
  const items = failed.slice(0, MOST_MEMBERS).map((/** @type {any} */ each) =>
    html("li", { class: "harm" }, html("a", { href: `#/server/${each.id}` }, each.name), html("p", {}, each.fault)),
  );
  const more = failed.length - items.length;
  if (more > 0) items.push(html("li", { class: "muted" }, `and ${more} more`));
  const title = html("h3", { class: "bad-text" }, `${count(failed.length, "member")} in ERROR`);
  return [title, html("ul", { class: "plain troubles" }, ...items)];
}

/** @param {any} group */
function removal(group) {
  const gone = async () => {
    await request("DELETE", `${GROUPS}/${group.id}`);
    location.hash = "#/groups";
  };
  return html(
    "details",
    {},
    html("summary", {}, "Delete this group"),
    html("p", {}, `Its ${count(group.members.length, "member")} would stay where they are, without its rules.`),
    command(`openstack server group delete ${group.id}`),
    button("Delete the group", gone),
  );
}

/** What rules mean, in the API's own words: many groups have the same ones. @type {Map<string, any>} */
const meanings = new Map();

/** A group with what its rules mean. @param {any} group */
async function explainRules(group) {
  const asked = JSON.stringify(group.policies);
  if (meanings.size > MOST_MEANINGS) meanings.clear();
  if (!meanings.has(asked)) meanings.set(asked, (await post(MEANINGS, { groups: [group.policies] })).meanings[0]);
  return { ...group, meaning: meanings.get(asked) };
}

/** @param {any} group */
function card(group) {
  return html(
    "li",
    {},
    swatch(group.id),
    html("a", { href: `#/groups/${group.id}` }, group.name),
    html("span", { class: "muted" }, ` ${count(group.members, "member")}`),
    group.broken > 0 && html("span", { class: "badge bad" }, `${group.broken} broken`),
    group.failed > 0 && html("span", { class: "badge bad" }, `${group.failed} in ERROR`),
    html("p", { class: "rules" }, group.rules),
  );
}

/**
 * Where a member is: as the map says, where the map has it.
 * @param {any} member
 * @param {string} scope
 * @param {import("./fleet.js").Fleet} fleet
 * @param {Places} places
 */
function placeOf(member, scope, fleet, places) {
  const found = fleet.find(member.instance_id);
  if (found && scope === fleet.scope) return titleOf(found.aggregate);
  return member.placements[scope] ? places.name(scope, member.placements[scope]) : "–";
}

/** @param {any} group @returns {string[]} */
function scopesOf(group) {
  return [...new Set(group.policies.map((/** @type {any} */ each) => String(each.scope)))].map(String);
}

/**
 * @param {any} group
 * @param {any} audit
 * @param {(member: any, scope: string) => string} where
 */
function charts(group, audit, where) {
  return scopesOf(group).map((scope) => {
    /** @type {Map<string, {name: string, number: number}>} */
    const counts = new Map();
    for (const member of audit.members) {
      const place = member.placements[scope];
      if (place) counts.set(place, { name: where(member, scope), number: (counts.get(place)?.number ?? 0) + 1 });
    }
    const rules = group.meaning.rules.filter((/** @type {any} */ each) => each.scope === scope);
    const limits = rules.map((/** @type {any} */ each) => each.limit).filter(Boolean);
    return html(
      "figure",
      {},
      html("figcaption", {}, `By ${scope.replaceAll("_", " ")}: ${rules.map((/** @type {any} */ each) => each.phrase).join("; ")}`),
      distribution(scope, [...counts.values()], limits.length ? Math.min(...limits) : null),
    );
  });
}

/**
 * @param {any} group
 * @param {any} audit
 * @param {Map<string, string>} names of the members
 * @param {(member: any, scope: string) => string} where
 */
function auditTable(group, audit, names, where) {
  if (!audit.members.length) return html("p", { class: "muted" }, "It has no members yet.");
  const scopes = scopesOf(group);
  const divided = Object.keys(group.partitions).length > 0;
  const rows = audit.members.slice(0, MOST_MEMBERS).map((/** @type {any} */ each) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, linkTo("servers", { id: each.instance_id, name: names.get(each.instance_id) ?? "" })),
      ...scopes.map((scope) => html("td", {}, where(each, scope))),
      ...(divided ? [html("td", {}, String(each.partition ?? ""))] : []),
    ),
  );
  const titles = ["member", ...scopes, ...(divided ? ["partition"] : [])];
  const heads = titles.map((each) => html("th", { scope: "col" }, each.replaceAll("_", " ")));
  const more = audit.members.length - rows.length;
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Where each member is" },
    html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...rows)),
    more > 0 && html("p", { class: "muted" }, `and ${more} more`),
  );
}

/** The command that does what a plan says. @param {string} id @param {any} change @param {string} generation */
function planLine(id, change, generation) {
  const [[kind, asked]] = Object.entries(change);
  const what = kind === "create" ? `--create ${asked.count} --flavor ${asked.flavorRef}` : `--${kind} ${asked.scope}=${asked.identifier}`;
  return `openstack server group plan ${id} ${what}${kind === "lose" ? "" : ` --apply ${generation}`}`;
}

/** A new server as an arrow from nowhere. @param {any} each */
function arrival(each) {
  return { server_id: "", source: null, target: { ...each.placements, ...(each.host ? { host: each.host } : {}) } };
}

/** The places that an explanation chose, as new servers. @param {any[]} chosen */
function named(chosen) {
  return chosen.map((each, index) => ({ ...each, name: `new ${index + 1}` }));
}
