// A node's own page: what it is, the server behind it, and how to check, recover or delete it.

import { answerBox, button } from "./answers.js";
import { html } from "./dom.js";
import { command } from "./links.js";
import { get, mayChange, post, request } from "./session.js";
import { factList } from "./things.js";
import { actionName, moment, phase, reasonOf } from "./words.js";

const API = "/clustering/v1";
/** @type {Record<string, string>} */
const MEANS = {
  check: "Its server would be looked at, and its state set by what is found.",
  recover: "It would be recovered as its cluster's health policy says, or by making its server anew.",
};

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

/** @param {any} node */
function doing(node) {
  const box = answerBox();
  const done = (/** @type {string} */ said, /** @type {string} */ action) =>
    box.tell(html("p", { class: "good" }, said, " ", html("a", { href: `#/action/${action}` }, "Follow it")));
  const act = (/** @type {string} */ name, /** @type {string} */ title) => {
    const begin = async () => done("Begun.", (await post(`${API}/nodes/${node.id}/actions`, { [name]: {} })).action);
    const line = command(`openstack cluster node ${name} ${node.id}`);
    return button(`${title}…`, async () => box.tell(html("p", {}, MEANS[name]), line, button(`${title} it`, begin)));
  };
  const remove = button("Delete…", async () =>
    box.tell(
      html("p", {}, `${node.name} and its server would be deleted. Its cluster would be one smaller.`),
      command(`openstack cluster node delete ${node.id}`),
      button("Delete it for good", async () => {
        const answer = await request("DELETE", `${API}/nodes/${node.id}`);
        done("It is being deleted.", (answer.headers.get("Location") ?? "").split("/").pop() ?? "");
      }),
    ),
  );
  return [
    html(
      "section",
      { class: "doing", "aria-label": "Do" },
      html("h3", {}, "Do"),
      html("p", { class: "buttons" }, act("check", "Check"), act("recover", "Recover"), remove),
      box.node,
    ),
  ];
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
