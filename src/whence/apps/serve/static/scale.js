// The visual language of whence, as in whence.render.scale: a score is shown as its share of the text's strongest one,
// blue for (f1 … f20), red and underlined against (a1 … a20), purple for methods without signs (w1 … w20).

export const STEPS = 20;
export const FAINT = 0.15; // weaker cells of a heat map carry no minus sign

const largest = values => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

// Values divided by their largest magnitude; `most` where several rows share one scale.
export function normalised(values, most = largest(values)) {
  return values.map(value => (most > 0 ? value / most : 0));
}

export function normalisedTogether(rows) {
  const most = largest(rows.flat());
  return rows.map(row => normalised(row, most));
}

export function stepClass(strength, signed) {
  const step = Math.round(Math.min(Math.abs(strength), 1) * STEPS);
  if (!step) return "";
  return (signed ? (strength > 0 ? "f" : "a") : "w") + step;
}

// A probability that never rounds to certainty.
export function percent(probability) {
  if (probability === null || probability === undefined) return "";
  if (probability >= 0.9995 && probability < 1) return ">99.9%";
  if (probability > 0 && probability < 0.0005) return "<0.1%";
  return (probability * 100).toFixed(1) + "%";
}

// A target's name for people: language models answer with pieces and blanks.
export function labelOf(target) {
  return String(target ?? "").replace(/^##/, "").split(/\s+/).filter(Boolean).join(" ") || "␣";
}

export function scoreText(score, signed) {
  const text = Number(score.toPrecision(4)).toString().replace("-", "−");
  return signed && score >= 0 ? "+" + text : text;
}

// Ranks from 1 by magnitude; equal ones in the text's order.
export function ranks(values) {
  const order = values.map((_, i) => i).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);
  const found = [];
  order.forEach((i, rank) => { found[i] = rank + 1; });
  return found;
}
