// Where each tile goes: pure arithmetic, from what is in the fleet and the width there is.

/**
 * @typedef {{id: string, zone: string, name: string|null, servers: number, violations: number, hosts: any[]|null,
 *   host_count?: number, disabled?: number, load?: number, members?: number, ghost?: boolean}} Aggregate
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{zones: {name: string, box: Box}[], aggregates: {key: string, aggregate: Aggregate, box: Box}[],
 *   hosts: {key: string, host: any, aggregate: Aggregate, box: Box}[], height: number}} Layout
 */

const GAP = 8;
const PAD = 10;
const ZONE_HEAD = 28;
const RACK_HEAD = 22;
const CLOSED = { w: 92, h: 52 };
const NARROWEST_ZONE = 300;

/**
 * The key under which a tile is found again.
 * @param {Aggregate} aggregate
 */
export function keyOf(aggregate) {
  return `${aggregate.zone}/${aggregate.id}`;
}

/**
 * How large a host may be drawn, the smallest first: the more are opened at once, the smaller.
 * @param {number} open
 * @param {number} width
 */
function hostSizes(open, width) {
  if (!open) return [{ w: 58, h: 38 }];
  if (open > 400) return [{ w: 20, h: 20 }];
  if (open > 64) return [{ w: 40, h: 40 }];
  const heights = width > 600 ? [62, 76, 92, 108, 126, 144] : [38];
  return heights.map((h) => ({ w: 58, h }));
}

/**
 * Lay out zones in columns, the aggregates in a zone in rows, the hosts of an opened aggregate in a square; hosts as large
 * as all fit into the height there is.
 * @param {Aggregate[]} aggregates
 * @param {number} width
 * @param {number} tall
 * @returns {Layout}
 */
export function layout(aggregates, width, tall) {
  const open = aggregates.reduce((sum, each) => sum + (each.hosts?.length ?? 0), 0);
  const [smallest, ...larger] = hostSizes(open, width);
  const loaded = aggregates.some((each) => each.load !== undefined);
  let found = flow(aggregates, width, smallest);
  // Height is there to show load by; a tenant's hosts have none.
  for (const size of larger) {
    const next = flow(aggregates, width, size);
    if (!loaded || next.height > tall) break;
    found = next;
  }
  return found;
}

/**
 * @param {Aggregate[]} aggregates
 * @param {number} width
 * @param {{w: number, h: number}} size
 * @returns {Layout}
 */
function flow(aggregates, width, size) {
  const zones = Map.groupBy ? Map.groupBy(aggregates, (each) => each.zone) : grouped(aggregates);
  const columns = Math.max(1, Math.min(zones.size, Math.floor((width + GAP) / (NARROWEST_ZONE + GAP))));
  const zoneWidth = (width - GAP * (columns - 1)) / columns;
  const bottoms = new Array(columns).fill(0);
  /** @type {Layout} */
  const found = { zones: [], aggregates: [], hosts: [], height: 0 };
  for (const [name, inside] of [...zones].sort(inOrder)) {
    const column = bottoms.indexOf(Math.min(...bottoms));
    const x = column * (zoneWidth + GAP);
    const y = bottoms[column];
    const height = placeZone(found, inside, { x, y, w: zoneWidth, h: 0 }, size);
    found.zones.push({ name, box: { x, y, w: zoneWidth, h: height } });
    bottoms[column] = y + height + GAP;
  }
  found.height = Math.max(0, ...bottoms) || 40;
  return found;
}

/**
 * Zones by name, numbers in them as numbers; what would be comes last.
 * @param {[string, Aggregate[]]} a
 * @param {[string, Aggregate[]]} b
 */
function inOrder([a, inA], [b, inB]) {
  return Number(inA[0].ghost ?? false) - Number(inB[0].ghost ?? false) || a.localeCompare(b, "en", { numeric: true });
}

/** @param {Aggregate[]} aggregates */
function grouped(aggregates) {
  /** @type {Map<string, Aggregate[]>} */
  const found = new Map();
  for (const each of aggregates) found.set(each.zone, [...(found.get(each.zone) ?? []), each]);
  return found;
}

/**
 * Flow the tiles of a zone into rows; its height.
 * @param {Layout} found
 * @param {Aggregate[]} inside
 * @param {Box} zone
 * @param {{w: number, h: number}} size
 */
function placeZone(found, inside, zone, size) {
  const right = zone.x + zone.w - PAD;
  const widest = zone.w - 2 * PAD;
  let x = zone.x + PAD;
  let y = zone.y + ZONE_HEAD;
  let row = 0;
  const stretch = evenly(inside, widest, size);
  for (const aggregate of inside) {
    const { w, h, columns } = measure(aggregate, widest, size, stretch);
    if (x + w > right + 0.5 && x > zone.x + PAD) {
      x = zone.x + PAD;
      y += row + GAP;
      row = 0;
    }
    const box = { x, y, w, h };
    found.aggregates.push({ key: keyOf(aggregate), aggregate, box });
    placeHosts(found, aggregate, box, columns, size);
    x += w + GAP;
    row = Math.max(row, h);
  }
  return y + row + PAD - zone.y;
}

/**
 * The width that lets tiles of one kind fill their rows, for closed ones and for open ones.
 * @param {Aggregate[]} inside
 * @param {number} widest
 * @param {{w: number, h: number}} size
 */
function evenly(inside, widest, size) {
  const even = (/** @type {Aggregate[]} */ some) => {
    const natural = Math.max(1, ...some.map((each) => measure(each, widest, size, { open: 0, closed: 0 }).w));
    const fitting = Math.max(1, Math.floor((widest + GAP) / (natural + GAP)));
    return (widest - GAP * (fitting - 1)) / fitting;
  };
  return { open: even(inside.filter((each) => each.hosts)), closed: even(inside.filter((each) => !each.hosts)) };
}

/**
 * @param {Aggregate} aggregate
 * @param {number} widest
 * @param {{w: number, h: number}} size
 * @param {{open: number, closed: number}} stretch
 */
function measure(aggregate, widest, size, stretch) {
  if (!aggregate.hosts) return { w: stretch.closed || CLOSED.w, h: CLOSED.h, columns: 0 };
  const count = Math.max(1, aggregate.hosts.length);
  const most = Math.max(1, Math.floor((widest - 2 * PAD + 4) / (size.w + 4)));
  const columns = Math.min(most, Math.max(2, Math.ceil(Math.sqrt(count))));
  const rows = Math.ceil(count / columns);
  const w = Math.max(stretch.open, columns * (size.w + 4) - 4 + 2 * PAD);
  return { w: Math.min(w, widest), h: RACK_HEAD + rows * (size.h + 4) - 4 + PAD, columns };
}

/**
 * @param {Layout} found
 * @param {Aggregate} aggregate
 * @param {Box} box
 * @param {number} columns
 * @param {{w: number, h: number}} size
 */
function placeHosts(found, aggregate, box, columns, size) {
  const wide = columns ? (box.w - 2 * PAD + 4) / columns - 4 : size.w;
  (aggregate.hosts ?? []).forEach((host, index) => {
    found.hosts.push({
      key: `${keyOf(aggregate)}/${host.name}`,
      host,
      aggregate,
      box: {
        x: box.x + PAD + (index % columns) * (wide + 4),
        y: box.y + RACK_HEAD + Math.floor(index / columns) * (size.h + 4),
        w: wide,
        h: size.h,
      },
    });
  });
}
