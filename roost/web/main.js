// The page: sign in, one map, one panel beside it, and changes as they happen.

import { Clusters } from "./clusters.js";
import { html, part, refill, say } from "./dom.js";
import { Feed } from "./feed.js";
import { Fleet } from "./fleet.js";
import { Groups } from "./groups.js";
import { Lists } from "./lists.js";
import { follow } from "./live.js";
import { looks, repaint } from "./looks.js";
import { FleetMap } from "./map.js";
import { Overview } from "./overview.js";
import { searchField } from "./search.js";
import { enter, forget, projects, Refused, resume, session, signIn, signInWith, signOut, Unreachable } from "./session.js";
import { loadTroubles } from "./troubles.js";
import { count } from "./words.js";

const SCOPE = "roost-scope";
const BETWEEN_COUNTS = 3_000;
/** Nobody tells of an engine that has died: then it is counted, and shown, again. */
const COUNTED_ANYWAY = 60_000;
const AGAIN = 2_000;
/** How long a view rests between two changes, unless it says so itself. */
const PAUSE = 300;
const ENDED = "Your session has ended. Sign in again to go on where you were.";
const narrow = matchMedia("(max-width: 900px)");

/** Everything on the page of a signed-in user. */
class Page {
  constructor() {
    this.map = new FleetMap({ pick: (kind, id) => this._picked(kind, id) });
    this.fleet = new Fleet(() => this._fleetChanged());
    this._views = {
      overview: new Overview(this),
      lists: new Lists(this),
      groups: new Groups(this),
      clusters: new Clusters(this),
      feed: new Feed(this),
    };
    /** @type {any} */
    this._view = null;
    this._panel = html("section", { id: "panel", class: "panel", tabindex: -1, "aria-label": "Details" });
    this._scopes = /** @type {HTMLSelectElement} */ (
      html("select", { id: "scope", change: () => this._divide().catch(failed) })
    );
    /** What the signs on the map are for that are explained. @type {string|undefined} */
    this._explained = undefined;
    this._key = html("ul", { class: "key", "aria-label": "Signs on the map" });
    this._routed = () => this._route();
    this._stop = () => {};
    /** What the view has not been told yet. @type {any} */
    this._news = null;
    this._telling = false;
    this._closed = false;
    /** Ends the view's rest. @type {(woken?: any) => void} */
    this._wake = () => {};
    /** How many rules were broken when last drawn. @type {number|undefined} */
    this._broken = undefined;
    /** Whether the view could not be opened: then the next news are a reason to try again. */
    this._missed = false;
    /** How many things are wrong, and when they were counted. */
    this._wrong = 0;
    this._counted = -BETWEEN_COUNTS;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this._counting = undefined;
    /** Where the view draws. @type {Element|undefined} */
    this._sheet = undefined;
  }

  async open() {
    const tools = html(
      "div",
      { class: "tools" },
      html("label", { for: "scope" }, "Divide by "),
      this._scopes,
      this._key,
    );
    part("main").replaceChildren(
      html("h1", { class: "unseen" }, "Roost"),
      html("section", { class: "stage", "aria-label": "Map" }, tools, this.map.node),
      this._panel,
    );
    for (const name of ["tabs", "skip"]) part(name).hidden = false;
    part("finder").replaceChildren(searchField());
    window.addEventListener("hashchange", this._routed);
    await this._first();
    await this._route();
    this._count();
  }

  close() {
    this._closed = true;
    this._stop();
    clearTimeout(this._counting);
    window.removeEventListener("hashchange", this._routed);
  }

