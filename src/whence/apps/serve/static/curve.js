// A small line chart in SVG: lines with an optional band, one marked point; told apart by dashes and shapes as well as by hue.

import { draw, make } from "./dom.js";

const EDGE = { top: 22, right: 24, bottom: 40, left: 46 };
const HEIGHT = 240;

// chart: {x: [0…1], series: [{name, kind, y, low?, high?}], point?: {x, y}, xlabel, ylabel, says}
export function curve(chart, width) {
  const wide = Math.max(260, Math.min(width, 720));
  const x = share => EDGE.left + share * (wide - EDGE.left - EDGE.right);
  const y = p => HEIGHT - EDGE.bottom - p * (HEIGHT - EDGE.top - EDGE.bottom);
  const svg = draw(
    "svg",
    { class: "curve", viewBox: `0 0 ${wide} ${HEIGHT}`, width: wide, height: HEIGHT, role: "img", "aria-label": chart.says },
    ...grid(x, y, wide),
    draw("text", { class: "axis", x: x(0.5), y: HEIGHT - 6, "text-anchor": "middle" }, chart.xlabel),
    draw("text", { class: "axis", x: EDGE.left, y: 11 }, fitting(chart.ylabel, wide)),
    ...chart.series.filter(s => s.low).map(s => band(s, chart.x, x, y)),
    ...chart.series.map(s => line(s, chart.x, x, y)),
    ...chart.series.flatMap(s => marks(s, chart.x, x, y)),
  );
  if (chart.point) {
    const [px, py] = [x(chart.point.x), y(chart.point.y)];
    svg.append(draw("circle", { class: "halo", cx: px, cy: py, r: 9 }), draw("circle", { class: "now", cx: px, cy: py, r: 5 }));
  }
  return svg;
}

// about 7 pixels a character; what does not fit is named above the chart anyway
const fitting = (text, wide) => (text.length * 7 > wide - EDGE.left ? `${text.slice(0, Math.floor((wide - EDGE.left) / 7) - 1)}…` : text);

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

function grid(x, y, wide) {
  return QUARTERS.flatMap(share => [
    draw("line", { class: "grid", x1: EDGE.left, x2: wide - EDGE.right, y1: y(share), y2: y(share) }),
    draw("text", { class: "tick", x: EDGE.left - 6, y: y(share) + 4, "text-anchor": "end" }, `${share * 100}%`),
    draw("text", { class: "tick", x: x(share), y: HEIGHT - EDGE.bottom + 16, "text-anchor": "middle" }, `${share * 100}%`),
  ]);
}

const points = (xs, ys, x, y) => xs.map((value, i) => `${x(value).toFixed(1)},${y(ys[i]).toFixed(1)}`);

const line = (s, xs, x, y) => draw("polyline", { class: `line ${s.kind}`, points: points(xs, s.y, x, y).join(" ") });

function band(s, xs, x, y) {
  const there = points(xs, s.high, x, y);
  const back = points(xs, s.low, x, y).reverse();
  return draw("polygon", { class: `band ${s.kind}`, points: [...there, ...back].join(" ") });
}

// circles on the method's line, triangles on the other's, not more than a dozen each
function marks(s, xs, x, y) {
  const every = Math.max(1, Math.ceil(xs.length / 12));
  return xs.map((value, i) => [x(value), y(s.y[i]), i]).filter(([, , i]) => i % every === 0 || i === xs.length - 1).map(([cx, cy]) =>
    s.kind === "method"
      ? draw("circle", { class: `dot ${s.kind}`, cx, cy, r: 3.2 })
      : draw("path", { class: `dot ${s.kind}`, d: `M${cx - 3.6} ${cy - 3}h7.2l-3.6 6.2z` }),
  );
}

// The lines' names, drawn as in the chart; point: the name of the marked point, where there is one.
export function key(series, point) {
  const ring = draw("svg", { width: 14, height: 14, "aria-hidden": "true" }, draw("circle", { class: "now", cx: 7, cy: 7, r: 5 }));
  const marked = point ? [make("li", {}, ring, point)] : [];
  const lines = series.map(s => {
    const [cx, cy] = [16, 7];
    const dot = s.kind === "method"
      ? draw("circle", { class: `dot ${s.kind}`, cx, cy, r: 3.2 })
      : draw("path", { class: `dot ${s.kind}`, d: `M${cx - 3.6} ${cy - 3}h7.2l-3.6 6.2z` });
    const sample = draw("svg", { width: 32, height: 14, "aria-hidden": "true" }, draw("line", { class: `line ${s.kind}`, x1: 0, x2: 32, y1: 7, y2: 7 }), dot);
    return make("li", {}, sample, s.name);
  });
  return make("ul", { class: "curve-key" }, ...lines, ...marked);
}
