// Layers: a slider that shows one layer's scores in the text, and a heat map of words over layers.

import { make } from "./dom.js";
import { FAINT, normalised, normalisedTogether, scoreText, stepClass } from "./scale.js";
import { byUnit, unitsOf } from "./spans.js";

// The scores of one layer in the explanation's units, on the scale that all layers share.
export function layerLook(e, units, layer) {
  const rows = e.layers.map(row => byUnit(e, row, units));
  const own = rows.map(row => row.map((value, i) => (units[i].special ? 0 : value)));
  return { values: rows[layer], strengths: normalisedTogether(own)[layer] };
}

let drawn = {}; // what the panel holds, so that moving the slider does not take it from under the reader's hand

// view: {e, pieces, layer: number | null, choose: layer →, others: names of methods that have layers, use: name →}
export function drawLayers(panel, view) {
  if (drawn.e !== view.e || drawn.pieces !== view.pieces) build(panel, view);
  drawn = view;
  if (view.e.layers) mark(panel, view);
}

function build(panel, view) {
  if (view.e.layers) return panel.replaceChildren(slider(view), heatMap(view, view.e.layer_names));
  const use = name => make("button", { type: "button", class: "chip", onclick: () => view.use(name) }, name);
  panel.replaceChildren(
    make("p", {}, `${view.e.method} gives one score per token, not one per layer. These do:`),
    make("div", { class: "chips" }, ...view.others.map(use)),
  );
}

function slider(view) {
  const whole = view.e.layers.length; // the last stop is the method's own score
  const range = make("input", { id: "layer", type: "range", min: 0, max: whole, step: 1 });
  range.addEventListener("input", () => view.choose(Number(range.value) === whole ? null : Number(range.value)));
  return make("div", { class: "slider" }, make("label", { for: "layer" }, "Show in the text"), range, make("output", { for: "layer", class: "number" }));
}

// The chosen layer, on the slider and in the heat map.
function mark(panel, view) {
  const names = view.e.layer_names; // as people count them: 0 is the embeddings, for methods that score them
  const says = view.layer === null ? "all layers" : `layer ${names[view.layer]} of ${names.at(-1)}`;
  const range = panel.querySelector("input");
  range.value = view.layer ?? names.length;
  range.setAttribute("aria-valuetext", says);
  panel.querySelector("output").textContent = says;
  for (const row of panel.querySelectorAll("tr[data-layer]")) {
    const on = row.dataset.layer === String(view.layer ?? "all");
    row.classList.toggle("chosen", on && view.layer !== null);
    row.querySelector("button").setAttribute("aria-pressed", String(on));
  }
}

function heatMap(view, names) {
  const shown = unitsOf(view.e, view.pieces).filter(unit => !unit.special);
  const rows = view.e.layers.map(row => byUnit(view.e, row, shown));
  const grid = normalisedTogether(rows);
  const total = byUnit(view.e, view.e.scores, shown);
  const whole = isSum(rows, total) ? "sum" : "score";
  const line = (name, layer, values, strengths) =>
    make(
      "tr",
      { "data-layer": layer ?? "all" },
      make("th", { scope: "row" }, make("button", { type: "button", class: "bare", onclick: () => view.choose(layer) }, name)),
      ...values.map((value, i) => cell(value, strengths[i], view.e.signed)),
    );
  const body = grid.map((strengths, i) => line(`layer ${names[i]}`, i, rows[i], strengths)).reverse();
  const heads = shown.map(unit => make("th", { scope: "col" }, make("bdi", {}, unit.text)));
  const table = make(
    "table",
    { class: "heat" },
    make("caption", { class: "unseen" }, `Scores of ${view.e.method} for each word in each layer`),
    make("thead", {}, make("tr", {}, make("td"), ...heads)),
    make("tbody", {}, ...body),
    make("tbody", { class: "total" }, line(whole, null, total, normalised(total))),
  );
  return make("div", { class: "scroller", role: "region", tabindex: 0, "aria-label": "Heat map of words over layers" }, table);
}

const isSum = (rows, total) =>
  total.every((value, i) => Math.abs(rows.reduce((sum, row) => sum + row[i], 0) - value) <= 1e-6 + 1e-3 * Math.abs(value));

function cell(value, strength, signed) {
  const minus = signed && strength < -FAINT;
  const text = scoreText(value, signed);
  return make("td", { class: stepClass(strength, signed) || null, title: text }, make("span", { "aria-hidden": "true" }, minus ? "−" : ""), make("span", { class: "unseen" }, text));
}
