// The map: zones, aggregates, hosts and servers as SVG tiles, patched in place when something changed.

import { html, set, svg } from "./dom.js";
import { layout } from "./layout.js";
import { looks, shaped } from "./looks.js";
import { count } from "./words.js";

/** @typedef {import("./layout.js").Aggregate} Aggregate */
/** @typedef {import("./layout.js").Box} Box */
/** @typedef {{name: string, has: (server: any) => boolean, counted?: boolean}} Emphasis */

const GHOSTS = "where it would go";
/** The layer of the hosts. */
const HOSTS = 2;
/** As wide as a letter is, and as tall as a host must be to say its name. */
const LETTER = 6.4;
const LABELLED = 62;
/** How large the mark of a server can be. */
const SIZES = [22, 18, 12, 8, 5];
/** Where arrow keys lead. @type {Record<string, [number, number]>} */
const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
/** What there is to say of an aggregate. @param {Aggregate} each @param {string} scope */
function spoken(each, scope) {
  const kind = scope.replaceAll("_", " ");
  const facts = [titleOf(each).startsWith(`${kind} `) ? titleOf(each) : `${kind} ${titleOf(each)}`];
  if (each.host_count !== undefined) facts.push(count(each.host_count, "host"));
  facts.push(count(each.servers, "server"));
  if (each.load !== undefined) facts.push(`load ${Math.round(each.load * 100)} percent`);
  if (each.disabled) facts.push(`${each.disabled} disabled`);
  if (each.violations) facts.push(`${count(each.violations, "rule")} broken`);
  return facts;
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
    /** @type {(scope: string, id: string) => string} */
    this._nameOf = (_, id) => id;
    /** @type {Map<string, {name: string}>} */
    this._groups = new Map();
    /** What stands out: a name for it, whether a server belongs to it, and whether tiles count it. @type {Emphasis|null} */
    this._emphasis = null;
    /** How it was laid out when last drawn, and for which room. */
    this._laid = layout([], 1, 1);
    this._room = "";
    /** What is drawn of each aggregate and host. @type {WeakMap<any, string>} */
    this._signatures = new WeakMap();
    /** Which looks the marks were drawn with. */
    this._looks = looks.version;
    /** @type {Map<string, {node: SVGElement, signature: string, box: Box}>} */
    this._tiles = new Map();
    this._layers = ["zones", "aggregates", "hosts", "arrows"].map((name) => svg("g", { class: name }));
    this.svg = svg("svg", { class: "map", role: "group", "aria-label": "Map of the fleet", height: 1 }, defs(), ...this._layers);
    this._card = html("div", { class: "hover", hidden: true, "aria-hidden": "true" });
    this._nothing = html("p", { class: "muted", hidden: true }, "There is nothing on the map yet. Servers appear here as they are booted.");
    // As tall as the map. Were it the drawing itself, the browser would lay out all tiles anew whenever one opens.
    this._sheet = html("div", {}, this.svg);
    this._width = 0;
    this.node = html("div", { class: "map-frame" }, this._nothing, this._sheet, this._card);
    this.svg.addEventListener("click", (event) => this._clicked(event));
    this.svg.addEventListener("keydown", (event) => this._typed(/** @type {KeyboardEvent} */ (event)));
    this.svg.addEventListener("pointermove", (event) => this._hovered(/** @type {PointerEvent} */ (event)));
    this.svg.addEventListener("pointerleave", () => set(this._card, { hidden: true }));
    new ResizeObserver(() => this._room !== this._roomNow() && this.draw()).observe(this.node);
  }

  /**
   * Draw these aggregates.
   * @param {string} scope
   * @param {Aggregate[]} aggregates
   * @param {Map<string, {name: string}>} groups
   */
  show(scope, aggregates, groups) {
    this._scope = scope;
    this._aggregates = aggregates;
    this._groups = groups;
    this.draw();
  }

  /** Make some servers stand out from all others; null is all alike. @param {Emphasis|null} emphasis */
  emphasise(emphasis) {
    if (this._emphasis?.name === emphasis?.name) return;
    this._emphasis = emphasis;
    this.svg.classList.toggle("counted", Boolean(emphasis?.counted));
    this.svg.classList.toggle("emphasised", Boolean(emphasis));
    for (const mark of this.svg.querySelectorAll(".mark.meant")) mark.classList.remove("meant");
    if (!emphasis) return;
    for (const { key, host } of this._laid.hosts) {
      for (const { id } of host.servers.filter(emphasis.has)) {
        this._tiles.get(`${HOSTS} ${key}`)?.node.querySelector(`[data-server="${id}"]`)?.classList.add("meant");
      }
    }
  }

  /**
   * Draw moves as arrows before, or while, they happen.
   * @param {any[]} moves
   * @param {(scope: string, id: string) => string} [nameOf] what a place is called that is not on the map
   */
  arrows(moves, nameOf = (_, id) => id) {
    if (!moves.length && !this._moves.length) return;
    this._moves = moves;
    this._nameOf = nameOf;
    this.draw();
  }

  /** A copy of the drawing that stands for itself. */
  copy() {
    const copy = /** @type {Element} */ (this.svg.cloneNode(true));
    const [width, height] = [this._width, this._laid.height];
    set(copy, { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height });
    return copy;
  }

  _roomNow() {
    return `${this.node.clientWidth} ${this.node.clientHeight}`;
  }

  draw() {
    const width = Math.floor(this.node.clientWidth);
    // What is not seen is drawn once it is.
    this._room = width ? this._roomNow() : "";
    if (!width) return;
    const found = layout([...this._aggregates, ...this._ghosts()], width, this.node.clientHeight);
    this._laid = found;
    this._sheet.style.height = `${found.height}px`;
    if (this._width !== width) set(this.svg, { width });
    this._width = width;
    set(this._nothing, { hidden: found.aggregates.length > 0 });
    const kept = new Set();
    for (const zone of found.zones) this._put(kept, 0, `zone ${zone.name}`, zone.box, zone.name, () => drawZone(zone));
    for (const { key, aggregate, box } of found.aggregates) {
      this._put(kept, 1, key, box, this._signatureOf(aggregate), () => drawAggregate(key, aggregate, box, this._scope));
    }
    this._drawHosts(kept);
    for (const [key, tile] of this._tiles) {
      if (!kept.has(key)) {
        tile.node.remove();
        this._tiles.delete(key);
      }
    }
    this._layers[3].replaceChildren(...this._moves.flatMap((move) => this._arrow(move, found)));
    this._rove();
  }

  /** Draw the hosts of the open aggregates, and the servers on them. @param {Set<string>} kept */
  _drawHosts(kept) {
    const nameOf = (/** @type {string} */ id) => this._groups.get(id)?.name;
    if (this._looks !== looks.version) for (const tile of this._tiles.values()) tile.signature = "";
    this._looks = looks.version;
    for (const { key, host, aggregate, box } of this._laid.hosts) {
      this._put(kept, HOSTS, key, box, this._signatureOf(host), () => drawHost(host, titleOf(aggregate), box, this._emphasis, nameOf));
    }
  }

  /** What is drawn of an aggregate or of a host. @param {any} place */
  _signatureOf(place) {
    const known = this._signatures.get(place);
    if (known !== undefined) return known;
    const signature = JSON.stringify("zone" in place ? [this._scope, { ...place, hosts: Boolean(place.hosts) }] : place);
    this._signatures.set(place, signature);
    return signature;
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
        const name = move.target[this._scope] ? this._nameOf(this._scope, id) : id;
        ghosts.set(id, { id, zone: GHOSTS, name, servers: 0, violations: 0, hosts: null, ghost: true });
      }
    }
    return [...ghosts.values()];
  }

  /** @param {any} move */
  _target(move) {
    return String(move.target[this._scope] ?? move.target.host ?? "another place");
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
    const b = { x: to.x + to.w * (from ? 0.5 : 0.7), y: to.y + Math.min(to.h / 2 + 4, 44) };
    const a = from ?? { x: b.x + 20, y: b.y - 24 };
    const bend = from ? Math.max(30, Math.hypot(b.x - a.x, b.y - a.y) / 4) : 8;
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
    const mark = on && this.svg.querySelector(`[data-server="${serverId}"]`);
    if (mark) {
      const at = (/** @type {string} */ name) => Number(mark.getAttribute(name));
      return { x: on.box.x + at("x") + at("width") / 2, y: on.box.y + at("y") + at("height") / 2 };
    }
    const named = found.hosts.find(({ host }) => host.name === source?.host);
    const id = String(source?.[this._scope] ?? "");
    const box = (on ?? named ?? found.aggregates.find(({ aggregate }) => aggregate.id === id))?.box;
    return box && { x: box.x + box.w / 2, y: box.y + box.h / 2 };
  }

  /** One tile at a time can be reached by Tab; arrow keys go on from there. */
  _rove() {
    if (this.svg.querySelector('[role=button][tabindex="0"]')) return;
    this.svg.querySelector("[role=button]")?.setAttribute("tabindex", "0");
  }

  /** @param {Event} event */
  _clicked(event) {
    // What it says is now in the panel, and something else may be drawn under the pointer.
    set(this._card, { hidden: true });
    const target = /** @type {Element} */ (event.target);
    const mark = target.closest("[data-server]");
    const tile = target.closest("[data-host], [data-aggregate]");
    if (mark) this._tell.pick("server", mark.getAttribute("data-server") ?? "");
    else if (tile) this._pick(tile);
  }

  /** Say what is under the pointer, beside it. @param {PointerEvent} event */
  _hovered(event) {
    const said = /** @type {Element} */ (event.target).closest("[data-said]")?.getAttribute("data-said");
    const over = said && event.pointerType === "mouse";
    set(this._card, { hidden: !over });
    if (!over) return;
    this._card.textContent = said;
    const right = Math.min(event.clientX + 14, innerWidth - this._card.offsetWidth - 6);
    const below = Math.min(event.clientY + 14, innerHeight - this._card.offsetHeight - 6);
    Object.assign(this._card.style, { left: `${right}px`, top: `${below}px` });
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
    if (event.key === "Enter" || event.key === " ") this._pick(tile);
    else if (event.key in WAYS) this._step(tile, WAYS[event.key]);
    else return;
    event.preventDefault();
  }

  /** To the nearest tile that way. @param {Element} tile @param {[number, number]} way */
  _step(tile, [dx, dy]) {
    const from = heart(tile);
    let [next, least] = [/** @type {Element|null} */ (null), Infinity];
    for (const each of this.svg.querySelectorAll("[role=button]")) {
      const to = heart(each);
      const along = (to.x - from.x) * dx + (to.y - from.y) * dy;
      const far = along + 5 * Math.abs((to.x - from.x) * dy + (to.y - from.y) * dx);
      if (along > 1 && far < least) [next, least] = [each, far];
    }
    if (!next) return;
    tile.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    /** @type {any} */ (next).focus();
  }
}

