// The report page: filter, sort and search rows that are drawn only while they are near the window.
// Everything is put into the page as text (textContent), never as markup.
"use strict";
(() => {
  const rows = JSON.parse(document.getElementById("rows").textContent);
  const STEPS = 20, CHUNK = 40, STRONGEST = 5, GUESS = 92;
  const list = document.getElementById("list");
  const field = name => document.getElementById(name);
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // a part of a row is [name, …spans]; a span is a text, followed for a token by its step and its score
  const tokens = function* (part) {
    for (let i = 1; i < part.length; i++) {
      if (typeof part[i + 1] === "number") { yield [part[i], part[i + 1], part[i + 2]]; i += 2; }
      else yield [part[i]];
    }
  };
  for (const [i, row] of rows.entries()) {
    row.number = i;
    const all = row.parts.map(part => [...tokens(part)]);
    row.text = all.map(spans => spans.map(s => s[0]).join("")).join("\n").toLowerCase();
    row.strong = all.flat().filter(s => s.length > 1).sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]))
      .slice(0, STRONGEST).map(s => s[0].toLowerCase());
  }

  const drawText = (row, part, scored) => {
    const box = make("div", "text");
    box.dir = "auto";
    for (const [text, step, score] of tokens(part)) {
      if (step === undefined) { box.append(text); continue; }
      const letter = row.signed ? (step > 0 ? "f" : "a") : "w";
      const mark = make("mark", step ? letter + Math.abs(step) : "", text);
      mark.title = (row.signed && score >= 0 ? "+" : "") + score + ", rank " + (scored.indexOf(Math.abs(score)) + 1) + " of " + scored.length;
      box.append(mark);
    }
    return box;
  };
  const draw = row => {
    const item = make("article", "row");
    const head = make("div", "head");
    head.append(make("span", "number", "#" + (row.number + 1)), " ");
    if (row.error !== undefined) {
      head.append(make("b", "wrong", "could not be read"), " " + row.error);
      item.append(head, drawText(row, row.parts[0], []));
      return item;
    }
    head.append(make("b", "", row.target));
    if (row.about) head.append(row.about);
    if (row.label !== undefined) head.append(make("span", row.wrong ? "wrong" : "right", row.wrong ? " ✗ labelled " + row.label : " ✓ as labelled"));
    head.append(" · " + row.method + (row.cut ? " · text cut to what the model reads" : ""));
    item.append(head);
    const scored = row.parts.flatMap(part => [...tokens(part)]).filter(s => s.length > 1).map(s => Math.abs(s[2])).sort((a, b) => b - a);
    for (const part of row.parts) {
      if (part[0]) item.append(make("div", "part", part[0]));
      item.append(drawText(row, part, scored));
    }
    return item;
  };

  // chunks of rows: filled near the window, emptied (their height kept) far from it
  let chunks = [];
  const fill = chunk => {
    if (chunk.drawn) return;
    chunk.drawn = true;
    chunk.node.style.height = "";
    chunk.node.replaceChildren(...chunk.rows.map(draw));
  };
  const empty = chunk => {
    if (!chunk.drawn) return;
    chunk.drawn = false;
    chunk.node.style.height = chunk.node.offsetHeight + "px";
    chunk.node.replaceChildren();
  };
  const watch = new IntersectionObserver(entries => {
    for (const entry of entries) (entry.isIntersecting ? fill : empty)(entry.target.chunk);
  }, { rootMargin: "1500px" });

  const orders = {
    given: (a, b) => a.number - b.number,
    sure: (a, b) => (b.p ?? -1) - (a.p ?? -1) || a.number - b.number,
    unsure: (a, b) => (a.p ?? 2) - (b.p ?? 2) || a.number - b.number,
    long: (a, b) => b.text.length - a.text.length || a.number - b.number,
    short: (a, b) => a.text.length - b.text.length || a.number - b.number,
  };
  const show = () => {
    const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean), inStrong = field("strong").checked;
    const target = field("target").value, method = field("method").value, only = field("only").value;
    const fits = row =>
      (!target || row.target === target) && (!method || row.method === method) &&
      (!only || (only === "wrong" ? row.wrong : only === "unread" ? row.error !== undefined : row.differs)) &&
      words.every(w => inStrong ? row.strong.some(s => s.includes(w)) : row.text.includes(w));
    const found = rows.filter(fits).sort(orders[field("sort").value]);
    watch.disconnect();
    chunks = [];
    for (let i = 0; i < found.length; i += CHUNK) {
      const chunk = { rows: found.slice(i, i + CHUNK), drawn: false, node: make("div", "chunk") };
      chunk.node.chunk = chunk;
      chunk.node.style.height = GUESS * chunk.rows.length + "px";
      chunks.push(chunk);
    }
    list.replaceChildren(...chunks.map(c => c.node));
    if (chunks.length) fill(chunks[0]);
    for (const chunk of chunks) watch.observe(chunk.node);
    field("count").textContent = found.length.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " rows";
    field("none").hidden = found.length > 0;
    list.dataset.shown = found.length;
  };

  // what is chosen stands in the address, so that a view can be kept and sent
  const CHOICES = ["search", "target", "method", "only", "sort"];
  const remember = () => {
    const chosen = new URLSearchParams();
    for (const name of CHOICES) if (field(name).value && field(name).value !== "given") chosen.set(name, field(name).value);
    if (field("strong").checked) chosen.set("strong", "1");
    try { history.replaceState(null, "", "#" + chosen); } catch { /* a page inside a frame may have no address */ }
  };
  const recall = () => {
    const chosen = new URLSearchParams(location.hash.slice(1));
    for (const name of CHOICES) {
      const node = field(name), value = chosen.get(name) ?? (name === "sort" ? "given" : "");
      if (node.tagName !== "SELECT" || [...node.options].some(o => o.value === value)) node.value = value;
    }
    field("strong").checked = chosen.has("strong");
  };

  const options = (name, key) => {
    const counts = new Map();
    for (const row of rows) if (row.error === undefined) counts.set(row[key], (counts.get(row[key]) ?? 0) + 1);
    for (const [value, count] of [...counts].sort((a, b) => b[1] - a[1])) {
      const option = make("option", "", value + " (" + count.toLocaleString("en") + ")");
      option.value = value;
      field(name).append(option);
    }
    field(name).closest("label").hidden = counts.size < 2;
  };
  options("target", "target");
  options("method", "method");
  const differing = rows.filter(row => row.differs).length, wrong = rows.filter(row => row.wrong).length;
  const unread = rows.filter(row => row.error !== undefined).length;
  const choice = (value, text, count) => {
    if (!count) return;
    const option = make("option", "", text + " (" + count.toLocaleString("en") + ")");
    option.value = value;
    field("only").append(option);
  };
  choice("differs", "another label was predicted", differing);
  choice("wrong", "the model is wrong", wrong);
  choice("unread", "could not be read", unread);
  field("only").closest("label").hidden = !differing && !wrong && !unread;

  let waiting = 0;
  field("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { show(); remember(); }, 60); });
  for (const name of ["target", "method", "only", "sort", "strong"]) field(name).addEventListener("change", () => { show(); remember(); });
  addEventListener("hashchange", () => { recall(); show(); });
  addEventListener("beforeprint", () => chunks.forEach(fill));
  field("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.body).colorScheme === "dark" ||
      (!document.body.matches(".light,.dark") && matchMedia("(prefers-color-scheme: dark)").matches);
    document.body.classList.remove("light", "dark");
    document.body.classList.add(dark ? "light" : "dark");
  });
  recall();
  show();
  list.dataset.ready = Math.round(performance.now());
})();
