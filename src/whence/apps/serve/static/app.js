// The page: what the reader does, what is asked of the server, and what is drawn when it answers.

import { drop, get, keepToken, onTokenNeeded, post } from "./api.js";
import { byId, debounce, make } from "./dom.js";
import { download } from "./downloads.js";
import { asked, compared, forget, hidden, method, model, PAUSE, pieces, readAddress, set, store, writeAddress } from "./store.js";
import { themeButton } from "./theme.js";
import { askForToken } from "./token.js";
import { busy, drawAims, drawControls, drawPrediction, drawTab, drawWhy, say, showEmpty, showProblem } from "./view.js";

const BLANK = { text: "", pair: "", question: "", context: "", continuation: "", target: "", contrast: "", hidden: [], layer: "" };

// ---- asking ----------------------------------------------------------------------------------------------------------

// The input, target or contrast is new: everything is asked again.
async function refresh() {
  typedPause.cancel();
  ["predict", "explain", "play", "compare"].forEach(drop);
  forget();
  if (!asked()) return showEmpty();
  busy(true);
  await Promise.all([predict(), explain()]);
}

async function predict() {
  try {
    const whole = await post("api/predict", asked(), "predict");
    if (!whole) return;
    store.found.whole = store.found.now = whole;
    drawAims(act);
    drawPrediction();
    if (store.state.hidden.length) await predictHidden();
    else drawTab(act);
  } catch (error) {
    fail(error);
  }
}

// The prediction with some words hidden; the whole text's is known already.
async function predictHidden() {
  const words = store.state.hidden;
  drop("predict");
  try {
    const now = words.length ? await post("api/predict", { ...asked(), hidden: words }, "predict") : store.found.whole;
    if (!now) return;
    store.found.now = now;
    drawPrediction();
    drawTab(act);
  } catch (error) {
    if (error.status === 422 && words.length) act.hide([]); // a link may name words that the text does not have
    else fail(error);
  }
}

async function explain() {
  busy(true);
  ["play", "compare"].forEach(drop); // they were about what was explained before
  Object.assign(store.found, { explanation: null, played: null, playProblem: null, compared: null });
  try {
    const explanation = await post("api/explain", { ...asked(), method: method() }, "explain");
    if (!explanation) return;
    store.found.explanation = explanation;
    busy(false);
    drawWhy(act);
    fetchTab();
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  store.found.explanation = null;
  showProblem(error, refresh);
}

// Tabs that cost more than one pass ask only while they are open.
function fetchTab() {
  const { state, found } = store;
  if (!found.explanation) return;
  if (state.tab === "hide" && !found.played && !found.playProblem) play();
  if (state.tab === "compare" && !found.compared) compare();
}

async function play() {
  try {
    const played = await post("api/evaluate-text", { ...asked(), method: method() }, "play");
    if (!played) return;
    store.found.played = played;
  } catch (error) {
    store.found.playProblem = error.message;
  }
  drawTab(act);
}

async function compare() {
  const panel = byId("panel-compare");
  if (!compared().length) return drop("compare");
  panel.setAttribute("aria-busy", "true");
  try {
    const answer = await post("api/compare", { ...asked(), methods: compared() }, "compare");
    if (!answer) return;
    store.found.compared = answer.explanations;
    drawTab(act);
  } catch (error) {
    panel.querySelector(".rows").replaceChildren(make("p", { class: "problem" }, error.message));
  }
  panel.setAttribute("aria-busy", "false");
}

// ---- what the reader can do ------------------------------------------------------------------------------------------

const typedPause = debounce(PAUSE, refresh);

const act = {
  typed(name, value) {
    set({ [name]: value, hidden: [], layer: "" });
    typedPause();
  },
  take(example) {
    set({ ...BLANK, ...example });
    forget();
    drawControls(act);
    refresh();
  },
  aimed(name, value) {
    set({ [name]: value, ...(name === "target" && store.state.contrast === value && { contrast: "" }) });
    refresh();
  },
  use(name) {
    set({ method: name, layer: "" });
    byId("method").value = name;
    explain();
  },
  hide(words) {
    set({ hidden: words });
    drawWhy(act);
    predictHidden();
  },
  toggle(word) {
    const words = hidden();
    if (!words.delete(word)) words.add(word);
    act.hide([...words]);
  },
  chooseGame(name) {
    store.game = name;
    drawTab(act);
  },
  playAgain() {
    store.found.playProblem = null;
    drawTab(act);
    play();
  },
  chooseLayer(layer) {
    set({ layer: layer === null ? "" : String(layer) });
    drawWhy(act);
  },
  chooseCompared(names) {
    set({ compare: names });
    store.found.compared = null;
    drawTab(act);
    compare();
  },
};

function chooseModel(name) {
  set({ ...BLANK, text: store.state.text, question: store.state.question, context: store.state.context, model: name });
  forget();
  drawControls(act);
  refresh();
}

function openTab(name, focus) {
  set({ tab: name });
  drawWhy(act);
  fetchTab();
  if (focus) byId(`tab-${name}`).focus();
}

async function copyLink() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied. It holds the text and every choice.");
  } catch {
    say("The browser did not allow copying: copy the address from the address bar, it holds everything.");
  }
}

async function save(format) {
  const { tab } = store.state;
  const methods = tab === "compare" && compared().length ? compared() : [method()];
  const kind = tab === "layers" && store.found.explanation?.layers ? "layers" : "text";
  try {
    await download(format, { body: asked(), methods, kind, pieces: pieces(), name: `whence-${model().name}-${methods.join("-")}` });
    say(`Saved as ${format.toUpperCase()}.`);
  } catch (error) {
    say(error.message);
  }
}

// ---- wiring ----------------------------------------------------------------------------------------------------------

function wire() {
  byId("model").addEventListener("change", event => chooseModel(event.target.value));
  byId("method").addEventListener("change", event => act.use(event.target.value));
  byId("view").addEventListener("change", event => {
    set({ view: event.target.value });
    drawWhy(act);
  });
  byId("inputs").addEventListener("submit", event => event.preventDefault());
  byId("link").addEventListener("click", copyLink);
  for (const button of document.querySelectorAll("[data-format]")) button.addEventListener("click", () => save(button.dataset.format));
  wireTabs([...document.querySelectorAll("[role=tab]")]);
  document.querySelector(".skip").addEventListener("click", event => {
    event.preventDefault(); // the address keeps the state
    byId("why").focus();
  });
  addEventListener("hashchange", () => {
    readAddress();
    forget();
    drawControls(act);
    refresh();
  });
  addEventListener("resize", debounce(150, () => drawTab(act)));
}

function wireTabs(tabs) {
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => openTab(tab.dataset.tab));
    tab.addEventListener("keydown", event => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      openTab(tabs.at(to % tabs.length).dataset.tab, true);
    });
  });
}

// `whence serve --token auto` prints an address that holds the token: it is kept, and taken out of the address.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  keepToken(given);
  writeAddress();
}

async function start() {
  onTokenNeeded(askForToken);
  takeToken();
  try {
    const answers = await Promise.all([get("api/models"), get("api/methods"), get("healthz")]);
    [store.models, store.methods] = answers;
    byId("version").textContent = `whence ${answers[2].version}.`;
  } catch (error) {
    return showProblem(error, () => location.reload());
  }
  wire();
  drawControls(act);
  drawTab(act);
  await refresh();
}

themeButton(byId("theme"));
start();
