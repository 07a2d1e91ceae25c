// Moves that the engine carries out, of a repair or of a drain: how far they have come, paused and stopped from here.

import { button } from "./answers.js";
import { html, set } from "./dom.js";
import { get, mayOperate, request, Unreachable } from "./session.js";
import { count } from "./words.js";

const POLL = 700;
const UNDER_WAY = ["running", "stopping"];

/** Whether moves are still to come, or under way. @param {any} work */
export function isUnderWay(work) {
  return UNDER_WAY.includes(work.status);
}

/**
 * Show how far it has come, until it ends or nobody looks any more. It goes on when this page is closed.
 * @param {string} path its address in the API
 * @param {"repair"|"drain"} kind
 * @param {{tell: (...content: any[]) => void, still: () => boolean, seen: (left: any[]) => void}} page
 */
export async function followMoves(path, kind, { tell, still, seen }) {
  const read = async () => (await get(path))[kind];
  let work = await read();
  const said = html("p", {});
  const bar = html("progress", { "aria-label": kind === "repair" ? "Repair" : "Drain" });
  const pause = button("Pause", () => request("PUT", path, { body: { [kind]: { paused: !work.paused } } }));
  const buttons = html("p", { class: "buttons" }, pause, button("Stop", () => request("DELETE", path)));
  const note = html("p", { class: "muted" }, "The engine does this; you can close the page.");
  tell(said, bar, mayOperate() && buttons, note);
  while (isUnderWay(work)) {
    const left = work.moves.filter((/** @type {any} */ each) => ["waiting", "running"].includes(each.state));
    const done = work.moves.length - left.length;
    seen(left);
    const doing = work.paused ? "Paused" : kind === "repair" ? "Repairing" : "Draining";
    said.textContent = `${doing}: ${done} of ${count(work.moves.length, "move")} done.`;
    set(bar, { max: work.moves.length, value: done });
    pause.textContent = work.paused ? "Go on" : "Pause";
    await new Promise((woken) => setTimeout(woken, POLL));
    if (!still()) return;
    work = await read().catch((error) => {
      if (error instanceof Unreachable) return work;
      throw error;
    });
  }
  if (!still()) return;
  seen([]);
  const name = kind === "repair" ? "Repair" : "Drain";
  tell(html("p", { class: work.status === "done" ? "good" : "bad-text" }, `${name} ${work.status}: ${work.sentence}`));
}
