// Numbers, policies and actions in plain words.

/** Several of them. @param {string} scope */
export function nouns(scope) {
  const one = scope.replaceAll("_", " ");
  return /(ch|sh|s|x)$/.test(one) ? `${one}es` : `${one}s`;
}

/**
 * Something counted: "1 server", "3 servers".
 * @param {number} number
 * @param {string} one
 */
export function count(number, one) {
  return `${number} ${number === 1 ? one : nouns(one)}`;
}

/** Types in the order in which a chain asks them, where priorities are equal. */
const ORDER = ["scaling", "region_placement", "batch", "zone_placement", "affinity", "deletion", "loadbalance", "health"];

/** "senlin.policy.zone_placement-1.0" is a zone_placement. @param {string} type */
export function kindOf(type) {
  return type.replace(/-[\d.]+$/, "").split(".").pop() ?? type;
}

/** The policies of a cluster in chain order. @param {any[]} bindings */
export function chain(bindings) {
  const place = (/** @type {any} */ each) => {
    const at = ORDER.indexOf(kindOf(each.policy_type));
    return at < 0 ? ORDER.length : at;
  };
  return [...bindings].sort((a, b) => a.priority - b.priority || place(a) - place(b));
}

/** What an action is called in a sentence. @param {string} name */
export function actionName(name) {
  return name.replace(/^(CLUSTER|NODE)_/, "").replaceAll("_", " ").toLowerCase();
}

/** A reason that names an action, in words. @param {string} reason */
export function reasonOf(reason) {
  const said = reason.replace(/\b(CLUSTER|NODE)_[A-Z_]+\b/g, actionName).replaceAll("_", " ");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

/** How an event left an action. @param {string} status */
export function phase(status) {
  const word = String(status).toLowerCase();
  return { start: "began", end: "ended", error: "failed" }[word] ?? word;
}

/** @param {Record<string, number>} places */
function spread(places) {
  return Object.entries(places)
    .filter(([, number]) => number > 0)
    .map(([name, number]) => `${number} in ${name}`)
    .join(", ");
}

/** @param {any} data @param {string} key */
function growth(data, key) {
  const made = data.creation?.[key];
  const gone = data.deletion?.[key];
  if (made && Object.keys(made).length) return `New nodes go ${spread(made)}.`;
  if (gone && Object.keys(gone).length) return `Nodes leave: ${spread(gone).replaceAll(" in ", " from ")}.`;
  return null;
}

/** @type {Record<string, (data: any) => string|null>} */
const STORIES = {
  scaling: (data) => {
    if (data.creation?.count) return `Adds ${count(data.creation.count, "node")}.`;
    return data.deletion?.count ? `Takes ${count(data.deletion.count, "node")} away.` : null;
  },
  zone_placement: (data) => growth(data, "zones"),
  region_placement: (data) => growth(data, "regions"),
  affinity: (data) => {
    const places = data.placement?.placements;
    return places?.length ? `${count(places.length, "node")} placed in the cluster's server group.` : null;
  },
  deletion: (data) => {
    const gone = data.deletion;
    if (!gone?.candidates?.length) return null;
    const how = gone.destroy_after_deletion === false ? "let go" : "destroyed";
    const wait = gone.grace_period ? ` after ${gone.grace_period} seconds` : "";
    return `Chose ${count(gone.candidates.length, "node")}, to be ${how}${wait}.`;
  },
  batch: (data) => {
    const plan = data.update?.plan;
    if (!plan) return null;
    return `Updates in ${count(plan.length, "batch")}, ${data.update.pause_time ?? 0} seconds apart.`;
  },
  health: (data) => {
    const ways = (data.health?.recover_action ?? []).map((/** @type {any} */ way) => way.name ?? way);
    return ways.length ? `Recovers by ${ways.join(", then ").toLowerCase()}.` : null;
  },
  loadbalance: (data) => (data.deletion?.candidates ? "Takes the nodes that go out of the pool first." : null),
};

/**
 * What a policy had to say in an action.
 * @param {string} type
 * @param {any} action
 */
export function story(type, action) {
  if (!action) return "Has not been asked yet.";
  return STORIES[kindOf(type)]?.(action.data ?? {}) ?? "Nothing to decide.";
}

/** What came of an action, in a sentence. @param {any} action */
export function outcome(action) {
  const data = action.data ?? {};
  if (data.status === "ERROR") return `Refused: ${data.reason ?? action.status_reason}`;
  const done = action.status === "SUCCEEDED";
  const said = [];
  if (data.creation?.count) said.push(`${count(data.creation.count, "node")} ${done ? "came" : "to come"}`);
  if (data.deletion?.count) said.push(`${count(data.deletion.count, "node")} ${done ? "went" : "to go"}`);
  if (data.rebalance?.length) said.push(`${count(data.rebalance.length, "node")} replaced elsewhere`);
  if (!said.length) return action.status_reason;
  return done ? `${said.join(", ")}.` : `${said.join(", ")}. ${action.status_reason}`;
}

/** How far an action has come, from 0 to 1; null when that cannot be said. @param {any} action */
export function progress(action) {
  if (action.status === "SUCCEEDED") return 1;
  const data = action.data ?? {};
  const all = (data.creation?.count ?? 0) + (data.deletion?.count ?? 0);
  if (!all) return null;
  return Math.max(0, Math.min(1, 1 - action.depends_on.length / all));
}

// Made once: the browser takes as long to make one as to write a hundred moments.
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("sv");

/** A moment: the time of day, and the date unless it is today. @param {string|null} text */
export function moment(text) {
  if (!text) return "";
  const when = new Date(/[Z+]/.test(text.slice(10)) ? text : `${text}Z`);
  const day = when.toDateString() === new Date().toDateString() ? "today" : DAY.format(when);
  return `${day} ${TIME.format(when)}`;
}
