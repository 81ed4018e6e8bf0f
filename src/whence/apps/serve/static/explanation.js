// The explanation itself: what is explained, the highlighted text, and a line about the word under the pointer.

import { byId, make } from "./dom.js";
import { focusMark, highlight, legend } from "./highlight.js";
import { layerLook } from "./layers.js";
import { labelOf, percent } from "./scale.js";
import { byUnit, unitsOf } from "./spans.js";

// view: {e, method: its row of /api/methods, pieces, layer: number | null, hidden: Set, toggle: word →}
export function drawExplanation(view) {
  const { e } = view;
  const units = unitsOf(e, view.pieces);
  const look = view.layer === null ? { values: byUnit(e, e.scores, units) } : layerLook(e, units, view.layer);
  const toggle = (word, at) => {
    const kept = byId("highlight").contains(document.activeElement);
    view.toggle(word);
    if (kept) focusMark(byId("highlight"), at);
  };
  byId("head").replaceChildren(...heading(view));
  byId("legend").replaceChildren(...legend(e.signed));
  byId("highlight").replaceChildren(highlight({ e, units, ...look, pieces: view.pieces, hidden: view.hidden, toggle, tell }));
  byId("detail").replaceChildren(view.method ? aboutMethod(view.method) : "");
}

function heading({ e, layer }) {
  const rather = e.contrast === null ? [] : [" rather than ", make("bdi", {}, labelOf(e.contrast))];
  const other = e.prediction === null || e.prediction === e.target ? "" : ` (predicted: ${labelOf(e.prediction)})`;
  const where = layer === null ? "" : ` · layer ${e.layer_names[layer]}`;
  const gap = e.gap ? ` (${e.gap})` : ""; // what the scores leave unexplained of the difference they should add up to
  const cut = e.truncated ? " · text cut to what the model reads" : "";
  return [make("b", {}, make("bdi", {}, labelOf(e.target))), ...rather, ` ${percent(e.probability)}${other} · ${e.method}${gap}${where}${cut}`];
}

function tell({ word, score, hidden }) {
  const does = hidden ? "click to show it again" : "click to hide it";
  byId("detail").replaceChildren(make("b", {}, make("bdi", {}, word)), ` ${score} · ${does}`);
}

// summaries often begin with the method's name as its paper writes it
const aboutMethod = ({ name, summary, paper }) =>
  make("span", {}, `${summary.toLowerCase().startsWith(name) ? "" : `${name}: `}${summary}${paper.length > 1 ? ` (${paper})` : ""}`);
