// The map: zones, aggregates, hosts and servers as SVG tiles, patched in place when something changed.

import { html, set, svg } from "./dom.js";
import { keyOf, layout } from "./layout.js";

/** @typedef {import("./layout.js").Aggregate} Aggregate */
/** @typedef {import("./layout.js").Box} Box */
/** @typedef {{name: string, has: (server: any) => boolean}} Emphasis */

const HUES = 10;
/** Groups in the order in which they were first seen. @type {Map<string, number>} */
const seen = new Map();

/**
 * The colour of a group: the same as long as the page is open, and of its own while there are few.
 * @param {string|null} groupId
 */
export function hueOf(groupId) {
  if (!groupId) return "alone";
  if (!seen.has(groupId)) seen.set(groupId, seen.size % HUES);
  return `hue-${seen.get(groupId)}`;
}

/** What a screen reader says of an aggregate. @param {Aggregate} each @param {string} scope */
function spoken(each, scope) {
  const facts = [`${scope} ${titleOf(each)}`];
  if (each.host_count !== undefined) facts.push(`${each.host_count} hosts`);
  facts.push(`${each.servers} servers`);
  if (each.load !== undefined) facts.push(`load ${Math.round(each.load * 100)} percent`);
  if (each.disabled) facts.push(`${each.disabled} disabled`);
  if (each.violations) facts.push(`${each.violations} rules broken`);
  return facts.join(", ");
}

/** What a tile is called. @param {Aggregate} each */
export function titleOf(each) {
  if (each.id === "none") return "in none";
  return each.name ?? each.id.slice(0, 8);
}

/** How full a host is, by its scarcer resource. @param {any} host */
export function loadOf(host) {
  if (!host.vcpus) return null;
  return Math.max(host.vcpus[0] / (host.vcpus[1] || 1), host.memory_mb[0] / (host.memory_mb[1] || 1));
}

/** The drawn map, and what is drawn over it. */
export class FleetMap {
  /** @param {{pick: (what: string, id: string) => void}} tell */
  constructor(tell) {
    this._tell = tell;
    this._scope = "";
    /** @type {Aggregate[]} */
    this._aggregates = [];
    /** @type {any[]} */
    this._moves = [];
    /** What stands out: a name for it, and whether a server belongs to it. @type {Emphasis|null} */
    this._emphasis = null;
    /** @type {Map<string, {node: SVGElement, signature: string, box: Box}>} */
    this._tiles = new Map();
    this._layers = ["zones", "aggregates", "hosts", "arrows"].map((name) => svg("g", { class: name }));
    this.svg = svg("svg", { class: "map", role: "group", "aria-label": "Map of the fleet" }, defs(), ...this._layers);
    this.node = html("div", { class: "map-frame" }, this.svg);
    this.svg.addEventListener("click", (event) => this._clicked(event));
    this.svg.addEventListener("keydown", (event) => this._typed(/** @type {KeyboardEvent} */ (event)));
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /**
   * Draw these aggregates.
   * @param {string} scope
   * @param {Aggregate[]} aggregates
   */
  show(scope, aggregates) {
    this._scope = scope;
    this._aggregates = aggregates;
    this.draw();
  }

  /** Make some servers stand out from all others; null is all alike. @param {Emphasis|null} emphasis */
  emphasise(emphasis) {
    if (this._emphasis?.name === emphasis?.name) return;
    this._emphasis = emphasis;
    this.draw();
  }

  /** Draw moves as arrows before, or while, they happen. @param {any[]} moves */
  arrows(moves) {
    this._moves = moves;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.node.clientWidth);
    if (!width) return;
    const found = layout([...this._aggregates, ...this._ghosts()], width);
    set(this.svg, { viewBox: `0 0 ${width} ${found.height}`, width, height: found.height });
    const kept = new Set();
    for (const zone of found.zones) this._put(kept, 0, `zone ${zone.name}`, zone.box, zone.name, () => drawZone(zone));
    for (const { key, aggregate, box } of found.aggregates) {
      const signature = JSON.stringify([this._scope, { ...aggregate, hosts: Boolean(aggregate.hosts) }]);
      this._put(kept, 1, key, box, signature, () => drawAggregate(key, aggregate, box, this._scope));
    }
    for (const { key, host, box } of found.hosts) {
      const signature = JSON.stringify([host, this._emphasis?.name]);
      this._put(kept, 2, key, box, signature, () => drawHost(host, box, this._emphasis));
    }
    for (const [key, tile] of this._tiles) {
      if (!kept.has(key)) {
        tile.node.remove();
        this._tiles.delete(key);
      }
    }
    this._layers[3].replaceChildren(...this._moves.flatMap((move) => this._arrow(move, found)));
    this._rove();
  }

