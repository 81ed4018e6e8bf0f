// The hiding game: hide words, watch the target's probability, and see how the method's order does against random ones.

import { curve, key } from "./curve.js";
import { make } from "./dom.js";
import { labelOf, percent } from "./scale.js";

const GAMES = {
  hiding: { name: "Hide strongest first", xlabel: "words hidden", says: "fall", low: "low", high: "high" },
  revealing: { name: "Show strongest first", xlabel: "words shown", says: "rise", low: "revealing_low", high: "revealing_high" },
};

// view: {e, hidden: Set, now, before: predictions, played: answer of evaluate-text or null, problem: sentence or null,
//        game, choose: game →, hide: words →, again: →, width}
export function drawHide(panel, view) {
  const kept = document.activeElement?.id;
  const open = panel.querySelector("details")?.open ?? false;
  panel.replaceChildren(progress(view), buttons(view), ...(view.played ? chart(view) : [waiting(view)]));
  panel.querySelector("details")?.toggleAttribute("open", open);
  if (kept) panel.querySelector(`#${CSS.escape(kept)}`)?.focus();
}

function progress(view) {
  const target = make("span", {}, make("bdi", { class: "label" }, labelOf(view.e.target)), ratherThan(view.e));
  const before = view.before?.target_probability;
  if (!view.hidden.size || !view.now) {
    return make("p", { class: "game", role: "status" }, "Click a word in the text to hide it from the model, and watch ", target, " ", make("span", { class: "number" }, percent(before)), " move.");
  }
  const words = `${view.hidden.size} of ${view.e.words.length} words hidden`;
  const now = view.now.target_probability;
  return make("p", { class: "game", role: "status" }, target, " ", make("span", { class: "number" }, percent(before)), " → ", make("b", { class: "number", id: "moved" }, percent(now)), make("span", { class: "muted" }, ` · ${words}, ${replaced(view.now.hidden_by)}`));
}

// with a contrast the chance is the target's share of the two
const ratherThan = e => (e.contrast === null ? "" : ` rather than ${labelOf(e.contrast)}`);

const replaced = by => (by.startsWith("nothing") ? "deleted" : `each read as ${by}`);

function buttons(view) {
  const left = (view.played?.order ?? []).filter(word => !view.hidden.has(word));
  const hide = make("button", { id: "hide-next", type: "button", class: "small", disabled: !left.length, onclick: () => view.hide([...view.hidden, left[0]]) }, "Hide the next strongest word");
  const show = make("button", { id: "show-all", type: "button", class: "small", disabled: !view.hidden.size, onclick: () => view.hide([]) }, "Show all words");
  return make("p", { class: "actions" }, hide, " ", show);
}

function waiting(view) {
  if (!view.problem) return make("p", { class: "muted" }, "Trying the method's order against random ones…");
  return make("div", { class: "problem" }, make("p", {}, view.problem), make("button", { type: "button", class: "small", onclick: view.again }, "Try again"));
}

function chart(view) {
  const { played, game } = view;
  const look = GAMES[game];
  const series = [
    { name: `${view.e.method}: area ${area(played.method, game)}`, kind: "method", y: played.method[game] },
    { name: `random order: area ${area(played.random, game)} (${played.random.draws} draws; band: 5% to 95%)`, kind: "random", y: played.random[game], low: played.random[look.low], high: played.random[look.high] },
  ];
  const chance = `probability of ${labelOf(played.target)}${ratherThan(view.e)}`;
  const says = `The ${chance} over the share of ${look.xlabel}: ${view.e.method} against random order. The numbers are in the table below.`;
  const share = view.hidden.size / Math.max(1, view.e.words.length);
  const point = view.now && view.hidden.size ? { x: game === "hiding" ? share : 1 - share, y: view.now.target_probability } : null;
  const data = { x: played.fractions, series, point, xlabel: `share of ${look.xlabel}`, ylabel: chance, says };
  return [games(view), make("div", { class: "chart" }, curve(data, view.width)), key(series, point && "the words you hid"), make("p", { class: "muted note" }, verdict(played, game)), table(played, game)];
}

const area = (curves, game) => curves[`${game}_auc`].toFixed(3);

// what the server's test says of the method's order among the random ones: one-sided, at 5%
function verdict(played, game) {
  const draws = played.random.draws;
  const [sooner, later] = game === "hiding" ? ["falls faster", "falls more slowly"] : ["comes back faster", "comes back more slowly"];
  switch (played.method[`${game}_verdict`]) {
    case "better than chance":
      return `Better than chance: the probability ${sooner} than for 95% of ${draws} random orders. On this text the order tells what the model leans on.`;
    case "worse":
      return `Worse: the probability ${later} than for 95% of ${draws} random orders. Do not trust this method's order here.`;
    default:
      return `Cannot tell: more than 5% of ${draws} random orders do as well on this text. Its order may say no more than they do.`;
  }
}

function games(view) {
  const choice = ([name, look]) => {
    const input = make("input", { type: "radio", name: "game", id: `game-${name}`, value: name, checked: name === view.game, onchange: () => view.choose(name) });
    return make("label", {}, input, make("span", {}, look.name));
  };
  return make("fieldset", { class: "switch" }, make("legend", {}, "The method's order against random orders"), ...Object.entries(GAMES).map(choice));
}

function table(played, game) {
  const look = GAMES[game];
  const head = ["share", "words", "method", "random", "5%", "95%"].map(name => make("th", { scope: "col" }, name));
  const rows = played.fractions.map((share, i) =>
    make("tr", {}, make("th", { scope: "row" }, `${Math.round(share * 100)}%`), make("td", {}, String(played.counts[i])),
      ...[played.method[game], played.random[game], played.random[look.low], played.random[look.high]].map(y => make("td", {}, percent(y[i])))),
  );
  return make("details", { class: "numbers" }, make("summary", {}, "The numbers"), make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}
