// What can be done to a cluster: each deed is rehearsed by the API first, beside the command that does the same.

import { answerBox, button } from "./answers.js";
import { byName } from "./charts.js";
import { html } from "./dom.js";
import { command } from "./links.js";
import { get, post, request } from "./session.js";
import { actionName, count, kindOf, reasonOf, story } from "./words.js";

const API = "/clustering/v1";
const MOST_STEPS = 20;

/** @typedef {{title: string, counts?: boolean, body: (number: number) => any, command: (id: string, number: number) => string}} Deed */
/** @type {Record<string, Deed>} */
const DEEDS = {
  scale_out: {
    title: "scale out by", counts: true, body: (count) => ({ scale_out: { count } }),
    command: (id, count) => `openstack cluster expand --count ${count} ${id}`,
  },
  scale_in: {
    title: "scale in by", counts: true, body: (count) => ({ scale_in: { count } }),
    command: (id, count) => `openstack cluster shrink --count ${count} ${id}`,
  },
  resize: {
    title: "resize to", counts: true, body: (number) => ({ resize: { adjustment_type: "EXACT_CAPACITY", number } }),
    command: (id, number) => `openstack cluster resize --capacity ${number} ${id}`,
  },
  check: { title: "check its nodes", body: () => ({ check: {} }), command: (id) => `openstack cluster check ${id}` },
  recover: { title: "recover its nodes", body: () => ({ recover: {} }), command: (id) => `openstack cluster recover ${id}` },
};

/** The part of a cluster's page that changes it. */
export class Steering {
  /** @param {string} id */
  constructor(id) {
    this._id = id;
    this._box = answerBox();
    this._policies = /** @type {HTMLSelectElement} */ (html("select", { "aria-label": "Policy to attach" }));
    /** What is known of the cluster. @type {any} */
    this._cluster = null;
    /** @type {string} */
    this._offered = "";
    /** What was known of the cluster when it was last read. @type {string|undefined} */
    this._known = undefined;
    /** Shows the preview again. @type {(() => Promise<any>)|undefined} */
    this._again = undefined;
    const parts = [html("h3", {}, "Do"), this._form(), this._attaching(), this._box.node];
    this.node = html("section", { class: "doing", "aria-label": "Do" }, ...parts);
  }

  /** What the page has read of the cluster and its policies. @param {any} cluster @param {any[]} bindings */
  know(cluster, bindings) {
    this._cluster = cluster;
    const { nodes, desired_capacity: wanted, min_size: least, max_size: most } = cluster;
    const now = JSON.stringify([nodes, wanted, least, most, bindings.map((each) => [each.policy_id, each.enabled])]);
    if (this._known !== undefined && now !== this._known) this._outdate();
    this._known = now;
    this._attached = new Set(bindings.map((each) => each.policy_id));
    this._offer().catch(() => {});
  }

  /** What was previewed before the cluster changed is not to be done. */
  _outdate() {
    const offer = this._box.node.querySelector(".offer");
    if (!offer || offer.querySelector("[aria-busy]")) return;
    const said = html("span", { class: "muted" }, "The cluster has changed since.");
    offer.replaceChildren(said, button("Preview again", async () => this._again?.()));
  }

  /** Switch a policy on or off. @param {any} binding */
  toggle(binding) {
    const body = { policy_update: { policy_id: binding.policy_id, enabled: !binding.enabled } };
    const line = `openstack cluster policy binding update --enabled ${!binding.enabled} --policy ${binding.policy_id} ${this._id}`;
    return this._rehearse(body, line, `${binding.enabled ? "Switch off" : "Switch on"} ${binding.policy_name}`);
  }

  /** Take a policy off. @param {any} binding */
  detach(binding) {
    const line = `openstack cluster policy detach --policy ${binding.policy_id} ${this._id}`;
    return this._rehearse({ policy_detach: { policy_id: binding.policy_id } }, line, `Detach ${binding.policy_name}`);
  }

  _form() {
    const number = /** @type {HTMLInputElement} */ (html("input", { type: "number", min: 0, max: 1000, value: 1, "aria-label": "Nodes" }));
    const options = Object.entries(DEEDS).map(([value, { title }]) => html("option", { value }, title));
    const kind = /** @type {HTMLSelectElement} */ (html("select", { "aria-label": "What to do" }, ...options));
    kind.addEventListener("change", () => {
      number.hidden = !DEEDS[kind.value].counts;
      if (kind.value === "resize" && this._cluster) number.value = String(this._cluster.desired_capacity);
    });
    const look = () => {
      const deed = DEEDS[kind.value];
      const many = Number(number.value);
      const title = deed.title.replace(/ (by|to)$/, "").replace(/^./, (letter) => letter.toUpperCase());
      return this._rehearse(deed.body(many), deed.command(this._id, many), title);
    };
    return html("p", { class: "buttons" }, kind, number, button("Preview", look), button("Delete…", () => this._remove()));
  }

