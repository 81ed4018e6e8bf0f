// The fields of each task, what is sent of them, and the choices of target and contrast.

import { fill, make } from "./dom.js";
import { labelOf, percent } from "./scale.js";

const NLI = ["entail", "neutral", "contradict"];
const OPEN = ["masked-lm", "causal-lm"]; // their targets are words of a vocabulary
const SPANS = [["", "The answer"], ["start", "Where it starts"], ["end", "Where it ends"], ["no-answer", "No answer"]];

const isNli = model => model.labels.length > 0 && model.labels.every(label => NLI.some(start => label.toLowerCase().startsWith(start)));

// [{name, label, hint, optional}]
export function fieldsOf(model, state) {
  if (model.task === "question-answering") {
    return [
      { name: "question", label: "Question", hint: "Who …?" },
      { name: "context", label: "Context", hint: "A passage that holds the answer" },
    ];
  }
  if (model.task === "masked-lm") {
    return [{ name: "text", label: `Sentence with ${maskOf(model)}`, hint: `A sentence with a ${maskOf(model)} to fill`, mask: true }];
  }
  if (model.task === "causal-lm") {
    return [
      { name: "text", label: "Prompt", hint: "Once upon a" },
      { name: "continuation", label: "Continuation", hint: "Leave empty for the next word", optional: true },
    ];
  }
  if (model.task !== "sequence-classification") return [{ name: "text", label: "Text", hint: "Type or paste a text" }];
  if (isNli(model)) {
    return [
      { name: "text", label: "Premise", hint: "What is known" },
      { name: "pair", label: "Hypothesis", hint: "What may follow from it" },
    ];
  }
  const second = { name: "pair", label: "Second text", hint: "For models that read two", optional: true, folded: !state.pair };
  return [{ name: "text", label: "Text", hint: "Type or paste a text" }, second];
}

const maskOf = model => model.mask_token ?? "[MASK]";

// Draw the form; typed(name, value) hears every change.
export function drawInputs(form, model, state, typed) {
  const fields = fieldsOf(model, state);
  form.replaceChildren(...fields.map(field => drawField(model, state, field, typed)));
}

function drawField(model, state, field, typed) {
  const id = `input-${field.name}`;
  const area = make("textarea", { id, name: field.name, rows: 1, placeholder: field.hint, dir: "auto", spellcheck: "false" });
  area.value = state[field.name];
  area.addEventListener("input", () => typed(field.name, area.value));
  const label = make("label", { for: id }, field.label, field.optional ? make("span", { class: "muted" }, " (optional)") : null);
  const box = make("div", { class: "field" }, label, area);
  if (field.mask) {
    const insert = () => {
      area.setRangeText(maskOf(model), area.selectionStart, area.selectionEnd, "end");
      area.focus();
      typed(field.name, area.value);
    };
    box.append(make("button", { type: "button", class: "small", onclick: insert }, `Insert ${maskOf(model)}`));
  }
  if (!field.folded) return box;
  box.hidden = true;
  const open = make("button", { type: "button", class: "small" }, "Add a second text");
  open.addEventListener("click", () => {
    box.hidden = false;
    open.remove();
    area.focus();
  });
  return make("div", {}, open, box);
}

// What a request says of the input; null while there is nothing to ask about.
export function question(model, state) {
  const given = fieldsOf(model, state).filter(field => state[field.name] !== "" || !field.optional);
  if (given.some(field => !state[field.name].trim() && !field.optional)) return null;
  return { model: model.name, ...Object.fromEntries(given.map(field => [field.name, state[field.name]])) };
}

// What is explained: target and contrast, as far as they go with the input.
export function aim(state) {
  const target = state.continuation === "" ? state.target : ""; // a continuation is itself the target
  return { ...(target !== "" && { target }), ...(state.contrast !== "" && { contrast: state.contrast }) };
}

export function drawTargets(boxes, model, state, prediction, chosen) {
  boxes.target.hidden = model.task === "causal-lm" && state.continuation !== "";
  boxes.contrast.hidden = false;
  if (OPEN.includes(model.task)) {
    word(boxes.target, "target", "Target", "The likeliest", state.target, prediction, chosen);
    word(boxes.contrast, "contrast", "Rather than", "Nothing", state.contrast, prediction, chosen);
  } else if (model.task === "question-answering") {
    list(boxes.target, "target", "Target", SPANS, state.target, chosen);
    word(boxes.contrast, "contrast", "Rather than", "Another answer", state.contrast, null, chosen);
  } else {
    const chances = new Map(prediction?.probabilities ?? []);
    const named = label => [label, chances.has(label) && prediction.probability !== null ? `${labelOf(label)} · ${percent(chances.get(label))}` : labelOf(label)];
    const aimed = state.target || prediction?.label;
    list(boxes.target, "target", "Target", [["", "Predicted"], ...model.labels.map(named)], state.target, chosen);
    const others = model.labels.filter(label => label !== aimed);
    list(boxes.contrast, "contrast", "Rather than", [["", "Nothing"], ...others.map(named)], state.contrast, chosen);
    boxes.contrast.hidden = others.length < 1 || model.task === "token-classification";
  }
}

function list(box, name, label, options, value, chosen) {
  let select = box.querySelector("select");
  if (!select) {
    select = make("select", { id: name, onchange: () => chosen(name, select.value) });
    box.replaceChildren(make("label", { for: name }, label), select);
  }
  fill(select, options, value);
}

function word(box, name, label, hint, value, prediction, chosen) {
  let field = box.querySelector("input");
  if (!field) {
    field = make("input", { id: name, list: `${name}-known`, placeholder: hint, dir: "auto", autocomplete: "off", spellcheck: "false" });
    field.addEventListener("change", () => chosen(name, field.value));
    box.replaceChildren(make("label", { for: name }, label), field, make("datalist", { id: `${name}-known` }));
  }
  if (document.activeElement !== field) field.value = value;
  const known = (prediction?.probabilities ?? []).map(([own, p]) => make("option", { value: own }, `${labelOf(own)} ${percent(p)}`));
  box.querySelector("datalist").replaceChildren(...known);
}
