// Server groups: their rules in words, how members are spread, what is broken, and what would mend it.

import { distribution } from "./charts.js";
import { html, say } from "./dom.js";
import { hueOf, titleOf } from "./map.js";
import { back } from "./overview.js";
import { get, post, request, session } from "./session.js";
import { count, limitOf, phrase, sentence } from "./words.js";

const GROUPS = "/compute/v2.1/os-server-groups";

/** The list of groups, and one of them. */
export class Groups {
  /** @param {{fleet: import("./fleet.js").Fleet, map: import("./map.js").FleetMap}} page */
  constructor(page) {
    this._page = page;
    this.title = "Groups";
    this._filter = "";
  }

  /**
   * @param {string[]} path
   * @param {HTMLElement} panel
   */
  async open([id], panel) {
    this._panel = panel;
    this._id = id;
    this._page.fleet.group = id ?? null;
    this._page.map.emphasise(id ? { name: id, has: (server) => server.server_group_id === id } : null);
    if (id) await this._one(id);
    else await this._list();
    if (id) this._page.fleet.refresh(null);
  }

  close() {
    this._id = undefined;
    this._page.fleet.group = null;
    this._page.map.emphasise(null);
    this._page.map.arrows([]);
  }

  /** @param {any} change */
  async changed(change) {
    const groups = change.groups;
    if (groups === undefined && change.aggregates === undefined) return;
    if (!this._id) {
      if (groups !== undefined) await this._list();
    } else if (groups === null || groups?.includes(this._id) || change.aggregates !== undefined) {
      await this._facts(this._id);
    }
  }

  async fleetChanged() {
    if (!this._id) this._mark();
  }

  // The list

  async _list() {
    const everybody = session.roles.includes("admin") ? "&all_projects=1" : "";
    this._groups = (await get(`${GROUPS}?limit=500${everybody}`)).server_groups;
    const field = html("input", {
      type: "search",
      id: "filter",
      value: this._filter,
      input: (event) => {
        this._filter = /** @type {HTMLInputElement} */ (event.target).value;
        this._mark();
      },
    });
    this._cards = html("ul", { class: "cards" });
    this._panel?.replaceChildren(
      html("h2", {}, "Server groups"),
      html("p", { class: "filter" }, html("label", { for: "filter" }, "Find "), field),
      this._cards,
    );
    this._mark();
  }

  _mark() {
    if (!this._cards || !this._groups) return;
    const wrong = new Map();
    for (const each of this._page.fleet.violations) {
      wrong.set(each.server_group_id, (wrong.get(each.server_group_id) ?? 0) + 1);
    }
    const found = this._groups.filter((/** @type {any} */ group) => group.name.includes(this._filter));
    found.sort((/** @type {any} */ a, /** @type {any} */ b) => (wrong.get(b.id) ?? 0) - (wrong.get(a.id) ?? 0));
    const cards = found.slice(0, 200).map((/** @type {any} */ group) => card(group, wrong.get(group.id) ?? 0));
    this._cards.replaceChildren(...(cards.length ? cards : [html("li", { class: "muted" }, "There are no groups.")]));
  }

  // One group

  /** @param {string} id */
  async _one(id) {
    this._head = html("div", {});
    this._seen = html("div", {});
    this._answer = html("div", { class: "answer", role: "status" });
    this._page.map.arrows([]);
    await this._facts(id);
    this._panel?.replaceChildren(back("#/groups"), this._head, await this._questions(id), this._answer, this._seen);
    await this._underWay(id);
  }

  /** @param {string} id */
  async _facts(id) {
    const [{ server_group: group }, { server_group_policy_audit: audit }] = await Promise.all([
      get(`${GROUPS}/${id}`),
      get(`${GROUPS}/${id}/audit`),
    ]);
    if (this._id !== id) return;
    this._head?.replaceChildren(
      html("h2", {}, html("span", { class: `swatch ${hueOf(group.id)}` }), group.name),
      html("p", { class: "rules" }, sentence(group.policies)),
      html("p", { class: "muted" }, count(group.members.length, "member")),
    );
    this._seen?.replaceChildren(
      html("h3", {}, "Broken rules"),
      violationList(audit.violations),
      html("h3", {}, "Distribution"),
      ...charts(group, audit),
      html("h3", {}, "Audit"),
      auditTable(group, audit, this._page.fleet),
    );
  }

