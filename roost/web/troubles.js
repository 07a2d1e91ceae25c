// What is wrong, the most harmful first, with what can be done about it.

import { html } from "./dom.js";
import { addressOf, command } from "./links.js";
import { get } from "./session.js";
import { count, moment } from "./words.js";

/** @type {Record<string, string>} */
const TITLES = {
  no_engine: "No engine is alive",
  host_down: "Host down",
  rule_broken: "Rule broken",
  server_failed: "Server in ERROR",
  cluster_failed: "Cluster in trouble",
  action_failed: "Action failed",
  engine_dead: "Engine dead",
  notifications_wait: "Notifications wait",
};
const SHOWN = 40;

/** The question that is being asked, which the title and the overview share. @type {Promise<any>|null} */
let asking = null;

/** @returns {Promise<any>} */
export function loadTroubles() {
  asking ??= get("/compute/v2.1/os-troubles")
    .then(({ troubles }) => troubles)
    .finally(() => (asking = null));
  return asking;
}

/** The list, or that there is nothing in it. @param {any} troubles */
export function troubleList(troubles) {
  if (!troubles.total) return html("p", { class: "good" }, "Every rule holds, and every server runs.");
  const items = troubles.items.slice(0, SHOWN).map(item);
  const more = troubles.total - items.length;
  return html(
    "div",
    {},
    html("ul", { class: "plain troubles" }, ...items),
    more > 0 && html("p", { class: "muted" }, `and ${count(more, "more thing")}. `, ...lists(troubles.counts)),
  );
}

/** @param {Record<string, number>} counts */
function lists(counts) {
  return [
    counts.server_failed && html("a", { href: "#/lists/servers?status=ERROR" }, `All ${counts.server_failed} servers in ERROR. `),
    counts.rule_broken && html("a", { href: "#/lists/groups?broken=1" }, "All groups with broken rules. "),
    counts.host_down && html("a", { href: "#/lists/hosts?state=down" }, "All hosts that are down."),
  ];
}

/** @param {any} trouble */
function item(trouble) {
  const { subject } = trouble;
  const name = subject
    ? html("a", { href: addressOf(subject.kind, { id: subject.id, name: trouble.name }) }, trouble.name)
    : html("strong", {}, trouble.name);
  return html(
    "li",
    { class: "harm", "data-kind": trouble.kind },
    html("span", { class: "badge bad" }, TITLES[trouble.kind] ?? trouble.kind),
    " ",
    name,
    trouble.since && html("span", { class: "muted" }, ` since ${moment(trouble.since)}`),
    html("p", {}, trouble.sentence),
    trouble.remedies.length > 0 &&
      html(
        "details",
        {},
        html("summary", {}, "What to do"),
        ...trouble.remedies.flatMap((/** @type {any} */ each) => [html("p", {}, each.sentence), command(each.command)]),
      ),
  );
}
