// What the page knows: the reader's choices (state), what the server serves, and what it said of the input as it is now.

import { debounce } from "./dom.js";
import { aim, question } from "./inputs.js";
import { fromFragment, toFragment } from "./state.js";

export const PAUSE = 300; // ms without a key until the model is asked and the address is written
const COMPARED = ["attnlrp", "attcat", "alti", "rollout"]; // what is compared until the reader chooses
const COMPARED_FIRST = 4;

const nothing = () => ({ whole: null, now: null, explanation: null, played: null, playProblem: null, compared: null });

export const store = {
  state: fromFragment(location.hash),
  models: [],
  methods: [],
  found: nothing(), // whole: the prediction; now: with words hidden; explanation; played: the hiding game; compared
  game: "hiding",
};

export function set(changes) {
  store.state = { ...store.state, ...changes };
  addressLater();
}

// Not at every key: browsers do work, and some ask for the page's icon again, whenever the address changes.
export function writeAddress() {
  addressLater.cancel();
  history.replaceState(null, "", toFragment(store.state));
}

const addressLater = debounce(PAUSE, writeAddress);

export function readAddress() {
  store.state = fromFragment(location.hash);
}

export function forget() {
  store.found = nothing();
}

export const model = () => store.models.find(one => one.name === store.state.model) ?? store.models[0];
export const methodsHere = () => store.methods.filter(one => model().methods.includes(one.name));
export const method = () => (model().methods.includes(store.state.method) ? store.state.method : model().default_method);
export const hidden = () => new Set(store.state.hidden);
export const pieces = () => store.state.view === "pieces";

// What a request says of the input and what is asked about it; null while there is nothing to ask about.
export function asked() {
  const given = question(model(), store.state);
  return given && { ...given, ...aim(store.state) };
}

export function compared() {
  const own = model().methods;
  if (store.state.compare.length) return store.state.compare.filter(name => own.includes(name));
  return [...new Set([method(), ...COMPARED])].filter(name => own.includes(name)).slice(0, COMPARED_FIRST);
}

// The layer whose scores the text shows; null for the method's own score.
export function layerShown() {
  const { state, found } = store;
  const layers = found.explanation?.layers?.length ?? 0;
  return state.tab === "layers" && state.layer !== "" && Number(state.layer) < layers ? Number(state.layer) : null;
}
