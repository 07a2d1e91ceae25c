// What happened, the latest first; and how figures went over the last hours.

import { line } from "./charts.js";
import { html, refill } from "./dom.js";
import { linkTo } from "./links.js";
import { exports } from "./lists.js";
import { get } from "./session.js";
import { actionName, moment, phase, reasonOf } from "./words.js";

/** @type {Record<string, string>} */
const KINDS = {
  placed: "placed", moved: "moved", failed: "failed", deleted: "deleted", rule_broken: "rule broken", rule_mended: "rule holds again",
  host_down: "host down", host_up: "host up", host_disabled: "host disabled", host_enabled: "host enabled", action: "action",
};
/** @type {Record<string, string>} */
const FIGURES = {
  free_vcpus: "Free VCPUs", free_memory_mb: "Free memory, MiB", servers: "Servers", violations: "Broken rules",
  boots: "Boots per minute", boot_seconds: "Seconds per boot",
};

const HISTORY = "/compute/v2.1/os-history";
const PAGE = 100;
const FEW = 50;

/** The feed of the whole cloud, or of the project. */
export class Feed {
  /** @param {{fleet: import("./fleet.js").Fleet}} page */
  constructor(page) {
    this._page = page;
    this.title = "What happened";
    this.pause = 3_000;
  }

  /** @param {string[]} _path @param {HTMLElement} panel @param {URLSearchParams} query */
  async open(_path, panel, query) {
    this._query = query;
    this._events = html("div", {});
    this._charts = html("div", {});
    const kinds = Object.entries(KINDS).map(([value, name]) => html("option", { value, selected: query.get("kind") === value }, name));
    const choice = html("select", { id: "kind" }, html("option", { value: "" }, "everything"), ...kinds);
    choice.addEventListener("change", () => {
      location.hash = `#/feed?${changed(query, { kind: /** @type {HTMLSelectElement} */ (choice).value, before: "" })}`;
    });
    await this.changed();
    panel.replaceChildren(
      html("h2", {}, "What happened"),
      html("p", {}, html("label", { for: "kind" }, "Show "), choice, ...about(query)),
      this._events,
      this._charts,
    );
  }

  /** Read it again: something may have happened. */
  async changed() {
    const [query, events, charts] = [this._query, this._events, this._charts];
    if (!query || !events || !charts) return;
    const [{ events: found }, drawn] = await Promise.all([get(`${HISTORY}?${query}`), this._page.fleet.all ? figures() : []]);
    const older = found.length >= PAGE && html("a", { href: `#/feed?${changed(query, { before: found.at(-1).at })}` }, "Earlier");
    const newer = query.has("before") && html("a", { href: `#/feed?${changed(query, { before: "" })}` }, "Latest");
    refill(events, [eventItems(found), html("p", { class: "pager" }, newer, " ", older), exports("history", found)]);
    refill(charts, drawn);
  }
}

/** A question with some of it changed; what is empty is left out. @param {URLSearchParams} query @param {Record<string, string>} changes */
function changed(query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  return next;
}

/** What alone the feed is about, and the way to all of it. @param {URLSearchParams} query */
function about(query) {
  const one = ["group_id", "server_id", "host", "cluster_id"].filter((name) => query.has(name));
  const said = one.map((name) => `${name.replace("_id", "")} ${query.get(name)}`).join(", ");
  return said ? [` of ${said}. `, html("a", { href: "#/feed" }, "Of everything")] : [];
}

/** The history of one thing. @param {Record<string, string>} about */
export async function historyOf(about) {
  const { events } = await get(`${HISTORY}?${new URLSearchParams({ ...about, limit: String(FEW) })}`);
  const all = html("a", { href: `#/feed?${new URLSearchParams(about)}` }, "All that happened");
  return [html("h3", {}, "What happened"), eventItems(events), html("p", {}, events.length >= FEW && all)];
}

/** @param {any[]} events */
function eventItems(events) {
  if (!events.length) return html("p", { class: "muted" }, "Nothing yet.");
  return html("ul", { class: "plain events" }, ...events.map(item));
}

/** @param {any} event */
function item(event) {
  if (event.kind === "action") return actionItem(event);
  const about = event.server_id
    ? html("a", { href: `#/server/${event.server_id}` }, event.name ?? event.server_id.slice(0, 8))
    : event.group_id
      ? html("a", { href: `#/groups/${event.group_id}` }, event.group ?? "a group that is gone")
      : event.host && html("a", { href: `#/host/${encodeURIComponent(event.host)}` }, event.host);
  const host = (/** @type {string|null} */ name) => (name ? linkTo("hosts", { id: name, name }) : "nowhere");
  const on = event.server_id && event.host ? [" on ", host(event.host)] : [];
  const way = event.kind === "moved" && event.source ? [": ", host(event.source), " → ", host(event.host)] : on;
  return html(
    "li",
    { "data-kind": event.kind },
    html("time", { class: "muted", datetime: event.at }, moment(event.at)),
    ` ${KINDS[event.kind] ?? event.kind} `,
    about,
    ...way,
    event.detail && html("span", { class: "muted" }, ` – ${event.detail}`),
  );
}

/** What a policy, a user or the engine had done to a cluster or a node. @param {any} event */
function actionItem(event) {
  const [, action = "", status = "", reason = ""] = /^(\S+) (\w+): ?(.*)$/s.exec(event.detail ?? "") ?? [];
  return html(
    "li",
    { "data-kind": event.kind },
    html("time", { class: "muted", datetime: event.at }, moment(event.at)),
    ` ${actionName(action)} ${phase(status)} `,
    event.cluster_id ? html("a", { href: `#/clusters/${event.cluster_id}` }, event.cluster ?? "a cluster that is gone") : event.name,
    reason && html("span", { class: "muted" }, ` – ${reasonOf(reason)}`),
  );
}

async function figures() {
  const { figures: found } = await get("/compute/v2.1/os-figures?hours=6");
  const charts = Object.entries(FIGURES)
    .filter(([name]) => found[name]?.length > 1)
    .map(([name, title]) => html("figure", {}, html("figcaption", {}, title), line(title, found[name])));
  if (!charts.length) return [html("p", { class: "muted" }, "Figures are taken every minute; the charts begin with the second.")];
  return [html("h3", {}, "The last six hours"), html("div", { class: "figures-over-time" }, ...charts)];
}