  /**
   * Keep a tile as it is, or draw it anew if anything about it changed.
   * @param {Set<string>} kept
   * @param {number} layer
   * @param {string} key
   * @param {Box} box
   * @param {string} signature
   * @param {() => SVGElement} make
   */
  _put(kept, layer, key, box, signature, make) {
    const name = `${layer} ${key}`;
    kept.add(name);
    const known = this._tiles.get(name);
    const same = known && known.box.w === box.w && known.box.h === box.h && known.signature === signature;
    const node = same ? known.node : make();
    if (!same) {
      const focused = known?.node === document.activeElement;
      if (known) known.node.replaceWith(node);
      else this._layers[layer].append(node);
      if (focused) /** @type {any} */ (node).focus();
    }
    if (!same || known.box.x !== box.x || known.box.y !== box.y) {
      set(node, { transform: `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})` });
    }
    this._tiles.set(name, { node, signature, box });
  }

  /** Tiles for places that moves lead to and that the viewer's map does not show. */
  _ghosts() {
    const known = new Set(this._aggregates.map((each) => each.id));
    /** @type {Map<string, Aggregate>} */
    const ghosts = new Map();
    for (const move of this._moves) {
      const id = this._target(move);
      if (!known.has(id) && !ghosts.has(id) && !this._hostTile(move.target.host)) {
        ghosts.set(id, { id, zone: "elsewhere", name: `a new ${this._scope.replaceAll("_", " ")}`, servers: 0, violations: 0, hosts: null, ghost: true });
      }
    }
    return [...ghosts.values()];
  }

  /** @param {any} move */
  _target(move) {
    return String(move.target[this._scope] ?? move.target.host ?? "another");
  }

  /** @param {string|undefined} name */
  _hostTile(name) {
    return name === undefined ? undefined : this._aggregates.find((each) => each.hosts?.some((h) => h.name === name));
  }

  /**
   * @param {any} move
   * @param {import("./layout.js").Layout} found
   */
  _arrow(move, found) {
    const from = this._whereIs(move.server_id, move.source, found);
    const onHost = found.hosts.find(({ host }) => host.name === move.target.host);
    const inside = found.aggregates.find(({ aggregate }) => aggregate.id === this._target(move));
    const to = onHost?.box ?? inside?.box;
    if (!to || (!from && move.source)) return [];
    const b = middle(to);
    const a = from ? middle(from) : { x: b.x + 34, y: Math.max(6, b.y - 52) };
    const bend = Math.max(30, Math.hypot(b.x - a.x, b.y - a.y) / 4);
    const path = `M${a.x} ${a.y} Q${(a.x + b.x) / 2} ${Math.min(a.y, b.y) - bend} ${b.x} ${b.y}`;
    const state = move.state ?? "planned";
    return [
      svg("path", { d: path, class: `arrow ${state}`, "marker-end": "url(#head)" }),
      svg("circle", { cx: a.x, cy: a.y, r: 4, class: `arrow-start ${state}` }),
    ];
  }

