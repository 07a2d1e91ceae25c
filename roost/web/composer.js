// Compose the rules of a new group, and read what they mean, and whether there is room, before it is created.

import { answerBox, button, explained } from "./answers.js";
import { html } from "./dom.js";
import { command } from "./links.js";
import { get, post } from "./session.js";

const COMPUTE = "/compute/v2.1";
const TYPES = ["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"];

/** The form, folded up until it is wanted. */
export function composer() {
  const name = input("composer-name", "Name", { required: true });
  const kind = select("composer-type", TYPES);
  const scope = select("composer-scope", []);
  const limit = input("composer-limit", "At most, in each", { type: "number", min: 1 });
  const number = input("composer-count", "Room for", { type: "number", min: 1, max: 1000, value: 3 });
  const flavor = select("composer-flavor", []);
  number.append(html("label", { for: "composer-flavor" }, " of "), flavor);
  const box = answerBox();
  /** @type {any[]} */
  const rules = [];
  const show = () =>
    describe(rules, { name: valueOf(name), count: Number(valueOf(number)) || 1, flavorRef: flavor.value }, box.tell);
  const add = () => {
    const most = Number(valueOf(limit));
    const key = scope.value === "host" ? "max_server_per_host" : "max_server_per_aggregate";
    rules.push({ name: kind.value, scope: scope.value, rules: most ? { [key]: most } : {} });
    return show();
  };
  const again = () => {
    rules.length = 0;
    box.tell();
  };
  const node = html(
    "details",
    { class: "composer" },
    html("summary", {}, "Create a group"),
    name,
    html("p", {}, html("label", { for: "composer-type" }, "Rule "), kind),
    html("p", {}, html("label", { for: "composer-scope" }, "Over "), scope),
    limit,
    number,
    html("p", { class: "buttons" }, button("Add this rule", add), button("Begin again", again)),
    box.node,
  );
  const changed = () => void (rules.length && show().catch(() => {}));
  for (const field of [name, number]) field.addEventListener("change", changed);
  node.addEventListener("toggle", async () => {
    if (scope.childElementCount) return;
    const [{ policy_scopes: scopes }, { flavors }] = await Promise.all([get(`${COMPUTE}/os-policy-scopes`), get(`${COMPUTE}/flavors`)]);
    scope.replaceChildren(...scopes.map((/** @type {any} */ each) => option(each.name, each.name.replaceAll("_", " "))));
    flavor.replaceChildren(...flavors.map((/** @type {any} */ each) => option(each.id, each.name)));
  });
  return node;
}

/** @param {string} id @param {string} label @param {any} more */
function input(id, label, more) {
  return html("p", {}, html("label", { for: id }, `${label} `), html("input", { id, ...more }));
}

/** @param {string} id @param {string[]} values */
function select(id, values) {
  return /** @type {HTMLSelectElement} */ (html("select", { id }, ...values.map((each) => option(each, each))));
}

/** @param {string} value @param {string} name */
function option(value, name) {
  return html("option", { value }, name);
}

/** @param {HTMLElement} row */
function valueOf(row) {
  return /** @type {HTMLInputElement} */ (row.querySelector("input")).value;
}

/**
 * @param {any[]} rules
 * @param {{name: string, count: number, flavorRef: string}} wanted
 * @param {(...content: any[]) => void} tell
 */
async function describe(rules, { name, ...servers }, tell) {
  const [{ sentence, conflicts }] = (await post(`${COMPUTE}/os-rule-meanings`, { groups: [rules] })).meanings;
  const room = conflicts.length ? [] : await roomFor(rules, servers);
  const written = rules.map((each) => {
    const limits = Object.entries(each.rules).map(([key, value]) => `,${key}=${value}`);
    return `--policy ${each.name}${each.scope === "host" ? "" : `:${each.scope}`}${limits.join("")}`;
  });
  const create = async () => {
    const body = { server_group: { name, policies: rules } };
    const { server_group: made } = await post(`${COMPUTE}/os-server-groups`, body);
    location.hash = `#/groups/${made.id}`;
  };
  tell(
    html("p", {}, `${sentence}.`),
    ...conflicts.map((/** @type {string} */ each) => html("p", { class: "bad-text" }, each)),
    ...room,
    command(`openstack server group create ${name || "NAME"} ${written.join(" ")}`),
    !conflicts.length && name && button("Create the group", create),
    !name && html("p", { class: "muted" }, "Give it a name to create it."),
  );
}

/** Whether so many servers would find a place under these rules now. @param {any[]} policies @param {any} servers */
async function roomFor(policies, servers) {
  try {
    const { explanation } = await post(`${COMPUTE}/os-server-groups/explain`, { explain: { policies, ...servers } });
    if (explanation.verdict !== "placed") return explained(explanation);
    const said = servers.count === 1 ? "There is room for 1 server." : `There is room for ${servers.count} servers.`;
    return [html("p", { class: "good" }, said)];
  } catch (error) {
    return [html("p", { class: "bad-text" }, /** @type {Error} */ (error).message)];
  }
}
