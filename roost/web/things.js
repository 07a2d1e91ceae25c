// A server's and a host's own page: what it is, what is wrong with it, what can be done, what happened to it.

import { button, explained } from "./answers.js";
import { html } from "./dom.js";
import { historyOf } from "./feed.js";
import { command } from "./links.js";
import { get, mayChange, mayOperate, post, request } from "./session.js";
import { count, moment } from "./words.js";

const COMPUTE = "/compute/v2.1";
const POLL = 700;

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
  const { list } = await get(`${COMPUTE}/os-lists/servers?q=${encodeURIComponent(id)}`);
  const row = list.rows.find((/** @type {any} */ each) => each.id === id);
  if (!row) return [html("h2", {}, "There is no such server"), ...(await historyOf({ server_id: id }))];
  const facts = [
    ["State", row.task ? `${row.status}, ${row.task}` : row.status],
    row.zone && ["Zone", row.zone],
    row.host && ["Host", html("a", { href: `#/host/${encodeURIComponent(row.host)}` }, row.host)],
    ["Flavor", row.flavor],
    row.group_id && ["Group", html("a", { href: `#/groups/${row.group_id}` }, row.group)],
    ["Project", row.project],
    ["Created", moment(row.created_at)],
    ["Id", row.id],
  ];
  return [
    html("h2", {}, row.name),
    row.fault && html("p", { class: "bad-text" }, row.fault),
    factList(facts),
    html("h3", {}, row.status === "ERROR" ? "Why it has no place" : "Why it is here"),
    ...(await why(id)),
    ...(mayChange() ? await serverActions(row) : []),
    ...(await historyOf({ server_id: id })),
  ];
}

/** @param {string} id */
async function why(id) {
  const { explanation } = await get(`${COMPUTE}/servers/${id}/explanation`);
  if (!explanation) return [html("p", { class: "muted" }, "Roost has no record of how it was placed.")];
  return explained(explanation).concat(command(`openstack server explain ${id}`));
}

/** @param {any} row */
async function serverActions(row) {
  const { flavors } = await get(`${COMPUTE}/flavors`);
  const options = flavors.map((/** @type {any} */ each) => html("option", { value: each.id }, each.name));
  const size = html("select", { "aria-label": "New flavor" }, ...options);
  const answer = html("div", { class: "answer", role: "status" });
  const say = (/** @type {any[]} */ ...content) => answer.replaceChildren(...content);
  const resize = () => {
    const { value, selectedOptions } = /** @type {HTMLSelectElement} */ (size);
    const name = selectedOptions[0].textContent ?? value;
    say(
      html("p", {}, `${row.name} would become ${name}, on a host that has room and that its group's rules allow.`),
      command(`openstack server resize --flavor ${name} ${row.id}`),
      button("Resize it", async () => {
        await post(`${COMPUTE}/servers/${row.id}/action`, { resize: { flavorRef: value } });
        say(html("p", { class: "good" }, "It is being resized."));
      }),
    );
  };
  const remove = () =>
    say(
      html("p", {}, `${row.name} would be deleted, with everything on it.`),
      command(`openstack server delete ${row.id}`),
      button("Delete it for good", async () => {
        await request("DELETE", `${COMPUTE}/servers/${row.id}`);
        say(html("p", { class: "good" }, "It is being deleted."));
      }),
    );
  return [
    html("h3", {}, "Do"),
    html("p", { class: "buttons" }, size, button("Resize…", resize), button("Delete…", remove)),
    answer,
  ];
}

/** Everything about a host, for operators. @param {string} name @param {(place: any) => Node[]} questions */
export async function hostPage(name, questions) {
  const path = `${COMPUTE}/os-lists/hosts?q=${encodeURIComponent(name)}`;
  const host = (await get(path)).list.rows.find((/** @type {any} */ each) => each.name === name);
  if (!host) return [html("h2", {}, "There is no such host")];
  const { list } = await get(`${COMPUTE}/os-lists/servers?host=${encodeURIComponent(name)}&limit=1000`);
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
    ...questions({ scope: "host", identifier: name }),
    html("h3", {}, count(list.total, "server")),
    html("ul", { class: "plain" }, ...items),
    ...(await historyOf({ host: name })),
  ];
}

