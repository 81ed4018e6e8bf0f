// Up to six methods in rows, each on its own scale; the choice of methods, by family.

import { make } from "./dom.js";
import { highlight, legend } from "./highlight.js";
import { byUnit, unitsOf } from "./spans.js";
import { MOST_COMPARED } from "./state.js";

// view: {methods, chosen: [names], choose: names →}
export function drawChoice(panel, view) {
  const full = view.chosen.length >= MOST_COMPARED;
  const families = Map.groupBy(view.methods, method => method.family);
  const box = method => {
    const on = view.chosen.includes(method.name);
    const input = make("input", { type: "checkbox", value: method.name, checked: on, disabled: full && !on });
    input.addEventListener("change", () => {
      view.choose(input.checked ? [...view.chosen, method.name] : view.chosen.filter(name => name !== method.name), method.name);
    });
    return make("label", { class: "chip", title: method.summary }, input, method.name);
  };
  const groups = [...families].map(([family, own]) =>
    make("fieldset", { class: "family" }, make("legend", {}, family), make("div", { class: "chips" }, ...own.map(box))),
  );
  const open = panel.querySelector("details")?.open ?? view.chosen.length === 0;
  const count = `${view.chosen.length} of at most ${MOST_COMPARED}`;
  const choice = make("details", { class: "choice", open }, make("summary", {}, `Methods: ${count}`), ...groups);
  const old = panel.querySelector("details");
  if (old) old.replaceWith(choice);
  else panel.replaceChildren(choice, make("div", { class: "rows" }));
}

// view: {explanations: {name: e}, pieces, use: name →}
export function drawRows(panel, view) {
  const entries = Object.entries(view.explanations);
  const kinds = [...new Set(entries.map(([, e]) => e.signed))].sort();
  const rows = entries.map(([name, e]) => {
    const units = unitsOf(e, view.pieces);
    const look = { e, units, values: byUnit(e, e.scores, units), pieces: view.pieces };
    const use = make("button", { type: "button", class: "bare", title: `Explain with ${name}`, onclick: () => view.use(name) }, name);
    return make("tr", {}, make("th", { scope: "row" }, use, e.gap ? make("div", { class: "muted" }, e.gap) : ""), make("td", {}, highlight(look)));
  });
  panel.querySelector(".rows").replaceChildren(
    make("p", { class: "head" }, "One row per method; each is shown as its share of its own strongest word. ", ...kinds.map(signed => make("span", { class: "key" }, ...legend(signed)))),
    make("table", { class: "compared" }, make("caption", { class: "unseen" }, "The text as each method explains it"), make("tbody", {}, ...rows)),
  );
}