  /**
   * @param {string} serverId
   * @param {any} source
   * @param {import("./layout.js").Layout} found
   */
  _whereIs(serverId, source, found) {
    const on = found.hosts.find(({ host }) => host.servers.some((/** @type {any} */ each) => each.id === serverId));
    const named = found.hosts.find(({ host }) => host.name === source?.host);
    const id = String(source?.[this._scope] ?? "");
    return (on ?? named ?? found.aggregates.find(({ aggregate }) => aggregate.id === id))?.box;
  }

  /** One tile at a time can be reached by Tab; arrow keys go on from there. */
  _rove() {
    const tiles = [...this.svg.querySelectorAll("[role=button]")];
    if (!tiles.some((tile) => tile.getAttribute("tabindex") === "0")) tiles[0]?.setAttribute("tabindex", "0");
  }

  /** @param {Event} event */
  _clicked(event) {
    const target = /** @type {Element} */ (event.target);
    const mark = target.closest("[data-server]");
    const tile = target.closest("[data-host], [data-aggregate]");
    if (mark) this._tell.pick("server", mark.getAttribute("data-server") ?? "");
    else if (tile) this._pick(tile);
  }

  /** @param {Element} tile */
  _pick(tile) {
    const host = tile.getAttribute("data-host");
    if (host !== null) this._tell.pick("host", host);
    else this._tell.pick("aggregate", tile.getAttribute("data-aggregate") ?? "");
  }

  /** @param {KeyboardEvent} event */
  _typed(event) {
    const tile = /** @type {Element} */ (event.target).closest("[role=button]");
    if (!tile) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (event.key === "Enter" || event.key === " ") this._pick(tile);
    else if (step) this._step(tile, step);
    else return;
    event.preventDefault();
  }

  /** @param {Element} tile @param {number} step */
  _step(tile, step) {
    const tiles = [...this.svg.querySelectorAll("[role=button]")];
    const next = tiles[tiles.indexOf(tile) + step];
    if (!next) return;
    tile.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    /** @type {any} */ (next).focus();
  }
}

function defs() {
  return svg(
    "defs",
    {},
    svg(
      "pattern",
      { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 3, height: 7, class: "hatch" }),
    ),
    svg(
      "marker",
      { id: "head", viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0 0 10 5 0 10z", class: "arrow-head" }),
    ),
  );
}

/** @param {Box} box */
function middle(box) {
  return { x: box.x + box.w / 2, y: box.y + box.h / 2 };
}

/** @param {{name: string, box: Box}} zone */
function drawZone({ name, box }) {
  return svg(
    "g",
    { class: name === "elsewhere" ? "zone ghost" : "zone" },
    svg("rect", { width: box.w, height: box.h, rx: 10 }),
    svg("text", { x: 12, y: 19 }, name),
  );
}

/**
 * @param {string} key
 * @param {Aggregate} aggregate
 * @param {Box} box
 * @param {string} scope
 */
function drawAggregate(key, aggregate, box, scope) {
  const open = Boolean(aggregate.hosts);
  const kind = ["aggregate", open && "open", aggregate.violations && "broken", aggregate.ghost && "ghost"];
  const facts = spoken(aggregate, scope);
  return svg(
    "g",
    {
      class: kind.filter(Boolean).join(" "),
      role: "button",
      tabindex: -1,
      "aria-label": facts,
      "aria-expanded": aggregate.host_count === undefined ? null : String(open),
      "data-aggregate": key,
    },
    svg("title", {}, facts),
    svg("rect", { width: box.w, height: box.h, rx: 7, class: "ground" }),
    !open && aggregate.load !== undefined && loadBar(aggregate.load, box),
    !open && aggregate.disabled && svg("rect", { width: box.w, height: 5, y: box.h - 5, fill: "url(#hatch)" }),
    svg("text", { x: 9, y: 15, class: "name" }, fitted(titleOf(aggregate), box.w - 16)),
    !open && !aggregate.ghost && svg("text", { x: 9, y: box.h - 10, class: "figures" }, figures(aggregate)),
  );
}

