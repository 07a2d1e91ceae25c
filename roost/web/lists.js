// Lists of everything: filtered, sorted and paged, all of it in the address; and as a file.

import { button } from "./answers.js";
import { html, refill } from "./dom.js";
import { linkTo } from "./links.js";
import { get, request } from "./session.js";
import { moment } from "./words.js";

const KINDS = ["servers", "groups", "hosts", "aggregates", "scopes", "clusters", "nodes", "actions", "projects"];
const OPERATORS = ["hosts", "aggregates", "scopes", "projects"];
const HIDDEN = ["id", "group_id", "project_id", "cluster_id", "server_id", "task"];
/** The filters with a field of their own, by the kind of list. @type {Record<string, [string, string[]][]>} */
const FILTERS = {
  servers: [["status", ["ACTIVE", "BUILD", "ERROR", "SHUTOFF"]], ["zone", []], ["flavor", []], ["project", []]],
  groups: [["broken", ["1"]], ["project", []]],
  hosts: [["state", ["up", "disabled", "down"]], ["zone", []]],
  clusters: [["status", ["ACTIVE", "WARNING", "CRITICAL", "ERROR"]], ["project", []]],
  nodes: [["status", ["ACTIVE", "ERROR"]]],
  actions: [["status", ["RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]]],
  aggregates: [["scope", []], ["zone", []]],
};
/** What is in the address and is no filter. */
const PAGING = ["sort", "limit", "marker"];
/** Columns of sentences, which wrap. */
const LONG = ["fault", "reason", "rules"];
const MOST_ROWS = 1000;
const ROWS = "50";
/** Columns whose title is not their name. @type {Record<string, string>} */
const TITLES = { memory_mb: "memory, MiB", memory_mb_used: "memory used, MiB", vcpus: "VCPUs", vcpus_used: "VCPUs used" };
const LIST = "/compute/v2.1/os-lists/";
const EXPORT = "/compute/v2.1/os-exports/";

/** One list at a time. */
export class Lists {
  /** @param {{fleet: import("./fleet.js").Fleet}} page */
  constructor(page) {
    this._page = page;
    this.title = "Lists";
    this.pause = 3_000;
  }

  /** @param {string[]} path @param {HTMLElement} panel @param {URLSearchParams} query */
  async open([kind = "servers"], panel, query) {
    this._shown = { kind, panel, query };
    const list = await load(kind, query);
    if (this._shown.panel !== panel) return;
    const kinds = KINDS.filter((each) => this._page.fleet.all || !OPERATORS.includes(each));
    const tabs = kinds.map((each) => html("a", { href: `#/lists/${each}`, "aria-current": each === kind ? "page" : null }, each));
    this._rows = html("div", {});
    this._heading = html("h2", {});
    this._fill(list);
    panel.replaceChildren(
      this._heading,
      html("nav", { class: "kinds", "aria-label": "Lists" }, ...tabs),
      form(kind, query),
      this._rows,
      html(
        "p",
        { class: "buttons" },
        button("Export as CSV", () => save(kind, query, "csv")),
        button("Export as JSON", () => save(kind, query, "json")),
      ),
    );
  }

  /** Read the rows again when something has changed; what is typed into the filters stays. */
  async changed() {
    const shown = this._shown;
    if (!shown) return;
    const list = await load(shown.kind, shown.query);
    if (this._shown === shown) this._fill(list);
  }

  close() {
    this._shown = undefined;
  }

  /** @param {any} list */
  _fill(list) {
    if (!this._shown || !this._heading || !this._rows) return;
    const { kind, query } = this._shown;
    this._heading.textContent = `${list.total.toLocaleString("en")} ${list.total === 1 ? kind.slice(0, -1) : kind}`;
    refill(this._rows, [table(kind, list, query), pager(kind, list, query)]);
  }
}

/** One page of a list. @param {string} kind @param {URLSearchParams} query */
async function load(kind, query) {
  const asked = new URLSearchParams(query);
  if (!asked.has("limit")) asked.set("limit", ROWS);
  return (await get(`${LIST}${encodeURIComponent(kind)}?${asked}`)).list;
}

/** @param {string} kind @param {URLSearchParams} query */
function go(kind, query) {
  location.hash = `#/lists/${kind}${query.size ? `?${query}` : ""}`;
}

/** @param {string} kind @param {URLSearchParams} query */
function form(kind, query) {
  /** @type {[string, string[]][]} */
  const known = [["q", []], ...(FILTERS[kind] ?? [])];
  // A link may ask for more than there are fields for: then that has a field too.
  for (const name of query.keys()) if (!PAGING.includes(name) && !known.some(([each]) => each === name)) known.push([name, []]);
  const fields = known.map(([name, values]) => field(name, values, query));
  const node = html("form", { class: "filters" }, ...fields, html("button", {}, "Show"));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(/** @type {HTMLFormElement} */ (node))) if (value) wanted.set(name, String(value));
    if (query.has("sort")) wanted.set("sort", query.get("sort") ?? "");
    go(kind, wanted);
  });
  return node;
}

/** @param {string} name @param {string[]} values @param {URLSearchParams} query */
function field(name, values, query) {
  const label = name === "q" ? "words" : name === "broken" ? "broken only" : name.replaceAll("_", " ");
  const now = query.get(name) ?? "";
  const options = [...new Set(["", ...values, now])].map((each) =>
    html("option", { value: each, selected: each === now }, each === "1" ? "yes" : each || "any"),
  );
  const input = values.length
    ? html("select", { name, id: `filter-${name}` }, ...options)
    : html("input", { name, id: `filter-${name}`, value: now });
  return html("span", {}, html("label", { for: `filter-${name}` }, `${label} `), input);
}

