// Who is signed in, and requests in their name. The token is shared by the tabs of this browser, and never in an address.

const KEPT = "roost-token";
const VERSIONS = { compute: "compute 2.1003", clustering: "clustering 1.14" };

/** @type {{token: string|null, user: string, project: string, projectId: string, roles: string[]}} */
export const session = { token: null, user: "", project: "", projectId: "", roles: [] };

/** What Roost refused, in its own words. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** There was no answer. */
export class Unreachable extends Error {
  constructor() {
    super("Roost does not answer.");
  }
}

/** @param {string} path */
function headersFor(path) {
  const version = VERSIONS[/** @type {"compute"|"clustering"} */ (path.split("/")[1])];
  return {
    ...(session.token ? { "X-Auth-Token": session.token } : {}),
    ...(version ? { "OpenStack-API-Version": version } : {}),
  };
}

/**
 * One request; the answer itself.
 * @param {string} method
 * @param {string} path
 * @param {{body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [more]
 */
export async function request(method, path, { body, headers = {}, signal } = {}) {
  const response = await fetch(path, {
    method,
    signal,
    cache: "no-store",
    headers: {
      ...headersFor(path),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => {
    throw new Unreachable();
  });
  if (!response.ok) throw new Refused(response.status, await reason(response));
  return response;
}

/** @param {Response} response */
async function reason(response) {
  try {
    const said = await response.json();
    const fault = Object.values(said)[0];
    return said.error?.message ?? /** @type {any} */ (fault)?.message ?? response.statusText;
  } catch {
    return response.statusText;
  }
}

/**
 * What a GET answers.
 * @param {string} path
 */
export async function get(path) {
  return (await request("GET", path)).json();
}

/**
 * What a POST answers.
 * @param {string} path
 * @param {any} body
 */
export async function post(path, body) {
  const text = await (await request("POST", path, { body })).text();
  return text ? JSON.parse(text) : null;
}

/**
 * Sign in with a name and a password, for a project of theirs: the one named, or their first.
 * @param {string} user
 * @param {string} password
 * @param {string} project
 */
export async function signIn(user, password, project) {
  const identity = {
    methods: ["password"],
    password: { user: { name: user, domain: { id: "default" }, password } },
  };
  const scope = project ? { project: { name: project, domain: { id: "default" } } } : undefined;
  await take(await issue(identity, scope));
  if (!session.projectId) await enter(await firstProject());
}

/**
 * Go on with a token that was made elsewhere.
 * @param {string} token
 */
export async function signInWith(token) {
  session.token = token;
  if (!(await resume(token))) throw new Refused(401, "This token is not valid, or not for a project.");
}

/** The projects of the user who is signed in. */
export async function projects() {
  try {
    return (await get("/identity/v3/auth/projects")).projects;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}

/**
 * Work for another project.
 * @param {string} projectId
 */
export async function enter(projectId) {
  await take(await issue({ methods: ["token"], token: { id: session.token } }, { project: { id: projectId } }));
}

/** Whether the user may change things in the project: readers may not. */
export function mayChange() {
  return session.roles.some((role) => ["admin", "manager", "member"].includes(role));
}

/** Whether the user may change hosts, and move servers. */
export function mayOperate() {
  return session.roles.includes("admin");
}

/** Go on with the token that this browser kept, if it is still good. Without an answer, that is not known. */
export async function resume(token = localStorage.getItem(KEPT)) {
  if (!token) return false;
  session.token = token;
  try {
    const answer = await request("GET", "/identity/v3/auth/tokens", { headers: { "X-Subject-Token": token } });
    remember(token, (await answer.json()).token);
    return Boolean(session.projectId);
  } catch (error) {
    if (!(error instanceof Refused) || error.status >= 429) throw error;
    if (error.status === 404 && (await probe(token))) return true;
    forget();
    return false;
  }
}

/** Where Keystone answers for identity, what a token is good for is seen by using it. @param {string} token */
async function probe(token) {
  try {
    const { fleet } = await get("/compute/v2.1/os-fleet");
    remember(token, { user: { name: "" }, project: { name: "", id: "own" }, roles: fleet.all ? [{ name: "admin" }] : [] });
    return true;
  } catch {
    return false;
  }
}

/** Forget the token, here and in Roost. */
export async function signOut() {
  const token = session.token;
  try {
    if (token) await request("DELETE", "/identity/v3/auth/tokens", { headers: { "X-Subject-Token": token } });
  } finally {
    forget();
  }
}

/** Forget the token here. */
export function forget() {
  session.token = null;
  localStorage.removeItem(KEPT);
}

async function firstProject() {
  const [first] = await projects();
  if (!first) throw new Refused(403, "This user has no project.");
  return first.id;
}

/**
 * @param {any} identity
 * @param {any} scope
 */
function issue(identity, scope) {
  return request("POST", "/identity/v3/auth/tokens", { body: { auth: { identity, ...(scope ? { scope } : {}) } } });
}

/** @param {Response} answer */
async function take(answer) {
  remember(/** @type {string} */ (answer.headers.get("X-Subject-Token")), (await answer.json()).token);
}

/**
 * @param {string} secret
 * @param {any} token
 */
function remember(secret, token) {
  session.token = secret;
  session.user = token.user.name;
  session.project = token.project?.name ?? "";
  session.projectId = token.project?.id ?? "";
  session.roles = (token.roles ?? []).map((/** @type {any} */ role) => role.name);
  localStorage.setItem(KEPT, secret);
}
