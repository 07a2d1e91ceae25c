// What is wrong, the most harmful first, with what can be done about it.

import { html } from "./dom.js";
import { addressOf, command } from "./links.js";
import { exports } from "./lists.js";
import { get } from "./session.js";
import { actionName, moment } from "./words.js";

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
const SHOWN = 10;
/** Where all of a kind are listed. @type {Record<string, string>} */
const ALL = {
  server_failed: "#/lists/servers?status=ERROR",
  rule_broken: "#/lists/groups?broken=1",
  host_down: "#/lists/hosts?state=down",
  cluster_failed: "#/lists/clusters?status=ERROR",
  action_failed: "#/lists/actions?status=FAILED",
};

/** The question that is being asked, which the title and the overview share. @type {Promise<any>|null} */
let asking = null;

/** @returns {Promise<any>} */
export function loadTroubles() {
  asking ??= get("/compute/v2.1/os-troubles")
    .then(({ troubles }) => troubles)
    .finally(() => (asking = null));
  return asking;
}

/** The list, or that there is nothing in it: a few of each kind, so that many of one do not hide another. @param {any} troubles */
export function troubleList(troubles) {
  if (!troubles.total) return html("p", { class: "good" }, "Every rule holds, and every server runs.");
  const kinds = [...new Set(troubles.items.map((/** @type {any} */ each) => each.kind))];
  const items = kinds.flatMap((kind) => {
    const all = troubles.items.filter((/** @type {any} */ each) => each.kind === kind);
    const more = troubles.counts[kind] - SHOWN;
    return [...all.slice(0, SHOWN).map(item), more > 0 && rest(kind, more)];
  });
  return html("div", {}, html("ul", { class: "plain troubles" }, ...items), exports("troubles", troubles.items.map(flat)));
}

/** @param {string} kind @param {number} more */
function rest(kind, more) {
  const said = `and ${more.toLocaleString("en")} more: ${(TITLES[kind] ?? kind).toLowerCase()}`;
  return html("li", { class: "muted" }, kind in ALL ? html("a", { href: ALL[kind] }, said) : said);
}

/** A trouble as a row of a file. @param {any} trouble */
function flat({ kind, name, sentence, subject, since, remedies }) {
  return { kind, name, sentence, id: subject?.id ?? "", since, remedy: remedies[0]?.command ?? "" };
}

/** @param {any} trouble */
function item(trouble) {
  const { subject } = trouble;
  const said = subject?.kind === "actions" ? actionName(trouble.name) : trouble.name;
  const href = subject && addressOf(subject.kind, { id: subject.id, name: trouble.name });
  const name = href ? html("a", { href }, said) : html("strong", {}, said);
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