  /** The scope that was chosen the last time, or racks, or whatever there is. */
  async _first() {
    const kept = localStorage.getItem(SCOPE) ?? "rack";
    try {
      await this.fleet.divide(kept);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) throw error;
      await this.fleet.divide("");
    }
    const options = this.fleet.scopes.map(({ name }) => html("option", { value: name }, name.replaceAll("_", " ")));
    this._scopes.replaceChildren(...options);
    this._scopes.value = this.fleet.scope;
    this._follow();
  }

  async _divide() {
    localStorage.setItem(SCOPE, this._scopes.value);
    await this.fleet.divide(this._scopes.value);
    this._follow();
  }

  _follow() {
    this._stop();
    let first = true;
    this._stop = follow(`/compute/v2.1/os-fleet/events?scope=${encodeURIComponent(this.fleet.scope)}`, {
      changed: (change) => {
        // The first change says that anything may have happened before we listened; we have only just looked.
        timed("roost:told");
        if (change.aggregates !== undefined) this.fleet.refresh(change.aggregates).catch(failed);
        this._count();
        if (this._missed) this._route();
        else this._tell(change);
      },
      state: (state) => {
        if (!first || state === "live") tellLive(state);
        first = false;
      },
      refused: () => signedOut(ENDED),
    });
  }

  /** Tell the view what changed, and that the map was drawn: at once, then together what comes meanwhile. @param {any} change */
  async _tell(change) {
    this._news = merged(this._news, change);
    if (this._telling) return;
    this._telling = true;
    // What comes after the user has signed out is asked for by nobody.
    while (this._news && !this._closed) {
      const { drawn, ...news } = this._news;
      this._news = null;
      if (Object.keys(news).length) await this._view?.changed?.(news)?.catch(failed);
      if (drawn !== undefined) await this._view?.fleetChanged?.()?.catch(failed);
      await new Promise((woken) => {
        this._wake = woken;
        setTimeout(woken, this._view?.pause ?? PAUSE);
      });
    }
    this._telling = false;
  }

  _fleetChanged() {
    looks.show(this.fleet.groups.keys());
    repaint(this._panel);
    this._explain();
    this.map.show(this.fleet.scope, this.fleet.aggregates, this.fleet.groups);
    timed("roost:drawn");
    part("trouble").hidden = true;
    const broken = this.fleet.violationCount;
    if (this._broken !== undefined && broken !== this._broken) say(broken ? `${count(broken, "rule")} broken` : "Every rule holds");
    this._broken = broken;
    this._tell({ drawn: null });
  }

  /** Say what the signs on the map mean. */
  _explain() {
    const now = `${this.fleet.all} ${looks.crowded}`;
    if (now !== this._explained) refill(this._key, key(this.fleet.all));
    this._explained = now;
  }

  async _route() {
    const { hash } = location;
    const [place, asked = ""] = hash.replace(/^#\/?/, "").split("?");
    const path = place.split("/").map(decodeURIComponent).filter(Boolean);
    const name = path[0] in this._views && path[0] !== "overview" ? path[0] : "overview";
    const view = this._views[/** @type {keyof Page["_views"]} */ (name)];
    if (this._view && this._view !== view) this._view.close?.();
    this._view = view;
    this._wake();
    mark(name);
    part("main").classList.toggle("panel-first", true);
    this._name(view.title);
    // Each page has a sheet of its own: what is answered after the user went on is drawn where it is not seen.
    const sheet = html("div", {});
    this._sheet = sheet;
    try {
      await view.open(name === "overview" ? path : path.slice(1), sheet, new URLSearchParams(asked));
      if (this._sheet !== sheet) return;
      this._missed = false;
      part("main").classList.toggle("panel-wide", name === "lists" || name === "feed");
      refill(this._panel, [sheet]);
      this._panel.dataset.at = hash;
      this._panel.scrollTop = 0;
    } catch (error) {
      if (this._sheet !== sheet) return;
      this._missed = true;
      failed(error, this._panel);
    }
  }

  /** The title counts what is wrong, for a tab that is open all day. @param {string} title */
  _name(title) {
    document.title = `${this._wrong ? `(${this._wrong}) ` : ""}${title} – Roost`;
  }

  /** Count what is wrong, now that something may have changed, or later: no more often than every few seconds. @param {number} [pause] */
  _count(pause = BETWEEN_COUNTS) {
    clearTimeout(this._counting);
    const next = async () => {
      this._counted = performance.now();
      this._count(COUNTED_ANYWAY);
      // Without an answer the title stays: what failed is said elsewhere.
      this._wrong = (await loadTroubles().catch(() => ({ total: this._wrong }))).total;
      if (page !== this) return;
      this._name(this._view?.title ?? "Roost");
      if (pause === COUNTED_ANYWAY) this._tell({ drawn: null });
    };
    this._counting = setTimeout(next, Math.max(0, this._counted + pause - performance.now()));
  }

  /** Open what was picked on the map, and then its page, which reads it from there. @param {string} kind @param {string} id */
  async _picked(kind, id) {
    const { hash } = location;
    const tile = kind === "aggregate" && this.fleet.aggregates.find((each) => `${each.zone}/${each.id}` === id);
    if (tile && !tile.hosts && this.fleet.all) await this.fleet.toggle(tile.id).catch(failed);
    if (location.hash !== hash) return;
    const target = `#/${kind}/${encodeURIComponent(id)}`;
    if (location.hash === target) this._route();
    else location.hash = target;
    if (narrow.matches) this._panel.scrollIntoView();
  }
}

/** Note the time for those who measure; of the same thing the last time only, since a tab stays open for days. @param {string} name */
function timed(name) {
  performance.clearMarks(name);
  performance.mark(name);
}

/** Two changes as one: of each kind the ids, or null for all of them. @param {any} before @param {any} after */
function merged(before, after) {
  const both = { ...before, ...after };
  for (const kind of Object.keys(before ?? {})) {
    if (kind in after) both[kind] = before[kind] && after[kind] && [...new Set([...before[kind], ...after[kind]])];
  }
  return both;
}

