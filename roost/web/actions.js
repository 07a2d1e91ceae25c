// An action's own page, and what can be done to one that has not ended: pause it, let it go on, cancel it.

import { answerBox, button } from "./answers.js";
import { html } from "./dom.js";
import { command } from "./links.js";
import { get, mayChange, request } from "./session.js";
import { factList } from "./things.js";
import { actionName, kindOf, moment, outcome, progress, story } from "./words.js";

const API = "/clustering/v1";
/** @type {Record<string, string>} */
const CAUSES = { "RPC Request": "a request", "Derived Action": "another action", "Lifecycle Action": "a lifecycle hook" };
const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];

/** Whether an action can still be changed. @param {any} action */
export function unfinished(action) {
  return !ENDED.includes(action.status);
}

/** Everything about an action. @param {string} id */
export async function actionPage(id) {
  const { action } = await get(`${API}/actions/${id}`);
  const bindings = await policiesOf(action.cluster_id);
  const facts = [
    ["State", action.status.toLowerCase().replaceAll("_", " ")],
    action.status_reason !== outcome(action) && ["Reason", action.status_reason],
    ["Target", target(action)],
    action.cause && ["Cause", CAUSES[action.cause] ?? action.cause],
    ["Begun", moment(seconds(action.start_time)) || "not yet"],
    action.end_time && ["Ended", moment(seconds(action.end_time))],
    ["Timeout", `${action.timeout} s`],
    ["Id", action.id],
  ];
  const spoke = (/** @type {any} */ each) => each.enabled && story(each.policy_type, action) !== story(each.policy_type, {});
  const decided = bindings.filter(spoke).map((/** @type {any} */ each) => {
    const said = ` ${kindOf(each.policy_type).replaceAll("_", " ")}: ${story(each.policy_type, action)}`;
    return html("li", {}, html("strong", {}, each.policy_name), said);
  });
  const data = JSON.stringify({ inputs: action.inputs, outputs: action.outputs, data: action.data }, null, 2);
  return [
    html("h2", {}, actionName(action.action)),
    unfinished(action) && bar(action),
    html("p", { class: action.status === "FAILED" ? "bad-text" : null }, outcome(action)),
    factList(facts),
    ...(unfinished(action) && mayChange() ? control(action) : []),
    decided.length > 0 && html("h3", {}, "What the policies decided"),
    decided.length > 0 && html("ul", { class: "plain" }, ...decided),
    ...waits(action),
    html("details", {}, html("summary", {}, "Inputs, outputs and data"), html("pre", { class: "scroll", tabindex: 0 }, data)),
  ];
}

/** The policies of a cluster, which may be gone. @param {string|null} clusterId @returns {Promise<any[]>} */
async function policiesOf(clusterId) {
  if (!clusterId) return [];
  return get(`${API}/clusters/${clusterId}/policies`).then((found) => found.cluster_policies, () => []);
}

/** @param {number|null} time */
function seconds(time) {
  return time ? new Date(time * 1000).toISOString() : null;
}

/** @param {any} action */
function target(action) {
  const kind = action.action.startsWith("CLUSTER_") ? "clusters" : "node";
  return html("a", { href: `#/${kind}/${action.target}` }, `${kind === "node" ? "node" : "cluster"} ${action.target.slice(0, 8)}`);
}

/** @param {any} action */
export function bar(action) {
  const far = progress(action);
  const said = `${actionName(action.action)}: ${action.status.toLowerCase().replaceAll("_", " ")}`;
  return html("progress", far === null ? { "aria-label": said } : { max: 1, value: far, "aria-label": said });
}

/** @param {any} action */
function waits(action) {
  if (!action.depends_on.length) return [];
  const item = (/** @type {string} */ each) => html("li", {}, html("a", { href: `#/action/${each}` }, each));
  return [html("h3", {}, "Waits for"), html("ul", { class: "plain" }, ...action.depends_on.slice(0, 100).map(item))];
}

/** @param {any} action */
function control(action) {
  const { node, tell } = answerBox();
  const paused = action.status === "SUSPENDED";
  const wanted = paused ? "READY" : "SUSPENDED";
  const set = async (/** @type {string} */ status, /** @type {string} */ said, force = "") => {
    await request("PATCH", `${API}/actions/${action.id}${force}`, { body: { action: { status } } });
    tell(html("p", { class: "good" }, said));
  };
  const cancel = () =>
    tell(
      html("p", {}, "No further node would be touched; what is done stays done. By force, it ends at once, whatever an engine is at."),
      command(`openstack cluster action update --status CANCELLED ${action.id}`),
      html(
        "p",
        { class: "buttons" },
        button("Cancel it", () => set("CANCELLED", "It is being cancelled.")),
        button("Cancel it by force", () => set("CANCELLED", "It is cancelled.", "?force=true")),
      ),
    );
  const said = paused ? "It goes on." : "It pauses when the step under way has ended.";
  const pause = button(paused ? "Go on" : "Pause", () => set(wanted, said));
  return [
    html(
      "section",
      { class: "doing", "aria-label": "Do" },
      html("h3", {}, "Do"),
      html("p", { class: "buttons" }, pause, button("Cancel…", async () => cancel())),
      command(`openstack cluster action update --status ${wanted} ${action.id}`),
      node,
    ),
  ];
}
