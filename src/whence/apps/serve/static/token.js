// Asking for the server's token: one question at a time, however many requests wait for it.

import { byId } from "./dom.js";

let asking = null;

// The token, or null if the reader will not give one. wrong: one was given already and the server did not take it.
export function askForToken(wrong) {
  asking ??= open(wrong).finally(() => { asking = null; });
  return asking;
}

function open(wrong) {
  const dialog = byId("token");
  const field = byId("token-value");
  byId("token-says").textContent = wrong
    ? "The server did not take that token. Please try again."
    : "Whoever started whence serve has it. It is kept until you close this tab.";
  field.value = "";
  field.removeAttribute("aria-invalid");
  if (wrong) field.setAttribute("aria-invalid", "true");
  return new Promise(resolve => {
    const done = value => {
      dialog.close();
      resolve(value);
    };
    byId("token-form").onsubmit = event => {
      event.preventDefault();
      done(field.value.trim() || null);
    };
    byId("token-cancel").onclick = () => done(null);
    dialog.oncancel = event => {
      event.preventDefault();
      done(null);
    };
    dialog.showModal();
  });
}