  /** @param {string} id */
  async _questions(id) {
    const { flavors } = await get("/compute/v2.1/flavors");
    const flavor = html(
      "select",
      { id: "flavor" },
      ...flavors.map((/** @type {any} */ each) => html("option", { value: each.id }, each.name)),
    );
    const number = html("input", { id: "number", type: "number", min: 1, max: 1000, value: 1 });
    const asked = () => ({
      flavorRef: /** @type {HTMLSelectElement} */ (flavor).value,
      count: Number(/** @type {HTMLInputElement} */ (number).value) || 1,
    });
    return html(
      "section",
      { class: "questions", "aria-label": "Ask and change" },
      html(
        "p",
        {},
        html("label", { for: "number" }, "Grow by "),
        number,
        html("label", { for: "flavor" }, " of "),
        flavor,
      ),
      html(
        "p",
        { class: "buttons" },
        button("Explain", () => this._explain(id, asked())),
        button("Plan", () => this._plan(id, asked())),
        button("Repair", () => this._repair(id)),
      ),
    );
  }

  /** @param {string} id @param {any} asked */
  async _explain(id, asked) {
    const { explanation } = await post(`${GROUPS}/${id}/explain`, { explain: asked });
    this._page.map.arrows(explanation.chosen.map((/** @type {any} */ each) => arrival(each)));
    const refused = explanation.refused.map((/** @type {any} */ each) => html("li", {}, each.sentence));
    const help = explanation.help.map((/** @type {any} */ each) => html("li", {}, each.sentence));
    this._tell(
      html("p", { class: explanation.verdict === "placed" ? "good" : "bad-text" }, explanation.sentence),
      refused.length > 0 && html("ul", {}, ...refused),
      help.length > 0 && html("h4", {}, "What would help"),
      help.length > 0 && html("ul", {}, ...help),
    );
  }

  /** @param {string} id @param {any} asked */
  async _plan(id, asked) {
    const { plan } = await post(`${GROUPS}/${id}/plan`, { plan: { create: asked } });
    this._page.map.arrows([...plan.placements.map(arrival), ...plan.moves]);
    const apply = async () => {
      const made = await post(`${GROUPS}/${id}/plan`, { plan: { create: asked, generation: plan.generation } });
      this._page.map.arrows([]);
      this._tell(html("p", { class: "good" }, made.plan.sentence));
    };
    this._tell(
      html("p", {}, plan.sentence),
      html("ul", {}, ...plan.placements.slice(0, 20).map((/** @type {any} */ each) => placement(each))),
      plan.generation && html("p", { class: "buttons" }, button("Apply this plan", apply), this._never()),
    );
  }

  /** @param {string} id */
  async _repair(id) {
    const { repair } = await post(`${GROUPS}/${id}/repairs`, { repair: { dry_run: true } });
    this._page.map.arrows(repair.moves);
    const apply = async () => {
      await post(`${GROUPS}/${id}/repairs`, { repair: {} });
      await this._underWay(id);
    };
    const mayMove = session.roles.includes("admin");
    this._tell(
      html("p", {}, repair.sentence),
      html("ol", {}, ...repair.moves.slice(0, 30).map((/** @type {any} */ each) => this._move(each))),
      repair.moves.length > 0 && mayMove && html("p", { class: "buttons" }, button("Apply this repair", apply), this._never()),
      repair.moves.length > 0 && !mayMove && html("p", { class: "muted" }, "Ask the operator to move them."),
    );
  }

  /** Follow a repair until it ends. @param {string} id */
  async _underWay(id) {
    for (;;) {
      const { repairs } = await get(`${GROUPS}/${id}/repairs`);
      const [last] = repairs;
      if (this._id !== id || !last || (last.status !== "running" && last.status !== "stopping")) {
        if (this._id === id && this._repairing && last) this._ended(last);
        return;
      }
      this._repairing = true;
      const left = last.moves.filter((/** @type {any} */ each) => each.state !== "done");
      this._page.map.arrows(left);
      const done = last.moves.length - left.length;
      this._tell(
        html("p", {}, `Repairing: ${done} of ${last.moves.length} moves done.`),
        html("progress", { max: last.moves.length, value: done, "aria-label": "Repair" }),
        button("Stop", () => request("DELETE", `${GROUPS}/${id}/repairs/${last.id}`)),
      );
      await new Promise((woken) => setTimeout(woken, 700));
    }
  }

  /** @param {any} repair */
  _ended(repair) {
    this._repairing = false;
    this._page.map.arrows([]);
    this._tell(html("p", { class: repair.status === "done" ? "good" : "bad-text" }, `Repair ${repair.status}: ${repair.sentence}`));
  }

