// Small charts: how members are distributed, and a cluster's size against its bounds.

import { svg } from "./dom.js";

const BAR = 16;
const STEP = 22;
const TALL = 46;
const MOST_BARS = 24;

/**
 * How many members each place holds, as bars; a line where a rule draws the limit.
 * @param {string} scope
 * @param {{name: string, number: number}[]} counts
 * @param {number|null} limit
 */
export function distribution(scope, counts, limit) {
  const bars = [...counts].sort((a, b) => b.number - a.number).slice(0, MOST_BARS);
  const top = Math.max(1, limit ?? 0, ...bars.map((each) => each.number));
  const width = Math.max(90, bars.length * STEP + 10);
  const y = (/** @type {number} */ value) => 8 + TALL - (value / top) * TALL;
  const members = bars.map((each) => `${each.number} in ${each.name}`).join(", ") || "no members";
  const said = `${scope}: ${members}${limit ? `, at most ${limit} allowed` : ""}`;
  return svg(
    "svg",
    { class: "bars", role: "img", "aria-label": said, viewBox: `0 0 ${width} ${TALL + 26}`, width, height: TALL + 26 },
    ...bars.flatMap((each, index) => bar(each, index, y(each.number), limit)),
    limit && svg("line", { x1: 0, x2: width, y1: y(limit), y2: y(limit), class: "limit" }),
    svg("line", { x1: 0, x2: width, y1: TALL + 8, y2: TALL + 8, class: "floor" }),
  );
}

/**
 * @param {{name: string, number: number}} each
 * @param {number} index
 * @param {number} y
 * @param {number|null} limit
 */
function bar({ name, number }, index, y, limit) {
  const x = 5 + index * STEP;
  const kind = limit && number > limit ? "bar over" : "bar";
  const said = svg("title", {}, `${name}: ${number}`);
  return [
    svg("rect", { x, y, width: BAR, height: TALL + 8 - y, rx: 2, class: kind }, said),
    svg("text", { x: x + BAR / 2, y: TALL + 22, class: "bar-text" }, String(number)),
  ];
}

/**
 * A cluster's size between its bounds, with the size that it wants.
 * @param {{min_size: number, max_size: number, desired_capacity: number, nodes: string[]}} cluster
 */
export function gauge(cluster) {
  const now = cluster.nodes.length;
  const wanted = cluster.desired_capacity;
  const top = cluster.max_size >= 0 ? cluster.max_size : Math.max(now, wanted, cluster.min_size, 1) * 1.25;
  const x = (/** @type {number} */ value) => 6 + Math.min(1, value / Math.max(1, top)) * 248;
  const bounds = cluster.max_size >= 0 ? `between ${cluster.min_size} and ${cluster.max_size}` : `at least ${cluster.min_size}`;
  return svg(
    "svg",
    {
      class: "gauge",
      role: "img",
      "aria-label": `${now} nodes, ${wanted} wanted, ${bounds}`,
      viewBox: "0 0 260 40",
      width: 260,
      height: 40,
    },
    svg("rect", { x: 6, y: 10, width: 248, height: 10, rx: 5, class: "track" }),
    svg("rect", { x: 6, y: 10, width: Math.max(0, x(now) - 6), height: 10, rx: 5, class: "now" }),
    svg("path", { d: `M${x(cluster.min_size)} 6v18`, class: "bound" }),
    cluster.max_size >= 0 && svg("path", { d: `M${x(top)} 6v18`, class: "bound" }),
    svg("path", { d: `M${x(wanted)} 8l-5 -7h10z`, class: "wanted" }),
    svg("text", { x: 6, y: 36 }, `min ${cluster.min_size}`),
    svg("text", { x: 130, y: 36, "text-anchor": "middle" }, `${now} now, ${wanted} wanted`),
    svg("text", { x: 254, y: 36, "text-anchor": "end" }, cluster.max_size >= 0 ? `max ${cluster.max_size}` : "no max"),
  );
}

/**
 * A number for each name, as horizontal bars.
 * @param {Map<string, number>} counts
 */
export function byName(counts) {
  const rows = [...counts].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  const top = Math.max(1, ...counts.values());
  const said = rows.map(([name, number]) => `${name}: ${number}`).join(", ");
  return svg(
    "svg",
    { class: "rows", role: "img", "aria-label": said, viewBox: `0 0 260 ${rows.length * 22}`, width: 260, height: rows.length * 22 },
    ...rows.flatMap(([name, number], index) => [
      svg("text", { x: 0, y: index * 22 + 15 }, name.length > 14 ? `${name.slice(0, 13)}…` : name),
      svg("rect", { x: 96, y: index * 22 + 4, width: (number / top) * 134, height: 14, rx: 3, class: "bar" }),
      svg("text", { x: 256, y: index * 22 + 15, "text-anchor": "end" }, String(number)),
    ]),
  );
}

/**
 * A figure over time, as a line from its least to its most.
 * @param {string} title
 * @param {[string, number][]} points
 */
export function line(title, points) {
  const values = points.map(([, value]) => value);
  const [least, most] = [Math.min(0, ...values), Math.max(1, ...values)];
  const [from, to] = [Date.parse(points[0][0]), Date.parse(points[points.length - 1][0])];
  const x = (/** @type {string} */ at) => (360 * (Date.parse(at) - from)) / (to - from || 1);
  const y = (/** @type {number} */ value) => 44 - (40 * (value - least)) / (most - least);
  const path = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const said = `${title}: now ${round(values[values.length - 1])}, between ${round(Math.min(...values))} and ${round(Math.max(...values))}`;
  return svg(
    "svg",
    { class: "line", role: "img", "aria-label": said, viewBox: "0 0 460 62", width: 460, height: 62 },
    svg("path", { d: "M0 44H360", class: "floor" }),
    svg("polyline", { points: path, class: "curve" }),
    svg("text", { x: 366, y: 12, class: "scale" }, `most ${round(Math.max(...values))}`),
    svg("text", { x: 366, y: 28 }, `now ${round(values[values.length - 1])}`),
    svg("text", { x: 366, y: 44, class: "scale" }, `least ${round(Math.min(...values))}`),
    svg("text", { x: 0, y: 58, class: "scale" }, timeOf(points[0][0])),
    svg("text", { x: 360, y: 58, class: "scale", "text-anchor": "end" }, timeOf(points[points.length - 1][0])),
  );
}

/** @param {string} at */
function timeOf(at) {
  return new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** @param {number} value */
function round(value) {
  return (Math.round(value * 100) / 100).toLocaleString("en");
}
