// A node's own page: what it is, the server behind it, and how to check, recover or delete it.

import { answerBox, button } from "./answers.js";
import { html } from "./dom.js";
import { get, mayChange, post } from "./session.js";
import { deleted, preview } from "./steering.js";
import { factList } from "./things.js";
import { actionName, moment, phase, reasonOf } from "./words.js";

const API = "/clustering/v1";
/** Everything about a node. @param {string} id */
export async function nodePage(id) {
  const [{ node }, { events }] = await Promise.all([
    get(`${API}/nodes/${id}`),
    get(`${API}/events?oid=${id}&sort=timestamp:desc&limit=30`),
  ]);
  const facts = [
    ["State", node.status.toLowerCase()],
    ["Reason", reasonOf(node.status_reason ?? "")],
    ["Cluster", node.cluster_id ? html("a", { href: `#/clusters/${node.cluster_id}` }, node.cluster_id.slice(0, 8)) : "none"],
    ["Server", node.physical_id ? html("a", { href: `#/server/${node.physical_id}` }, node.physical_id.slice(0, 8)) : "none yet"],
    ["Profile", node.profile_name],
    node.index > 0 && ["Number", node.index],
    node.role && ["Role", node.role],
    node.tainted && ["Tainted", "leaves first"],
    ["Created", moment(node.created_at)],
    ["Id", node.id],
  ];
  return [
    html("h2", {}, node.name),
    factList(facts),
    ...(mayChange() ? doing(node) : []),
    html("h3", {}, "What happened"),
    eventItems(events),
  ];
}

/** What can be done to a node, each deed rehearsed first. @param {any} node */
function doing(node) {
  const box = answerBox();
  const path = `${API}/nodes/${node.id}`;
  const offer = (/** @type {string} */ name, /** @type {string} */ title, /** @type {() => Promise<string>} */ act) => {
    const line = `openstack cluster node ${name} ${node.id}`;
    const look = () => preview(`${path}/actions`, { [name]: {} }, line, box, { title, act });
    return button(`${name.replace(/^./, (letter) => letter.toUpperCase())}…`, look);
  };
  const start = (/** @type {string} */ name) => async () => (await post(`${path}/actions`, { [name]: {} })).action;
  const buttons = [
    offer("check", "Check it", start("check")),
    offer("recover", "Recover it", start("recover")),
    offer("delete", "Delete it for good", () => deleted(path)),
  ];
  const parts = [html("h3", {}, "Do"), html("p", { class: "buttons" }, ...buttons), box.node];
  return [html("section", { class: "doing", "aria-label": "Do" }, ...parts)];
}

/** What happened to nodes and clusters. @param {any[]} events */
export function eventItems(events) {
  if (!events.length) return html("p", { class: "muted" }, "Nothing has happened.");
  const items = events.map((each) =>
    html(
      "li",
      {},
      html("time", { class: "muted" }, moment(each.timestamp)),
      ` ${actionName(each.action)} ${phase(each.status)}`,
      each.status_reason && html("span", { class: "muted" }, ` – ${reasonOf(each.status_reason)}`),
    ),
  );
  return html("ul", { class: "plain events" }, ...items);
}
