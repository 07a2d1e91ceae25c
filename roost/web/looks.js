// What tells groups apart on the map: no two that are shown at once look the same, and each keeps its look.

import { html } from "./dom.js";

const KEPT = "roost-looks";
/** Of how many groups this browser remembers the looks. */
const REMEMBERED = 500;
/** How many colours there are of each kind: plain, light and dark. */
const HUES = 10;
const KINDS = 3;
const FORMS = ["square", "diamond", "upright", "flat"];
/** In no group. */
const ALONE = "alone";
/** In one of more groups than there are looks. */
const CROWDED = "crowded";

/** Every look, those that are easiest to tell apart first. */
const LOOKS = Array.from({ length: KINDS * FORMS.length * HUES }, (_, place) => {
  const [kind, form] = [Math.floor(place / HUES / FORMS.length), Math.floor(place / HUES) % FORMS.length];
  return { hue: `hue-${kind * HUES + (place % HUES)}`, form: FORMS[form] };
});

/** Which group looks how. */
export class Looks {
  /** @param {Storage} store where they are remembered */
  constructor(store = localStorage) {
    this._store = store;
    /** The places in the list of looks, by group: of those that were shown last. @type {Map<string, number>} */
    this._places = new Map(read(store));
    /** @type {Set<string>} */
    this._shown = new Set();
    /** How often a group that was shown already has got another look. */
    this.version = 0;
  }

  /** Whether there are more groups than looks. */
  get crowded() {
    return this._shown.size > LOOKS.length;
  }

  /**
   * These groups are shown from now on, and no others. Who had a look keeps it, unless another that is shown has it.
   * @param {Iterable<string>} groupIds
   */
  show(groupIds) {
    const before = this._shown;
    this._shown = new Set(groupIds);
    if (before.size === this._shown.size && [...before].every((each) => this._shown.has(each))) return;
    const taken = new Set();
    const without = [];
    // Who was there first has the first claim; of those that come together, the order is always the same.
    const ordered = [...this._shown].sort((a, b) => Number(before.has(b)) - Number(before.has(a)) || (a < b ? -1 : 1));
    for (const id of ordered) {
      const place = this._places.get(id);
      if (place === undefined || taken.has(place)) without.push(id);
      else taken.add(place);
    }
    for (const id of without) {
      const place = free(id, taken);
      if (before.has(id) && place !== undefined) this.version++;
      if (place === undefined) this._places.delete(id);
      else this._places.set(id, place), taken.add(place);
    }
    this._remember();
  }

  /** How a group looks, if it is shown. @param {string|null} groupId */
  of(groupId) {
    if (!groupId) return { hue: ALONE, form: FORMS[0] };
    const place = this._shown.has(groupId) ? this._places.get(groupId) : undefined;
    return place === undefined ? { hue: CROWDED, form: FORMS[0] } : LOOKS[place];
  }

  /** Keep the looks of those that are shown, and of those that were shown last. */
  _remember() {
    for (const id of this._shown) {
      const place = this._places.get(id);
      if (place === undefined) continue;
      this._places.delete(id);
      this._places.set(id, place);
    }
    for (const id of this._places.keys()) {
      if (this._places.size <= REMEMBERED) break;
      this._places.delete(id);
    }
    this._store.setItem(KEPT, JSON.stringify([...this._places]));
  }
}

/** The look that a group would have alone, or the next that is free. @param {string} id @param {Set<any>} taken */
function free(id, taken) {
  if (taken.size >= LOOKS.length) return undefined;
  const wanted = parseInt(id.slice(0, 8), 16) % HUES || 0;
  for (let first = 0; first < LOOKS.length; first += HUES) {
    for (let step = 0; step < HUES; step++) {
      const place = first + ((wanted + step) % HUES);
      if (!taken.has(place)) return place;
    }
  }
  return undefined;
}

/** What is remembered; nothing, if it cannot be read. @param {Storage} store @returns {[string, number][]} */
function read(store) {
  try {
    const kept = JSON.parse(store.getItem(KEPT) ?? "[]");
    return kept.filter((/** @type {any} */ each) => typeof each[0] === "string" && each[1] in LOOKS);
  } catch {
    return [];
  }
}

/** The looks on this page. */
export const looks = new Looks();

/** Where a mark of some size goes, in its form. @param {string} form @param {number} x @param {number} y @param {number} size */
export function shaped(form, x, y, size) {
  if (form === "upright") return { x: x + size * 0.22, y, width: size * 0.56, height: size, rx: size / 8 };
  if (form === "flat") return { x, y: y + size * 0.22, width: size, height: size * 0.56, rx: size / 8 };
  if (form !== "diamond") return { x, y, width: size, height: size, rx: size / 4 };
  const [side, middle] = [size * 0.74, size / 2];
  const inset = (size - side) / 2;
  const turned = `rotate(45 ${x + middle} ${y + middle})`;
  return { x: x + inset, y: y + inset, width: side, height: side, rx: size / 16, transform: turned };
}

/** The look of a group beside its name, as it is on the map. @param {string|null} groupId */
export function swatch(groupId) {
  const node = html("span", { "data-group": groupId ?? "" });
  paint(node);
  return node;
}

/** Draw the looks beside names anew. @param {ParentNode} place */
export function repaint(place) {
  for (const each of place.querySelectorAll(".swatch")) paint(each);
}

/** @param {Element} node */
function paint(node) {
  const { hue, form } = looks.of(node.getAttribute("data-group") || null);
  node.className = `swatch ${hue} ${form}`;
}
