// Compose the rules of a new group, and read what they mean before it is created.

import { button } from "./answers.js";
import { html } from "./dom.js";
import { command } from "./links.js";
import { get, post } from "./session.js";

const COMPUTE = "/compute/v2.1";
const TYPES = ["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"];

/** The form, folded up until it is wanted. */
export function composer() {
  const name = input("composer-name", "Name", { required: true });
  const kind = html("select", { id: "composer-type" }, ...TYPES.map((each) => html("option", { value: each }, each)));
  const scope = html("select", { id: "composer-scope" });
  const limit = input("composer-limit", "At most, in each", { type: "number", min: 1 });
  const answer = html("div", { class: "answer", role: "status" });
  /** @type {any[]} */
  const rules = [];
  const add = () => {
    const most = Number(valueOf(limit));
    const place = /** @type {HTMLSelectElement} */ (scope).value;
    const key = place === "host" ? "max_server_per_host" : "max_server_per_aggregate";
    rules.push({ name: /** @type {HTMLSelectElement} */ (kind).value, scope: place, rules: most ? { [key]: most } : {} });
    return describe(rules, valueOf(name), answer);
  };
  const again = () => {
    rules.length = 0;
    answer.replaceChildren();
  };
  const node = html(
    "details",
    { class: "composer" },
    html("summary", {}, "Create a group"),
    name,
    html("p", {}, html("label", { for: "composer-type" }, "Rule "), kind),
    html("p", {}, html("label", { for: "composer-scope" }, "Over "), scope),
    limit,
    html("p", { class: "buttons" }, button("Add this rule", add), button("Begin again", again)),
    answer,
  );
  node.addEventListener("toggle", async () => {
    if (scope.childElementCount) return;
    const { policy_scopes: found } = await get(`${COMPUTE}/os-policy-scopes`);
    scope.replaceChildren(...found.map((/** @type {any} */ each) => html("option", { value: each.name }, each.name.replaceAll("_", " "))));
  });
  return node;
}

/** @param {string} id @param {string} label @param {any} more */
function input(id, label, more) {
  return html("p", {}, html("label", { for: id }, `${label} `), html("input", { id, ...more }));
}

/** @param {HTMLElement} row */
function valueOf(row) {
  return /** @type {HTMLInputElement} */ (row.querySelector("input")).value;
}

/** @param {any[]} rules @param {string} name @param {HTMLElement} answer */
async function describe(rules, name, answer) {
  const { meanings } = await post(`${COMPUTE}/os-rule-meanings`, { groups: [rules] });
  const [{ sentence, conflicts }] = meanings;
  const written = rules.map((each) => {
    const limits = Object.entries(each.rules).map(([key, value]) => `,${key}=${value}`);
    return `--policy ${each.name}${each.scope === "host" ? "" : `:${each.scope}`}${limits.join("")}`;
  });
  const create = async () => {
    const body = { server_group: { name, policies: rules } };
    const { server_group: made } = await post(`${COMPUTE}/os-server-groups`, body);
    location.hash = `#/groups/${made.id}`;
  };
  const content = [
    html("p", {}, `${sentence}.`),
    ...conflicts.map((/** @type {string} */ each) => html("p", { class: "bad-text" }, each)),
    command(`openstack server group create ${name || "NAME"} ${written.join(" ")}`),
    !conflicts.length && name && button("Create the group", create),
    !name && html("p", { class: "muted" }, "Give it a name, and add the rule again."),
  ];
  if (!name) rules.pop();
  answer.replaceChildren(.../** @type {Node[]} */ (content.filter(Boolean)));
}