/** @param {Aggregate} aggregate */
function figures(aggregate) {
  if (aggregate.members !== undefined && aggregate.members > 0) return `${aggregate.members} of ${aggregate.servers}`;
  const load = aggregate.load === undefined ? "" : ` · ${Math.round(aggregate.load * 100)} %`;
  return `${aggregate.servers}${load}`;
}

/** @param {number} load */
function heat(load) {
  if (load >= 0.9) return "full";
  return load >= 0.7 ? "busy" : "calm";
}

/** @param {number} load @param {Box} box */
function loadBar(load, box) {
  return svg("rect", { width: box.w * Math.min(1, load), height: box.h, rx: 7, class: `load ${heat(load)}` });
}

/** @param {string} text @param {number} width */
function fitted(text, width) {
  const most = Math.max(3, Math.floor(width / 6.4));
  return text.length <= most ? text : `…${text.slice(-(most - 1))}`;
}

/**
 * @param {any} host
 * @param {Box} box
 * @param {Emphasis|null} emphasis
 */
function drawHost(host, box, emphasis) {
  const load = loadOf(host);
  const broken = host.servers.some((/** @type {any} */ each) => each.violates);
  const facts = [
    host.vcpus ? `host ${host.name}` : "a host",
    `${host.servers.length} servers`,
    load !== null && `load ${Math.round(load * 100)} percent`,
    !host.enabled && "disabled",
    broken && "breaks rules",
  ].filter(Boolean);
  return svg(
    "g",
    {
      class: ["host", !host.enabled && "disabled", broken && "broken"].filter(Boolean).join(" "),
      role: "button",
      tabindex: -1,
      "aria-label": facts.join(", "),
      "data-host": host.name,
    },
    svg("title", {}, facts.join(", ")),
    svg("rect", { width: box.w, height: box.h, rx: 5, class: "ground" }),
    load !== null && fillBar(load, box),
    !host.enabled && svg("rect", { width: box.w, height: box.h, rx: 5, fill: "url(#hatch)" }),
    ...marks(host.servers, box, emphasis),
  );
}

/** @param {number} load @param {Box} box */
function fillBar(load, box) {
  const height = box.h * Math.min(1, load);
  return svg("rect", { width: box.w, height, y: box.h - height, rx: 5, class: `load ${heat(load)}` });
}

/** The fewer servers, the larger their marks. @param {number} servers @param {Box} box */
function markSize(servers, box) {
  if (box.h < 36) return 5;
  if (servers <= 4 && box.h > 50) return 18;
  return servers <= 9 ? 12 : 8;
}

/**
 * @param {any[]} servers
 * @param {Box} box
 * @param {Emphasis|null} emphasis
 */
function marks(servers, box, emphasis) {
  const size = markSize(servers.length, box);
  const step = size + 3;
  const columns = Math.max(1, Math.floor((box.w - 6) / step));
  const room = columns * Math.max(1, Math.floor((box.h - 6) / step));
  const shown = servers.length > room ? servers.slice(0, Math.max(0, room - 2)) : servers;
  const drawn = shown.map((server, index) =>
    mark(server, 5 + (index % columns) * step, 5 + Math.floor(index / columns) * step, size, emphasis),
  );
  if (shown.length === servers.length) return drawn;
  const more = svg("text", { x: box.w - 4, y: box.h - 4, class: "more" }, `+${servers.length - shown.length}`);
  return [...drawn, more];
}

/**
 * @param {any} server
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {Emphasis|null} emphasis
 */
function mark(server, x, y, size, emphasis) {
  const apart = emphasis !== null && !emphasis.has(server);
  const still = ["active", "stopped", "paused", "suspended", "shelved", "resized"].includes(server.state);
  const kind = ["mark", hueOf(server.server_group_id), server.violates && "broken", apart && "faded"];
  kind.push(server.state === "error" && "failed", !still && server.state !== "error" && "moving");
  return svg(
    "rect",
    { x, y, width: size, height: size, rx: size / 4, class: kind.filter(Boolean).join(" "), "data-server": server.id },
    svg("title", {}, `${server.name} (${server.state})`),
  );
}

export { keyOf };
