// The highlighted text. Each unit is a mark on its colour; where `toggle` is given it is a button that hides its word:
// one stop of the tab key, arrow keys from word to word, Enter or Space hides.

import { make } from "./dom.js";
import { normalised, ranks, scoreText, stepClass } from "./scale.js";
import { partsOf } from "./spans.js";

// look: {e, units, values, strengths?, pieces, hidden?: Set of words, toggle?: word →, tell?: text →}
export function highlight(look) {
  const known = lookUp(look);
  const nodes = partsOf(look.e, look.units, look.pieces).flatMap(part => [
    ...(part.name ? [make("div", { class: "part" }, part.name)] : []),
    make("div", { class: "text", dir: "auto" }, ...part.spans.map(span => drawn(look, known, span))),
  ]);
  const box = make("div", { class: "parts" }, ...nodes);
  if (look.toggle) walkable(box, look);
  return box;
}

function lookUp(look) {
  const own = look.units.map((unit, i) => (unit.special ? 0 : look.values[i]));
  const strengths = look.strengths ?? normalised(own);
  return { strengths, rank: ranks(own), count: look.units.filter(unit => !unit.special).length };
}

function drawn(look, known, span) {
  if (span.cut) return make("span", { class: "cut", title: "not read by the model" }, span.text);
  if (span.unit === undefined) return span.text;
  const unit = look.units[span.unit];
  if (unit.special) return make("bdi", { class: "special" }, span.text);
  const score = scoreText(look.values[span.unit], look.e.signed);
  const says = `${score}, rank ${known.rank[span.unit]} of ${known.count}`;
  const hidden = look.hidden?.has(unit.word) ?? false;
  const colour = stepClass(known.strengths[span.unit], look.e.signed);
  const mark = make("mark", { class: colour || null, title: says }, span.text);
  mark.dataset.unit = span.unit;
  if (look.toggle && unit.word !== null) {
    mark.setAttribute("role", "button");
    mark.setAttribute("aria-label", `${unit.text}: ${says}`);
    mark.setAttribute("aria-pressed", String(hidden));
    mark.tabIndex = -1;
    mark.dataset.word = unit.word;
    mark.classList.toggle("gone", hidden);
  }
  return mark;
}

function walkable(box, look) {
  const marks = [...box.querySelectorAll("mark[data-word]")];
  if (!marks.length) return;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Words. Arrow keys go from word to word, Enter hides a word or shows it again.");
  marks[0].tabIndex = 0;
  const unitOf = mark => look.units[Number(mark.dataset.unit)];
  const about = mark => {
    const score = mark.title.replace(",", " ·");
    return { word: unitOf(mark).text, score, hidden: look.hidden.has(unitOf(mark).word) };
  };
  const go = (from, to) => {
    if (!to) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  };
  box.addEventListener("click", event => {
    const mark = event.target.closest("mark[data-word]");
    if (mark) look.toggle(unitOf(mark).word, marks.indexOf(mark));
  });
  box.addEventListener("keydown", event => {
    const mark = event.target.closest("mark[data-word]");
    if (!mark) return;
    const at = marks.indexOf(mark);
    const step = getComputedStyle(mark.parentElement).direction === "rtl" ? -1 : 1;
    const moves = { ArrowRight: at + step, ArrowLeft: at - step, ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 };
    if (event.key in moves) go(mark, marks[moves[event.key]]);
    else if (event.key === "Enter" || event.key === " ") look.toggle(unitOf(mark).word, at);
    else return;
    event.preventDefault();
  });
  for (const name of ["focusin", "mouseover"]) {
    box.addEventListener(name, event => {
      const mark = event.target.closest("mark[data-word]");
      if (mark) look.tell(about(mark));
    });
  }
}

// After a redraw the reader's place is kept.
export function focusMark(box, at) {
  const marks = box.querySelectorAll("mark[data-word]");
  if (!marks[at]) return;
  marks.forEach(mark => { mark.tabIndex = -1; });
  marks[at].tabIndex = 0;
  marks[at].focus();
}

export function legend(signed) {
  if (signed) return [make("span", { class: "f20" }, "for"), " ", make("span", { class: "a20" }, "against")];
  return ["less ", ...[2, 8, 14, 20].map(step => make("span", { class: `w${step}` }, "\u00a0")), " more"];
}
