// What places are called: by their names where the viewer may know them, else by letters that hold in one answer.

import { titleOf } from "./map.js";

const MADE_UP = /^[0-9a-f]{8}-[0-9a-f]{4}-/;

/** The names of places in one answer. */
export class Places {
  /** @param {import("./fleet.js").Fleet} fleet */
  constructor(fleet) {
    this._fleet = fleet;
    /** @type {Map<string, Map<string, string>>} */
    this._letters = new Map();
  }

  /** @param {string} scope @param {string} id */
  name(scope, id) {
    const tile = scope === this._fleet.scope && this._fleet.aggregates.find((each) => each.id === id);
    if (tile) return titleOf(tile);
    if (!MADE_UP.test(id)) return id;
    const own = !this._fleet.all && this._fleet.scopes.find((each) => each.name === scope)?.named;
    return own ? id.slice(0, 8) : `${scope.replaceAll("_", " ")} ${this._letter(scope, id)}`;
  }

  /** A place by all its scopes, or by its host where that is known. @param {Record<string, string>} place */
  describe({ host, ...rest }) {
    if (host && this._fleet.all) return host;
    const said = Object.entries(rest).map(([scope, id]) => this.name(scope, id));
    return said.join(", ");
  }

  /**
   * From where a server moves and to where. Tenants cannot tell hosts apart: to them it is another one.
   * @param {Record<string, string>} source
   * @param {Record<string, string>} target
   */
  way(source, target) {
    const [from, to] = [this.describe(source), this.describe(target)];
    if (!from || !to) return "from its host to another";
    return from === to ? `to another host in ${to}` : `${from} → ${to}`;
  }

  /** @param {string} scope @param {string} id */
  _letter(scope, id) {
    const known = this._letters.get(scope) ?? new Map();
    this._letters.set(scope, known);
    if (!known.has(id)) known.set(id, letters(known.size));
    return known.get(id);
  }
}

/** A to Z, then AA. @param {number} index @returns {string} */
function letters(index) {
  const last = String.fromCharCode(65 + (index % 26));
  return index < 26 ? last : letters(Math.floor(index / 26) - 1) + last;
}

/**
 * Which members share which places. Hidden identifiers are new in each audit, so they count by the order in which they appear.
 * @param {{instance_id: string, placements: Record<string, string>}[]} members
 */
export function arrangement(members) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  const known = (/** @type {string} */ id) => {
    if (!MADE_UP.test(id)) return id;
    if (!numbers.has(id)) numbers.set(id, numbers.size);
    return numbers.get(id);
  };
  return members.map((each) => [each.instance_id, ...Object.values(each.placements).map(known)]);
}