  _attaching() {
    const attach = async () => {
      const { value, selectedOptions } = this._policies;
      if (!value) throw new Error("There is no other policy to attach.");
      const line = `openstack cluster policy attach --policy ${value} ${this._id}`;
      await this._rehearse({ policy_attach: { policy_id: value } }, line, `Attach ${selectedOptions[0].textContent}`);
    };
    return html("p", { class: "buttons" }, this._policies, button("Attach…", attach));
  }

  /** The policies that are not attached yet; asked for when those that are have changed. */
  async _offer() {
    const now = [...(this._attached ?? [])].sort().join(" ");
    if (now === this._offered && this._policies.childElementCount) return;
    this._offered = now;
    const { policies } = await get(`${API}/policies?limit=1000&sort=name`);
    const free = policies.filter((/** @type {any} */ each) => !this._attached?.has(each.id));
    const named = (/** @type {any} */ each) => `${each.name} (${kindOf(each.type).replaceAll("_", " ")})`;
    const options = free.map((/** @type {any} */ each) => html("option", { value: each.id }, named(each)));
    const chosen = this._policies.value;
    this._policies.replaceChildren(...(options.length ? options : [html("option", { value: "" }, "no other policy")]));
    if (free.some((/** @type {any} */ each) => each.id === chosen)) this._policies.value = chosen;
  }

  /** Show what a deed would come to. @param {any} body @param {string} line @param {string} title */
  async _rehearse(body, line, title) {
    const path = `${API}/clusters/${this._id}/actions`;
    this._again = () => preview(path, body, line, this._box, { title, act: async () => (await post(path, body)).action });
    await this._again();
  }

  async _remove() {
    const line = `openstack cluster delete ${this._id}`;
    const act = () => deleted(`${API}/clusters/${this._id}`);
    const title = "Delete it for good";
    this._again = () => preview(`${API}/clusters/${this._id}/actions`, { delete: {} }, line, this._box, { title, act });
    await this._again();
  }
}

/**
 * Show what a deed would come to, by the API's own plan, with the command that does the same and the button that does it.
 * @param {string} path
 * @param {any} body
 * @param {string} line
 * @param {{tell: (...content: any[]) => void}} box
 * @param {{title: string, act: () => Promise<string>}} deed it answers the action's id
 */
export async function preview(path, body, line, box, { title, act }) {
  const { dry_run: plan, warnings } = await post(`${path}?dry_run=true`, body);
  const begin = async () => {
    const id = await act();
    box.tell(html("p", { class: "good" }, "Begun. ", html("a", { href: `#/action/${id}` }, "Follow it")));
  };
  box.tell(
    ...rehearsed(plan),
    ...warnings.map((/** @type {string} */ each) => html("p", { class: "bad-text" }, each)),
    command(line),
    plan.accepted && html("p", { class: "buttons offer" }, button(title, begin), button("Leave it", async () => box.tell())),
  );
}

/** Have something deleted; the id of the action that does it. @param {string} path */
export async function deleted(path) {
  const answer = await request("DELETE", path);
  return (answer.headers.get("Location") ?? "").split("/").pop() ?? "";
}

/** @param {any} plan */
function rehearsed(plan) {
  const decided = plan.policies.map((/** @type {any} */ each) =>
    html("li", { class: each.refusal ? "bad-text" : null }, `${each.policy}: ${each.refusal ?? story(each.type, { data: each.decision })}`),
  );
  const steps = plan.steps.slice(0, MOST_STEPS).map((/** @type {any} */ each) => html("li", {}, step(each)));
  const more = plan.steps.length - steps.length;
  const zones = Object.entries(plan.distribution.zone ?? {});
  return [
    html("p", { class: plan.accepted ? null : "bad-text" }, plan.accepted ? size(plan) : reasonOf(plan.sentence)),
    decided.length > 0 && html("h3", {}, "What the policies decide"),
    decided.length > 0 && html("ul", {}, ...decided),
    steps.length > 0 && html("h3", {}, "What happens to the nodes"),
    steps.length > 0 && html("ul", {}, ...steps, more > 0 && html("li", { class: "muted" }, `and ${more} more`)),
    zones.length > 0 && html("h3", {}, "Nodes by zone afterwards"),
    zones.length > 0 && byName(new Map(/** @type {[string, number][]} */ (zones))),
  ];
}

/** @param {any} plan */
function size({ action, size: { now, then }, steps, sentence }) {
  if (action === "CLUSTER_DELETE") return `It would be deleted${now ? `, with ${count(now, "node")} and their servers` : ""}.`;
  if (now !== then) return `The cluster would go from ${now} to ${count(then, "node")}.`;
  if (!steps.length) return reasonOf(sentence);
  return now ? `The cluster would keep its ${count(now, "node")}.` : "Only this node would change.";
}

/** @param {any} each */
function step(each) {
  const place = Object.values(each.placement ?? {}).join(", ");
  const way = each.operation ? ` by ${each.operation.toLowerCase()}` : "";
  return `${actionName(each.action)} ${each.node}${way}${place ? ` in ${place}` : ""}`;
}
