// The prediction: what the model answers, and a bar per label; with words hidden, a mark where each bar stood before.

import { byId, make } from "./dom.js";
import { labelOf, percent } from "./scale.js";

const MOST = 8; // bars

// now: the answer to what is shown; before: the answer to the whole text, where words are hidden
export function showPrediction(now, before, hiddenCount) {
  const answer = byId("answer");
  const bars = byId("bars");
  if (!now) {
    answer.replaceChildren(make("span", { class: "muted" }, "No prediction yet."));
    bars.replaceChildren();
    return;
  }
  const chance = now.probability === null ? valueOf(now) : percent(now.probability);
  const words = `${hiddenCount} ${hiddenCount === 1 ? "word" : "words"} hidden`;
  answer.replaceChildren(
    make("bdi", { class: "label" }, labelOf(now.label)),
    " ",
    make("span", { class: "number" }, chance),
    ...(hiddenCount ? [" ", make("span", { class: "muted" }, `with ${words}`)] : []),
    ...(now.truncated ? [" ", make("span", { class: "muted" }, "(text cut to what the model reads)")] : []),
  );
  const was = new Map((before ?? now).probabilities);
  const shown = now.probability === null ? [] : chosen(now, before);
  bars.replaceChildren(...shown.map(([label, p]) => bar(label, p, hiddenCount ? was.get(label) : undefined, label === now.label)));
}

const valueOf = now => (now.probabilities.length ? String(Number(now.probabilities[0][1].toPrecision(4))) : "");

// Bars keep their places while words are hidden: the whole text's labels in its order, then what is new.
function chosen(now, before) {
  const current = new Map(now.probabilities);
  const order = [...new Set([...(before ?? now).probabilities, ...now.probabilities].map(([label]) => label))];
  return order.filter(label => current.has(label)).slice(0, MOST).map(label => [label, current.get(label)]);
}

function bar(label, p, was, best) {
  const fill = make("span", { class: "fill" });
  fill.style.inlineSize = `${p * 100}%`;
  const track = make("span", { class: "track", "aria-hidden": "true" }, fill);
  if (was !== undefined) {
    const tick = make("span", { class: "was" });
    tick.style.insetInlineStart = `${was * 100}%`;
    track.append(tick);
  }
  const change = was === undefined ? "" : `, ${percent(was)} with every word`;
  return make(
    "li",
    { class: best ? "best" : null },
    make("bdi", { class: "name" }, labelOf(label)),
    track,
    make("span", { class: "number" }, percent(p), make("span", { class: "unseen" }, change)),
  );
}
