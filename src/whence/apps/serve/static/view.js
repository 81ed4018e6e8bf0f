// Draws what the store holds. `act` is what the reader can do (see app.js): typed, aimed, take, hide, use, choose…

import { drawChoice, drawRows } from "./compare.js";
import { byId, fill, make } from "./dom.js";
import { drawExamples } from "./examples.js";
import { drawExplanation } from "./explanation.js";
import { drawHide } from "./hide.js";
import { drawInputs, drawTargets } from "./inputs.js";
import { drawLayers } from "./layers.js";
import { showPrediction } from "./prediction.js";
import { compared, hidden, layerShown, method, methodsHere, model, pieces, store } from "./store.js";

const targetBoxes = { target: byId("target-field"), contrast: byId("contrast-field") };

export function busy(is) {
  byId("explanation").setAttribute("aria-busy", String(is));
  byId("prediction").setAttribute("aria-busy", String(is));
}

// One of: nothing typed yet, a problem, an explanation.
function showOnly(id) {
  for (const one of ["empty", "problem", "explanation"]) byId(one).hidden = one !== id;
}

export function showEmpty() {
  busy(false);
  showOnly("empty");
  showPrediction(null);
}

// again: what "Try again" does; it is offered where the same question may get another answer
export function showProblem(error, again) {
  busy(false);
  showOnly("problem");
  if (!store.found.whole) showPrediction(null);
  const hopeful = error.status === 0 || [401, 429].includes(error.status) || error.status >= 500;
  const button = make("button", { type: "button", class: "small", onclick: again }, "Try again");
  byId("problem").replaceChildren(make("p", {}, error.message), ...(hopeful ? [button] : []));
}

// The controls and the form, for the model that is chosen.
export function drawControls(act) {
  const { state, models } = store;
  const own = model();
  for (const part of document.querySelectorAll("[data-once-known]")) part.hidden = false; // nothing to choose before
  fill(byId("model"), models.map(one => [one.name, one.name]), own.name);
  byId("about").textContent = own.description;
  const families = Map.groupBy(methodsHere(), one => one.family);
  fill(byId("method"), [...families].map(([group, list]) => ({ group, options: list.map(one => [one.name, one.name]) })), method());
  document.querySelector(`input[name=view][value=${state.view}]`).checked = true;
  Object.values(targetBoxes).forEach(box => box.replaceChildren());
  drawInputs(byId("inputs"), own, state, act.typed);
  drawAims(act);
  drawExamples(byId("examples"), own, act.take);
}

export const drawAims = act => drawTargets(targetBoxes, model(), store.state, store.found.whole, act.aimed);

export function drawPrediction() {
  const { found, state } = store;
  byId("prediction").setAttribute("aria-busy", "false");
  showPrediction(found.now, found.whole, state.hidden.length);
}

// The explanation, if there is one; while a newer one is on its way the old one stays.
export function drawWhy(act) {
  const e = store.found.explanation;
  if (e) {
    showOnly("explanation");
    const about = store.methods.find(one => one.name === e.method);
    drawExplanation({ e, method: about, pieces: pieces(), layer: layerShown(), hidden: hidden(), toggle: act.toggle });
  }
  drawTab(act);
}

export function drawTab(act) {
  const { state, found } = store;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.tab === state.tab;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    byId(`panel-${tab.dataset.tab}`).hidden = !on;
  }
  if (found.explanation) PANELS[state.tab](byId(`panel-${state.tab}`), found.explanation, act);
}

const PANELS = {
  hide(panel, e, act) {
    const { now, whole, played, playProblem } = store.found;
    const shown = { now, before: whole, played, problem: playProblem, game: store.game, width: panel.clientWidth };
    drawHide(panel, { e, hidden: hidden(), ...shown, choose: act.chooseGame, hide: act.hide, again: act.playAgain });
  },
  layers(panel, e, act) {
    const others = methodsHere().filter(one => one.layers).map(one => one.name);
    drawLayers(panel, { e, pieces: pieces(), layer: layerShown(), choose: act.chooseLayer, others, use: act.use });
  },
  compare(panel, e, act) {
    drawChoice(panel, { methods: methodsHere(), chosen: compared(), choose: act.chooseCompared });
    const explanations = store.found.compared;
    if (explanations) drawRows(panel, { explanations, pieces: pieces(), use: act.use });
  },
};

export function say(text) {
  const box = byId("said");
  box.textContent = text;
  setTimeout(() => { if (box.textContent === text) box.textContent = ""; }, 4000);
}
