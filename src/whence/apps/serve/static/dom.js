// Small helpers around the DOM. Texts always go in as text nodes: nothing here, or anywhere, parses markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = id => document.getElementById(id);

// make("button", {class: "chip", type: "button", onclick: f}, "text", node, …)
export function make(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

// A select with these options; [value, text] or {group, options}. The value stays where it is still there.
export function fill(select, options, value) {
  const option = ([own, text]) => make("option", { value: own }, text);
  select.replaceChildren(
    ...options.map(o => (Array.isArray(o) ? option(o) : make("optgroup", { label: o.group }, ...o.options.map(option)))),
  );
  select.value = value;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

export function debounce(wait, call) {
  let timer;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