/** @param {string} kind @param {any} list @param {URLSearchParams} query */
function table(kind, list, query) {
  const filled = (/** @type {string} */ name) => !LONG.includes(name) || list.rows.some((/** @type {any} */ each) => each[name]);
  const columns = list.columns.filter((/** @type {string} */ each) => !HIDDEN.includes(each) && filled(each));
  if (kind === "groups") columns.push("rules", "broken");
  if (!list.rows.length) return html("p", { class: "muted" }, "There are none.");
  const [sorted, direction] = (query.get("sort") ?? "name").split(":");
  const heads = columns.map((/** @type {string} */ name) => {
    const title = TITLES[name] ?? name.replaceAll("_", " ");
    const kind = list.rows.every((/** @type {any} */ row) => isNumber(name, row)) ? "number" : null;
    if (!list.columns.includes(name)) return html("th", { scope: "col", class: kind }, title);
    const descends = name === sorted && direction !== "desc";
    const next = new URLSearchParams(query);
    next.set("sort", `${name}${descends ? ":desc" : ""}`);
    next.delete("marker");
    const order = name === sorted ? (direction === "desc" ? "descending" : "ascending") : null;
    return html("th", { scope: "col", class: kind, "aria-sort": order }, html("a", { href: `#/lists/${kind}?${next}` }, title));
  });
  const rows = list.rows.map((/** @type {any} */ row) =>
    html("tr", {}, ...columns.map((/** @type {string} */ name) => cell(kind, row, name))),
  );
  return html(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": kind },
    html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...rows)),
  );
}

/** @param {string} kind @param {any} row @param {string} name */
function cell(kind, row, name) {
  if (name === "name") return html("th", { scope: "row" }, linkTo(kind, row));
  if (name === "group" && row.group_id) return html("td", {}, html("a", { href: `#/groups/${row.group_id}` }, row.group));
  if (name === "host" && row.host) return html("td", {}, html("a", { href: `#/host/${encodeURIComponent(row.host)}` }, row.host));
  if (name === "cluster" && row.cluster_id) return html("td", {}, html("a", { href: `#/clusters/${row.cluster_id}` }, row.cluster));
  if (name === "project" && row.project_id) return html("td", {}, html("a", { href: `#/project/${row.project_id}` }, row.project));
  if (name === "target" && row.target) return html("td", {}, targetOf(row));
  if (name === "load") return html("td", { class: "number" }, `${Math.round(row.load * 100)} %`);
  if (name.endsWith("_at")) return html("td", {}, moment(row[name]));
  const bad = row[name] === "ERROR" || row[name] === "down" || (name === "failed" && row.failed) || (name === "broken" && row.broken);
  const number = isNumber(name, row);
  const kinds = [bad && "bad-text", LONG.includes(name) && "long", number && "number"].filter(Boolean).join(" ");
  return html("td", { class: kinds || null }, number ? row[name].toLocaleString("en") : String(row[name] ?? ""));
}

/** @param {string} name @param {any} row */
function isNumber(name, row) {
  return name !== "name" && typeof row[name] === "number";
}

/** What an action is about. @param {any} row */
function targetOf(row) {
  const kind = row.action.startsWith("NODE_") ? "nodes" : "clusters";
  return linkTo(kind, { id: row.target, name: `${row.target.slice(0, 8)}, a ${kind.slice(0, -1)}` });
}

/** @param {string} kind @param {any} list @param {URLSearchParams} query */
function pager(kind, list, query) {
  const last = list.rows.at(-1);
  const limit = Math.min(Number(query.get("limit") ?? ROWS), MOST_ROWS);
  const next = new URLSearchParams(query);
  if (last) next.set("marker", String(last.id));
  const first = new URLSearchParams(query);
  first.delete("marker");
  return html(
    "p",
    { class: "pager" },
    query.has("marker") && html("a", { href: `#/lists/${kind}?${first}` }, "First page"),
    " ",
    list.rows.length === limit && html("a", { href: `#/lists/${kind}?${next}` }, "Next page"),
  );
}

/** @param {string} kind @param {URLSearchParams} query @param {string} format */
async function save(kind, query, format) {
  const wanted = new URLSearchParams(query);
  for (const name of ["marker", "limit"]) wanted.delete(name);
  wanted.set("format", format);
  const answer = await request("GET", `${EXPORT}${kind}?${wanted}`);
  download(await answer.blob(), `${kind}.${format}`);
}

/** Buttons that save rows that are on the page already. @param {string} name @param {any[]} rows */
export function exports(name, rows) {
  if (!rows.length) return null;
  const columns = Object.keys(rows[0]);
  const quoted = (/** @type {any} */ value) => `"${guarded(String(value ?? "")).replaceAll('"', '""')}"`;
  const csv = () => [columns.join(","), ...rows.map((row) => columns.map((each) => quoted(row[each])).join(","))].join("\r\n");
  return html(
    "p",
    { class: "buttons" },
    button("Export as CSV", () => download(new Blob([csv()], { type: "text/csv" }), `${name}.csv`)),
    button("Export as JSON", () => download(new Blob([JSON.stringify(rows)], { type: "application/json" }), `${name}.json`)),
  );
}

/** A text that a spreadsheet does not take for a formula. @param {string} text */
function guarded(text) {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

/** Hand a file to the browser. @param {Blob} content @param {string} name */
export function download(content, name) {
  const address = URL.createObjectURL(content);
  const link = html("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
