// A project's own page: what it has, what it may have, and where to look further.

import { html } from "./dom.js";
import { historyOf } from "./feed.js";
import { get } from "./session.js";
import { factList } from "./things.js";
import { count } from "./words.js";

const COMPUTE = "/compute/v2.1";
/** @type {Record<string, string>} */
const LIMITS = { instances: "Servers", cores: "VCPUs", ram: "Memory, MiB", server_groups: "Groups" };

/** Everything about a project. @param {string} id @param {boolean} all whether the viewer sees all projects */
export async function projectPage(id, all) {
  const wanted = encodeURIComponent(id);
  const [{ quota_set: quota }, row, { list: failed }] = await Promise.all([
    get(`${COMPUTE}/os-quota-sets/${wanted}/detail`),
    all ? get(`${COMPUTE}/os-lists/projects?id=${wanted}`).then(({ list }) => list.rows[0]) : null,
    get(`${COMPUTE}/os-lists/servers?project_id=${wanted}&status=ERROR&limit=1`),
  ]);
  const facts = Object.entries(LIMITS)
    .filter(([name]) => name in quota)
    .map(([name, title]) => [title, used(quota[name])]);
  const broken = `#/lists/servers?project_id=${wanted}&status=ERROR`;
  const kinds = ["servers", "groups", "clusters", "nodes", "actions"];
  const links = kinds.map((kind) => html("li", {}, html("a", { href: `#/lists/${kind}?project_id=${wanted}` }, kind)));
  return [
    html("h2", {}, row?.name ?? `project ${id.slice(0, 8)}`),
    failed.total > 0 && html("p", {}, html("a", { class: "bad-text", href: broken }, `${count(failed.total, "server")} in ERROR`)),
    html("h3", {}, "Used, of what it may have"),
    factList([...facts, ["Id", id]]),
    html("h3", {}, "Lists"),
    html("ul", { class: "plain" }, ...links),
    ...(all ? [] : await historyOf({})),
  ];
}

/** @param {{in_use: number, limit: number}} figure */
function used({ in_use: now, limit }) {
  return `${now.toLocaleString("en")} of ${limit < 0 ? "any number" : limit.toLocaleString("en")}`;
}
