// A server's and a host's own page: what it is, what is wrong with it, what can be done, what happened to it.

import { answerBox, button, explained, ruleChanges } from "./answers.js";
import { html } from "./dom.js";
import { historyOf } from "./feed.js";
import { command } from "./links.js";
import { get, mayChange, mayOperate, post, Refused, request } from "./session.js";
import { count, moment } from "./words.js";

const COMPUTE = "/compute/v2.1";
const RESIZE = "It is decided again when you press the button, since others may take the room first.";

/** @param {any[]} facts */
export function factList(facts) {
  const rows = facts.filter(Boolean).flatMap(([name, value]) => [
    html("dt", {}, name),
    html("dd", {}, value instanceof Node ? value : String(value)),
  ]);
  return html("dl", { class: "facts" }, ...rows);
}

/** Everything about a server, from wherever it is. @param {string} id */
export async function serverPage(id) {
  const [{ list }, reasons, past, { flavors }] = await Promise.all([
    get(`${COMPUTE}/os-lists/servers?id=${encodeURIComponent(id)}`),
    why(id),
    historyOf({ server_id: id }),
    mayChange() ? get(`${COMPUTE}/flavors`) : { flavors: [] },
  ]);
  const [row] = list.rows;
  if (!row) return [html("h2", {}, "There is no such server"), ...past];
  const facts = [
    ["State", row.task ? `${row.status}, ${row.task}` : row.status],
    row.zone && ["Zone", row.zone],
    row.host && ["Host", html("a", { href: `#/host/${encodeURIComponent(row.host)}` }, row.host)],
    ["Flavor", row.flavor],
    row.group_id && ["Group", html("a", { href: `#/groups/${row.group_id}` }, row.group)],
    ["Project", html("a", { href: `#/project/${row.project_id}` }, row.project)],
    ["Created", moment(row.created_at)],
    ["Id", row.id],
  ];
  return [
    html("h2", {}, row.name),
    row.fault && html("p", { class: "bad-text" }, row.fault),
    factList(facts),
    html("h3", {}, row.status === "ERROR" ? "Why it has no place" : "Why it is here"),
    ...reasons,
    ...(mayChange() ? serverActions(row, flavors) : []),
    ...past,
  ];
}

/** Why a server is where it is, if there is such a server. @param {string} id */
async function why(id) {
  const { explanation } = await get(`${COMPUTE}/servers/${id}/explanation`).catch(gone);
  if (!explanation) return [html("p", { class: "muted" }, "Roost has no record of how it was placed.")];
  return explained(explanation).concat(command(`openstack server explain ${id}`));
}

/** @param {unknown} error */
function gone(error) {
  if (error instanceof Refused && error.status === 404) return { explanation: null };
  throw error;
}

/** @param {any} row @param {any[]} flavors */
function serverActions(row, flavors) {
  const others = flavors.filter((/** @type {any} */ each) => each.name !== row.flavor);
  const options = others.map((/** @type {any} */ each) => html("option", { value: each.id }, each.name));
  const size = html("select", { "aria-label": "New flavor" }, ...options);
  const { node, tell: say } = answerBox();
  const act = (/** @type {any} */ body) => post(`${COMPUTE}/servers/${row.id}/action`, body);
  const resize = async () => {
    const { value, selectedOptions } = /** @type {HTMLSelectElement} */ (size);
    const name = selectedOptions[0].textContent ?? value;
    const { explanation } = await post(`${COMPUTE}/servers/${row.id}/explain`, { explain: { flavorRef: value } });
    const fits = explanation.verdict === "placed";
    say(
      fits && html("p", {}, `${row.name} would become ${name} in place of ${row.flavor}.`),
      explained(explanation),
      fits && html("p", { class: "muted" }, RESIZE),
      command(`openstack server resize --flavor ${name} ${row.id}`),
      fits && button("Resize it", async () => {
        await act({ resize: { flavorRef: value } });
        say(html("p", { class: "good" }, "It is being resized. Then confirm it, or go back."));
      }),
    );
  };
  const remove = async () => {
    const path = `${COMPUTE}/os-server-groups/${row.group_id}/plan`;
    const plan = row.group_id && (await post(path, { plan: { remove_servers: [row.id] } })).plan;
    say(
      html("p", {}, `${row.name} would be deleted, with everything on its own disk. It cannot be brought back.`),
      plan && html("p", {}, `Without it in ${row.group}: ${plan.sentence}`),
      plan && ruleChanges(plan),
      command(`openstack server delete ${row.id}`),
      button("Delete it for good", async () => {
        await request("DELETE", `${COMPUTE}/servers/${row.id}`);
        say(html("p", { class: "good" }, "It is being deleted."));
      }),
    );
  };
  const buttons = html("p", { class: "buttons" }, size, button("Resize…", resize), button("Delete…", remove));
  const parts = [html("section", { class: "doing", "aria-label": "Do" }, html("h3", {}, "Do"), buttons, node)];
  return row.status === "VERIFY_RESIZE" ? [afterResize(row, act), ...parts] : parts;
}