/** @param {number} megabytes */
function gib(megabytes) {
  return Math.round((megabytes / 1024) * 10) / 10;
}

/** @param {any} host */
function hostActions(host) {
  const answer = html("div", { class: "answer", role: "status" });
  const say = (/** @type {any[]} */ ...content) => answer.replaceChildren(...content.filter(Boolean));
  const toggle = button(host.state === "up" ? "Disable" : "Enable", async () => {
    await setEnabled(host.name, host.state !== "up");
    say(html("p", { class: "good" }, host.state === "up" ? "It takes no new servers." : "It takes servers again."));
  });
  const preview = button("Disable and drain…", async () => {
    const moves = await drainMoves(host.name);
    say(
      html("p", {}, `${host.name} would take no new servers, and ${count(moves.length, "server")} would move:`),
      html("ol", {}, ...moves.map((each) => html("li", {}, `${each.server_id.slice(0, 8)} → ${each.target.host}`))),
      command(`openstack compute service set --disable ${host.name} nova-compute`),
      ...moves.slice(0, 3).map((each) => command(`openstack server migrate --live-migration --host ${each.target.host} ${each.server_id}`)),
      button("Drain it now", () => drain(host.name, moves, say)),
    );
  });
  const shown = `openstack compute service set --${host.state === "up" ? "disable" : "enable"} ${host.name} nova-compute`;
  return [html("h3", {}, "Do"), html("p", { class: "buttons" }, toggle, preview), command(shown), answer];
}

/** @param {string} name @returns {Promise<any[]>} */
async function drainMoves(name) {
  const change = { drain: { scope: "host", identifier: name } };
  const { plan } = await post(`${COMPUTE}/os-server-groups/plan?all_projects=1`, { plan: change });
  return plan.groups.flatMap((/** @type {any} */ each) => each.moves);
}

/** @param {string} name @param {boolean} enabled */
async function setEnabled(name, enabled) {
  const { services } = await get(`${COMPUTE}/os-services?host=${encodeURIComponent(name)}`);
  const body = enabled ? { status: "enabled" } : { status: "disabled", disabled_reason: "Disabled from the dashboard." };
  await request("PUT", `${COMPUTE}/os-services/${services[0].id}`, { body });
}

/**
 * Take no new servers, then move one after the other, and say how far it has come.
 * @param {string} name
 * @param {any[]} moves
 * @param {(...content: any[]) => void} say
 */
async function drain(name, moves, say) {
  await setEnabled(name, false);
  for (const [done, move] of moves.entries()) {
    say(
      html("p", {}, `Draining ${name}: ${done} of ${count(moves.length, "server")} moved.`),
      html("progress", { max: moves.length, value: done, "aria-label": "Drain" }),
    );
    const body = { "os-migrateLive": { host: move.target.host, block_migration: "auto" } };
    await post(`${COMPUTE}/servers/${move.server_id}/action`, body);
    await arrived(move.server_id);
  }
  const { list } = await get(`${COMPUTE}/os-lists/servers?host=${encodeURIComponent(name)}&limit=1`);
  const left = list.total ? `, and ${count(list.total, "server")} could not` : "";
  say(html("p", { class: list.total ? "bad-text" : "good" }, `Drained: ${count(moves.length, "server")} moved${left}.`));
}

/** @param {string} id */
async function arrived(id) {
  for (;;) {
    await new Promise((woken) => setTimeout(woken, POLL));
    const { server } = await get(`${COMPUTE}/servers/${id}`);
    if (!server["OS-EXT-STS:task_state"]) return;
  }
}
