// Cut an explanation into what is coloured: units (whole words as the server
// found them, {word, text, tokens, segment, start, end}, or the tokenizer's pieces) and the text around them.
// Offsets count characters as Python does, so texts are taken apart by code point, not by UTF-16 unit.

const CUT_SHOWN = 80; // characters shown of what a truncated text lost
const PARTS = { "question-answering": ["question", "context"], "causal-lm": ["prompt", "continuation"] };
const NLI = ["entail", "neutral", "contradict"];

// [{word, tokens: [i], text, special}]: every piece as the tokenizer made it
function piecesOf(e) {
  return e.tokens.map((text, i) => ({ word: e.special[i] ? null : e.word_ids[i], tokens: [i], text, special: e.special[i] }));
}

export const unitsOf = (e, pieces) => (pieces ? piecesOf(e) : e.words);

const COMBINED = {
  sum: values => values.reduce((sum, value) => sum + value, 0),
  mean: values => COMBINED.sum(values) / values.length,
  largest: values => values.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most)),
};

// tokens' scores as those of units, put together as the explanation's method says
export const byUnit = (e, scores, units) => units.map(unit => COMBINED[e.meaning.combine](unit.tokens.map(i => scores[i])));

// [{name, spans: [{text, unit?: number, cut?: true}]}]: the spans of a part, put together, are its text
export function partsOf(e, units, pieces) {
  const placed = units.some(unit => unit.end > unit.start);
  if (pieces || !placed) {
    const spans = units.flatMap((unit, i) => (i ? [{ text: " " }] : []).concat({ text: unit.text, unit: i }));
    return [{ name: null, spans }];
  }
  const texts = e.pair === null || e.pair === undefined ? [e.text] : [e.text, e.pair];
  const names = texts.length > 1 ? partNames(e) : [null];
  return texts.map((text, segment) => ({ name: names[segment], spans: spansOf(e, units, Array.from(text), segment) }));
}

function spansOf(e, units, text, segment) {
  const spans = [];
  let done = 0;
  units.forEach((unit, i) => {
    if (unit.segment !== segment || unit.end <= done) return;
    const start = Math.max(unit.start, done);
    if (start > done) spans.push({ text: text.slice(done, start).join("") });
    spans.push({ text: text.slice(start, unit.end).join(""), unit: i });
    done = unit.end;
  });
  const rest = text.slice(done);
  if (e.truncated && rest.join("").trim()) {
    spans.push({ text: rest.slice(0, CUT_SHOWN).join("") + (rest.length > CUT_SHOWN ? "…" : ""), cut: true });
  } else if (rest.length) spans.push({ text: rest.join("") });
  return spans;
}

function partNames(e) {
  if (PARTS[e.task]) return PARTS[e.task];
  const labels = [e.target, e.prediction].filter(Boolean).map(label => label.toLowerCase());
  return labels.some(label => NLI.some(start => label.startsWith(start))) ? ["premise", "hypothesis"] : ["first", "second"];
}
