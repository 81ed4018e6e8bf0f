// Texts to start from: the server has some for every model it serves.

import { make } from "./dom.js";

const FIELDS = ["text", "pair", "question", "context", "continuation", "target", "contrast"];
const SHOWN = 4;
const LONG = 34; // characters of a chip

export function drawExamples(box, model, use) {
  const chips = model.examples.slice(0, SHOWN).map(example => {
    const given = inState(example);
    const text = given.question ?? given.text;
    const short = text.length > LONG ? text.slice(0, LONG).replace(/\s+\S*$/, "") + "…" : text;
    return make("button", { type: "button", class: "chip", title: text, onclick: () => use(given) }, make("bdi", {}, short));
  });
  box.querySelector(".chips").replaceChildren(...chips);
  box.hidden = !chips.length;
}

// An example in the fields of the state: a contrast of two names the target as well.
function inState(example) {
  const [target, contrast] = Array.isArray(example.contrast) ? example.contrast : [example.target, example.contrast];
  const known = { ...example, target, contrast };
  return Object.fromEntries(FIELDS.filter(name => typeof known[name] === "string").map(name => [name, known[name]]));
}
