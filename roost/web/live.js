// The feed of changes: server-sent events read by fetch, so that the token travels in a header.

import { Refused, request } from "./session.js";

const SILENCE = 40_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;

/**
 * Follow changes until stopped. Each time the connection is made, everything may have changed.
 * @param {string} path
 * @param {{changed: (change: any) => void, state: (state: "live"|"lost") => void, refused: () => void}} tell
 * @returns {() => void} stops it
 */
export function follow(path, tell) {
  const stopped = new AbortController();
  keep(path, tell, stopped.signal);
  return () => stopped.abort();
}

/**
 * @param {string} path
 * @param {{changed: (change: any) => void, state: (state: "live"|"lost") => void, refused: () => void}} tell
 * @param {AbortSignal} stopped
 */
async function keep(path, tell, stopped) {
  let pause = FIRST_PAUSE;
  while (!stopped.aborted) {
    try {
      await listen(path, stopped, (name, data) => {
        pause = FIRST_PAUSE;
        if (name === "hello") tell.state("live");
        if (name === "change") tell.changed(data);
      });
    } catch (error) {
      if (stopped.aborted) return;
      if (error instanceof Refused && error.status === 401) return tell.refused();
    }
    if (stopped.aborted) return;
    tell.state("lost");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

/**
 * @param {string} path
 * @param {AbortSignal} stopped
 * @param {(name: string, data: any) => void} heard
 */
async function listen(path, stopped, heard) {
  const given = new AbortController();
  const give = () => given.abort();
  stopped.addEventListener("abort", give);
  let watchdog = setTimeout(give, SILENCE);
  try {
    const response = await request("GET", path, { headers: { Accept: "text/event-stream" }, signal: given.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const text = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(give, SILENCE);
      rest = deliver(rest + text.decode(value, { stream: true }), heard);
    }
  } finally {
    clearTimeout(watchdog);
    stopped.removeEventListener("abort", give);
  }
}

/**
 * Hand over each whole event; what is left is the beginning of the next.
 * @param {string} text
 * @param {(name: string, data: any) => void} heard
 */
function deliver(text, heard) {
  const blocks = text.split("\n\n");
  const rest = /** @type {string} */ (blocks.pop());
  for (const block of blocks) {
    const fields = Object.fromEntries(block.split("\n").map((line) => split(line)));
    heard(fields.event ?? "message", JSON.parse(fields.data ?? "null"));
  }
  return rest;
}

/** @param {string} line */
function split(line) {
  const at = line.indexOf(":");
  return [line.slice(0, at), line.slice(at + 1).trimStart()];
}
