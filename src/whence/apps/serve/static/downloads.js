// Files of what is shown: made by the server with the same renderers as the command line, saved by the browser.

import { postForBlob } from "./api.js";
import { make } from "./dom.js";
import { currentTheme } from "./theme.js";

// what: {body: input and aim, methods, kind, pieces, name}
export async function download(format, what) {
  const figure = format === "png" || format === "svg" ? { kind: what.kind } : {};
  const body = { ...what.body, methods: what.methods, format, theme: currentTheme(), pieces: what.pieces, ...figure };
  const address = URL.createObjectURL(await postForBlob("api/figure", body));
  const link = make("a", { href: address, download: `${what.name}.${format}`, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