/** @param {string} name */
function mark(name) {
  const hrefs = { overview: "#/", lists: "#/lists/servers", groups: "#/groups", clusters: "#/clusters", feed: "#/feed" };
  for (const link of part("tabs").querySelectorAll("a")) {
    const here = link.getAttribute("href") === hrefs[/** @type {keyof typeof hrefs} */ (name)];
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** What the signs on the map mean; those of hosts are for operators. @param {boolean} all */
function key(all) {
  const words = [
    ["hue-0", "server, by group"],
    ["alone", "in no group"],
    ...(looks.crowded ? [["crowded", "in one of many more groups"]] : []),
    ...(all ? [["load", "load"], ["off", "disabled"]] : []),
    ["glow", "breaks a rule"],
  ];
  return words.map(([kind, word]) => html("li", {}, html("span", { class: `sign ${kind}` }), word));
}

/** @param {"live"|"lost"} state */
function tellLive(state) {
  const node = part("live");
  node.hidden = false;
  node.className = `live ${state}`;
  node.textContent = state === "live" ? "live" : "connection lost, trying again";
}

/** @param {unknown} error @param {HTMLElement} [panel] */
function failed(error, panel) {
  if (error instanceof Refused && error.status === 401) return signedOut(ENDED);
  const said = /** @type {Error} */ (error).message;
  if (panel) return panel.replaceChildren(html("h2", {}, said));
  // That the connection is lost is said already.
  part("trouble").hidden = error instanceof Unreachable;
  refill(part("trouble"), [said]);
}

// Signing in and out

/** @type {Page|null} */
let page = null;

async function signedIn() {
  page = new Page();
  await who();
  await page.open();
}

/** @param {string} [message] */
function signedOut(message = "") {
  page?.close();
  page = null;
  forget();
  for (const name of ["tabs", "skip"]) part(name).hidden = true;
  part("finder").replaceChildren();
  part("live").hidden = true;
  document.title = "Roost";
  part("who").replaceChildren();
  part("main").replaceChildren(door(message));
  part("user")?.focus();
}

async function who() {
  const mine = await projects();
  const change = html(
    "select",
    {
      "aria-label": "Project",
      change: (event) => {
        const chosen = /** @type {HTMLSelectElement} */ (event.target).value;
        enter(chosen).then(() => page?.close()).then(signedIn).catch(failed);
      },
    },
    ...mine.map((/** @type {any} */ each) => html("option", { value: each.id, selected: each.id === session.projectId }, each.name)),
  );
  part("who").replaceChildren(
    html("span", {}, session.user),
    mine.length > 1 ? change : html("span", { class: "muted" }, session.project),
    html("button", { type: "button", click: () => (page?.close(), signOut().finally(() => signedOut())) }, "Sign out"),
  );
}

/** @param {string} message */
function door(message) {
  const said = html("p", { class: "bad-text", role: "alert" }, message);
  const form = html(
    "form",
    { class: "door" },
    html("h1", {}, "Sign in"),
    field("user", "User", { autocomplete: "username", required: true }),
    field("password", "Password", { type: "password", autocomplete: "current-password", required: true }),
    field("project", "Project", { placeholder: "your first one" }),
    html("button", { class: "main" }, "Sign in"),
    said,
    html("p", { class: "muted" }, "The users of a ", html("code", {}, "roost serve"), " are in its ", html("code", {}, "clouds.yaml"), "."),
    tokenDoor(said),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (part(id)).value;
    await through(said, () => signIn(given("user"), given("password"), given("project")));
  });
  return form;
}

/** @param {HTMLElement} said @param {() => Promise<void>} way */
async function through(said, way) {
  said.textContent = "";
  const busy = said.closest("form")?.querySelector("button.main");
  if (busy?.hasAttribute("aria-busy")) return;
  busy?.setAttribute("aria-busy", "true");
  try {
    await way();
    await signedIn();
  } catch (error) {
    said.textContent = error instanceof Error ? error.message : String(error);
  } finally {
    busy?.removeAttribute("aria-busy");
  }
}

/** For tokens that come from a Keystone. @param {HTMLElement} said */
function tokenDoor(said) {
  const token = () => /** @type {HTMLInputElement} */ (part("token")).value.trim();
  return html(
    "details",
    {},
    html("summary", {}, "Use a token instead"),
    field("token", "Token", { type: "password", autocomplete: "off" }),
    html("button", { type: "button", click: () => through(said, () => signInWith(token())) }, "Go on"),
  );
}

/** @param {string} id @param {string} name @param {import("./dom.js").Attributes} more */
function field(id, name, more) {
  return html("p", {}, html("label", { for: id }, name), html("input", { id, ...more }));
}

// A plain link would be taken for a view.
part("skip").addEventListener("click", (event) => {
  event.preventDefault();
  part("panel")?.focus();
});

/** Begin with the session that this browser has, once Roost answers. */
async function begin() {
  try {
    if (await resume()) await signedIn();
    else signedOut();
  } catch (error) {
    page?.close();
    part("main").replaceChildren(html("p", { role: "status" }, `${/** @type {Error} */ (error).message} Trying again.`));
    setTimeout(begin, AGAIN);
  }
}

await begin();