/** The point by which arrow keys find a tile: of an aggregate, the middle of its heading. @param {Element} tile */
function heart(tile) {
  const box = /** @type {Element} */ (tile.querySelector(".ground")).getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + (tile.hasAttribute("data-host") ? box.height / 2 : 11) };
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

/** @param {{name: string, box: Box}} zone */
function drawZone({ name, box }) {
  return svg(
    "g",
    { class: name === GHOSTS ? "zone ghost" : "zone" },
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
  if (!open && aggregate.members) kind.push("chosen");
  const facts = spoken(aggregate, scope);
  const title = titleOf(aggregate);
  const button = {
    role: "button",
    tabindex: -1,
    "aria-label": facts.join(", "),
    "aria-expanded": aggregate.host_count === undefined ? null : String(open),
    "data-aggregate": key,
    "data-said": facts.join("\n"),
  };
  return svg(
    "g",
    { class: kind.filter(Boolean).join(" "), ...(aggregate.ghost ? {} : button) },
    svg("rect", { width: box.w, height: box.h, rx: 7, class: "ground" }),
    !open && aggregate.load !== undefined && fillAcross(aggregate.load, box),
    !open && aggregate.disabled && svg("rect", { width: box.w, height: 5, y: box.h - 5, fill: "url(#hatch)" }),
    svg("text", { x: 9, y: 15, class: "name" }, fitted(open ? title : shortName(title, aggregate.zone), box.w - 16, aggregate.zone)),
    !open && !aggregate.ghost && svg("text", { x: 9, y: box.h - 10, class: "figures" }, figures(aggregate, box.w - 16)),
  );
}

/** @param {Aggregate} aggregate @param {number} width */
function figures(aggregate, width) {
  if (aggregate.members) return `${aggregate.members} of ${aggregate.servers}`;
  const load = aggregate.load === undefined ? "" : ` · ${Math.round(aggregate.load * 100)} %`;
  const servers = count(aggregate.servers, "server");
  return fits(servers + load, width) ? servers + load : servers;
}

/** @param {number} load */
function heat(load) {
  if (load >= 0.9) return "full";
  return load >= 0.7 ? "busy" : "calm";
}

/** Load from the left, round where the tile is. @param {number} load @param {Box} box */
function fillAcross(load, box) {
  const wide = box.w * Math.min(1, load);
  const r = Math.min(7, wide);
  const path = `M${r} 0H${wide}V${box.h}H${r}a${r} ${r} 0 0 1 ${-r} ${-r}V${r}a${r} ${r} 0 0 1 ${r} ${-r}z`;
  return svg("path", { d: path, class: `load ${heat(load)}` });
}

/** @param {string} text @param {number} width */
function fits(text, width) {
  return text.length * LETTER <= width;
}

/**
 * A name in the room there is: if need be, without the name of what it is in, or with its end alone.
 * @param {string} name
 * @param {number} width
 * @param {string} inside
 */
function fitted(name, width, inside) {
  const short = fits(name, width) ? name : shortName(name, inside);
  return fits(short, width) ? short : `…${short.slice(-(Math.max(3, Math.floor(width / LETTER)) - 1))}`;
}

/**
 * @param {any} host
 * @param {string} inside
 * @param {Box} box
 * @param {Emphasis|null} emphasis
 * @param {(groupId: string) => string|undefined} nameOf
 */
function drawHost(host, inside, box, emphasis, nameOf) {
  const load = loadOf(host);
  const broken = host.servers.some((/** @type {any} */ each) => each.violates);
  const facts = [
    host.vcpus ? `host ${host.name}` : "a host",
    count(host.servers.length, "server"),
    load !== null && `load ${Math.round(load * 100)} percent`,
    !host.enabled && (host.reason ? `disabled: ${host.reason}` : "disabled"),
    broken && "breaks rules",
  ].filter(Boolean);
  const labelled = load !== null && box.h >= LABELLED;
  return svg(
    "g",
    {
      class: ["host", !host.enabled && "disabled", broken && "broken"].filter(Boolean).join(" "),
      role: "button",
      tabindex: -1,
      "aria-label": facts.join(", "),
      "data-host": host.name,
      "data-said": facts.join("\n"),
    },
    svg("rect", { width: box.w, height: box.h, rx: 5, class: "ground" }),
    load !== null && fillUp(load, box),
    !host.enabled && svg("rect", { width: box.w, height: box.h, rx: 5, fill: "url(#hatch)" }),
    labelled && svg("text", { x: 5, y: box.h - 6, class: "host-name" }, fitted(shortName(host.name, inside), box.w - 6, inside)),
    ...marks(host.servers, labelled ? { ...box, h: box.h - 16 } : box, emphasis, nameOf),
  );
}

/** A name without what the tile around it says. @param {string} name @param {string} inside */
function shortName(name, inside) {
  return name.startsWith(`${inside}-`) ? name.slice(inside.length + 1) : name;
}

/** Load from below, round where the tile is. @param {number} load @param {Box} box */
function fillUp(load, box) {
  const tall = box.h * Math.min(1, load);
  if (tall > box.h - 5) return svg("rect", { width: box.w, height: box.h, rx: 5, class: `load ${heat(load)}` });
  const r = Math.min(5, tall);
  const path = `M0 ${box.h - tall}H${box.w}V${box.h - r}a${r} ${r} 0 0 1 ${-r} ${r}H${r}a${r} ${r} 0 0 1 ${-r} ${-r}z`;
  return svg("path", { d: path, class: `load ${heat(load)}` });
}

/** The largest size in which the marks of all servers fit; else the smallest. @param {number} servers @param {Box} box */
function markSize(servers, box) {
  const fits = (/** @type {number} */ size) => servers <= slots(box.w, size) * slots(box.h, size);
  return SIZES.find((size) => size * 4 < box.h && fits(size)) ?? SIZES[SIZES.length - 1];
}

/** How many marks of a size stand side by side. @param {number} length @param {number} size */
function slots(length, size) {
  return Math.max(1, Math.floor((length - 6) / (size + 3)));
}

/**
 * @param {any[]} servers
 * @param {Box} box
 * @param {Emphasis|null} emphasis
 * @param {(groupId: string) => string|undefined} nameOf
 */
function marks(servers, box, emphasis, nameOf) {
  const size = markSize(servers.length, box);
  const step = size + 3;
  const columns = slots(box.w, size);
  const room = columns * slots(box.h, size);
  const shown = servers.length > room ? servers.slice(0, Math.max(0, room - 2)) : servers;
  const drawn = shown.map((server, index) =>
    mark(server, 5 + (index % columns) * step, 5 + Math.floor(index / columns) * step, size, emphasis, nameOf),
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
 * @param {(groupId: string) => string|undefined} nameOf
 */
function mark(server, x, y, size, emphasis, nameOf) {
  const still = ["active", "stopped", "paused", "suspended", "shelved", "resized"].includes(server.state);
  const { hue, form } = looks.of(server.server_group_id);
  const kind = ["mark", hue, form, server.violates && "broken", emphasis?.has(server) && "meant"];
  kind.push(server.state === "error" && "failed", !still && server.state !== "error" && "moving");
  const group = server.server_group_id && nameOf(server.server_group_id);
  const facts = [server.name, server.state, group && `group ${group}`, server.violates && "breaks a rule"];
  return svg("rect", {
    ...{ ...shaped(form, x, y, size), class: kind.filter(Boolean).join(" ") },
    ...{ "data-server": server.id, "data-said": facts.filter(Boolean).join("\n") },
  });
}
