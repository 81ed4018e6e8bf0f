// What the page shows, kept in the address after "#": it never reaches the server or its log, and a copied link restores it.

export const MOST_COMPARED = 6;
const TEXTS = ["text", "pair", "question", "context", "continuation"];
const CHOICES = ["model", "method", "target", "contrast", "view", "tab", "layer"];
const LISTS = ["compare", "hidden"];
const FIRST = { view: "words", tab: "hide" }; // what a short link means

const empty = () => ({
  ...Object.fromEntries([...TEXTS, ...CHOICES].map(name => [name, ""])),
  ...FIRST,
  compare: [],
  hidden: [],
});

export function toFragment(state) {
  const fields = new URLSearchParams();
  for (const name of [...CHOICES, ...TEXTS]) if (state[name] !== (FIRST[name] ?? "")) fields.set(name, state[name]);
  for (const name of LISTS) if (state[name].length) fields.set(name, state[name].join(","));
  return "#" + fields.toString();
}

// Anybody can write an address: whatever does not fit is left out.
export function fromFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = empty();
  for (const name of [...CHOICES, ...TEXTS]) if (fields.has(name)) state[name] = fields.get(name);
  if (!["words", "pieces"].includes(state.view)) state.view = FIRST.view;
  if (!["hide", "layers", "compare"].includes(state.tab)) state.tab = FIRST.tab;
  if (!/^\d{1,3}$/.test(state.layer)) state.layer = "";
  const listed = name => (fields.get(name) ?? "").split(",").filter(Boolean);
  state.compare = [...new Set(listed("compare"))].slice(0, MOST_COMPARED);
  state.hidden = [...new Set(listed("hidden").filter(word => /^\d{1,5}$/.test(word)).map(Number))];
  return state;
}