  /** @param {any} move */
  _move(move) {
    const name = this._page.fleet.find(move.server_id)?.server.name ?? move.server_id.slice(0, 8);
    const [from, to] = [move.source, move.target].map((place) => place.host ?? Object.values(place)[0]?.slice(0, 8));
    return html("li", {}, `${name}: ${from ?? "here"} → ${to ?? "another host"}`);
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

/** @param {any} group @param {number} wrong */
function card(group, wrong) {
  return html(
    "li",
    {},
    html("span", { class: `swatch ${hueOf(group.id)}` }),
    html("a", { href: `#/groups/${group.id}` }, group.name),
    html("span", { class: "muted" }, ` ${count(group.members.length, "member")}`),
    wrong > 0 && html("span", { class: "badge bad" }, `${wrong} broken`),
    html("p", { class: "rules" }, sentence(group.policies)),
  );
}

/**
 * A button that says what went wrong, if it does.
 * @param {string} name
 * @param {() => Promise<any>|void} act
 */
function button(name, act) {
  const node = html("button", { type: "button" }, name);
  node.addEventListener("click", async () => {
    node.setAttribute("aria-busy", "true");
    try {
      await act();
    } catch (error) {
      const said = /** @type {Error} */ (error).message;
      say(said);
      node.closest(".panel")?.querySelector(".answer")?.replaceChildren(html("p", { class: "bad-text" }, said));
    } finally {
      node.removeAttribute("aria-busy");
    }
  });
  return node;
}

/** @param {any} group @param {any} audit */
function charts(group, audit) {
  const scopes = [...new Set(group.policies.map((/** @type {any} */ each) => each.scope))];
  return scopes.map((scope) => {
    const counts = new Map();
    for (const { placements } of audit.members) {
      const place = placements[/** @type {string} */ (scope)];
      if (place) counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    const rules = group.policies.filter((/** @type {any} */ each) => each.scope === scope);
    const limits = rules.map(limitOf).filter(Boolean);
    return html(
      "figure",
      {},
      html("figcaption", {}, `By ${String(scope).replaceAll("_", " ")}: ${rules.map(phrase).join("; ")}`),
      distribution(String(scope), [...counts.values()], limits.length ? Math.min(...limits) : null),
    );
  });
}

/** @param {any[]} violations */
function violationList(violations) {
  if (!violations.length) return html("p", { class: "good" }, "None: every rule holds.");
  return html("ul", { class: "violations" }, ...violations.map((each) => html("li", {}, each.message)));
}

/**
 * @param {any} group
 * @param {any} audit
 * @param {import("./fleet.js").Fleet} fleet
 */
function auditTable(group, audit, fleet) {
  const scopes = [...new Set(group.policies.map((/** @type {any} */ each) => each.scope))].map(String);
  const divided = Object.keys(group.partitions).length > 0;
  const rows = audit.members.slice(0, 100).map((/** @type {any} */ each) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, fleet.find(each.instance_id)?.server.name ?? each.instance_id.slice(0, 8)),
      ...scopes.map((scope) => html("td", {}, placeOf(each, scope, fleet))),
      ...(divided ? [html("td", {}, String(each.partition ?? ""))] : []),
    ),
  );
  const titles = ["Member", ...scopes, ...(divided ? ["partition"] : [])];
  const head = html("tr", {}, ...titles.map((each) => html("th", { scope: "col" }, each)));
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Where each member is" },
    html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)),
  );
}

/**
 * Where a member is, by its real name where the map has it.
 * @param {any} member
 * @param {string} scope
 * @param {import("./fleet.js").Fleet} fleet
 */
function placeOf(member, scope, fleet) {
  const found = fleet.find(member.instance_id);
  if (found && scope === fleet.scope) return titleOf(found.aggregate);
  if (found && scope === "host" && fleet.all) return found.host.name;
  return member.placements[scope]?.slice(0, 8) ?? "–";
}

/** A new server as an arrow from nowhere. @param {any} each */
function arrival(each) {
  return { server_id: "", source: null, target: { ...each.placements, ...(each.host ? { host: each.host } : {}) } };
}

/** @param {any} each */
function placement(each) {
  const where = each.host ?? Object.entries(each.placements).map(([scope, id]) => `${scope} ${String(id).slice(0, 8)}`).join(", ");
  return html("li", {}, `${each.name} → ${where}`);
}