/** A resize waits until the user has said whether it stays. @param {any} row @param {(body: any) => Promise<any>} act */
function afterResize(row, act) {
  const ways = { confirm: ["Keep it", { confirmResize: null }], revert: ["Go back to what it was", { revertResize: null }] };
  const buttons = Object.entries(ways).flatMap(([name, [title, body]]) => [
    command(`openstack server resize ${name} ${row.id}`),
    html("p", { class: "buttons" }, button(String(title), () => act(body))),
  ]);
  const said = html("p", {}, `It has become ${row.flavor}. Until you decide, it takes up the room of both.`);
  return html("section", { class: "doing", "aria-label": "After the resize" }, said, ...buttons, answerBox().node);
}

/**
 * Everything about a host, for operators.
 * @param {string} name
 * @param {(scope: string, id: string, names: Map<string, string>) => any[]} questions
 */
export async function hostPage(name, questions) {
  const [{ list: found }, { list }, past] = await Promise.all([
    get(`${COMPUTE}/os-lists/hosts?name=${encodeURIComponent(name)}`),
    get(`${COMPUTE}/os-lists/servers?host=${encodeURIComponent(name)}&limit=1000`),
    historyOf({ host: name }),
  ]);
  const [host] = found.rows;
  if (!host) return [html("h2", {}, "There is no such host")];
  const facts = [
    ["State", host.reason && host.state !== "up" ? `${host.state}: ${host.reason}` : host.state],
    ["Zone", host.zone],
    ["Address", host.address],
    ["Load", `${Math.round(host.load * 100)} %`],
    ["VCPUs", `${host.vcpus_used} of ${host.vcpus}`],
    ["Memory", `${gib(host.memory_mb_used)} of ${gib(host.memory_mb)} GiB`],
  ];
  const items = list.rows.map((/** @type {any} */ each) =>
    html(
      "li",
      {},
      html("a", { href: `#/server/${each.id}` }, each.name),
      html("span", { class: each.status === "ERROR" ? "bad-text" : "muted" }, ` ${each.status.toLowerCase()}`),
    ),
  );
  return [
    html("h2", {}, host.name),
    factList(facts),
    ...(mayOperate() ? hostActions(host) : []),
    ...questions("host", name, new Map(list.rows.map((/** @type {any} */ each) => [each.id, each.name]))),
    html("h3", {}, count(list.total, "server")),
    html("ul", { class: "plain" }, ...items),
    ...past,
  ];
}

/** @param {number} megabytes */
function gib(megabytes) {
  return Math.round((megabytes / 1024) * 10) / 10;
}

/** @param {any} host */
function hostActions(host) {
  const { node, tell } = answerBox();
  let up = host.state === "up";
  const line = html("div", {});
  const toggle = button("", async () => {
    const { services } = await get(`${COMPUTE}/os-services?host=${encodeURIComponent(host.name)}`);
    const body = up ? { status: "disabled", disabled_reason: "Disabled from the dashboard." } : { status: "enabled" };
    await request("PUT", `${COMPUTE}/os-services/${services[0].id}`, { body });
    tell(html("p", { class: "good" }, up ? "It takes no new servers." : "It takes servers again."));
    up = !up;
    say();
  });
  const say = () => {
    toggle.textContent = up ? "Disable" : "Enable";
    line.replaceChildren(command(`openstack compute service set --${up ? "disable" : "enable"} ${host.name} nova-compute`));
  };
  say();
  const parts = [html("h3", {}, "Do"), html("p", { class: "buttons" }, toggle), line, node];
  return [html("section", { class: "doing", "aria-label": "Do" }, ...parts)];
}
