// Talking to the server: JSON in, JSON out, errors as sentences; a newer question in the same slot makes the older one stale.

const KEY = "whence-token";
const running = new Map(); // slot → AbortController
let askForToken = async () => null; // set by the page: asks the reader, gives a token or null

export class Refusal extends Error {
  constructor(sentence, status, kind) {
    super(sentence);
    this.status = status;
    this.kind = kind;
  }
}

export const keepToken = token => sessionStorage.setItem(KEY, token);

export const onTokenNeeded = ask => { askForToken = ask; };

export const get = path => request(path, {}).then(answer => answer.json());

// The answer, or null when a newer question has taken the slot.
export const post = (path, body, slot = path) => inSlot(slot, signal => send(path, body, signal).then(answer => answer.json()));

export const postForBlob = (path, body) => send(path, body).then(answer => answer.blob());

export function drop(slot) {
  running.get(slot)?.abort();
  running.delete(slot);
}

async function inSlot(slot, call) {
  drop(slot);
  const control = new AbortController();
  running.set(slot, control);
  try {
    const answer = await call(control.signal);
    return running.get(slot) === control ? answer : null;
  } catch (error) {
    if (control.signal.aborted) return null;
    throw error;
  } finally {
    if (running.get(slot) === control) running.delete(slot);
  }
}

const send = (path, body, signal) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

async function request(path, options, again = false) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refusal("The server does not answer. Is whence serve still running?", 0, "unreachable");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) {
    const given = sessionStorage.getItem(KEY) === token ? await askForToken(again || token !== null) : true;
    if (given) {
      if (typeof given === "string") keepToken(given);
      return request(path, options, true);
    }
  }
  throw await refusal(answer);
}

async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  const sentence = said.error ?? `The server answered ${answer.status} ${answer.statusText}.`;
  return new Refusal(sentence, answer.status, said.kind ?? "error");
}
