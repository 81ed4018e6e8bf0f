// Light or dark: as the reader's system is, until the reader chooses; the choice is kept in this browser.

const KEY = "whence-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SAYS = { system: "as your system", light: "light", dark: "dark" };

export function themeButton(button) {
  let theme = localStorage.getItem(KEY) ?? "system";
  if (!(theme in NEXT)) theme = "system";
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.dataset.theme = theme;
    button.setAttribute("aria-label", `Colours: ${SAYS[theme]}. Change to ${SAYS[NEXT[theme]]}.`);
    button.title = `Colours: ${SAYS[theme]}`;
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEY, theme);
    show();
  });
  show();
}

// What pictures are drawn in: the colours that are on the screen now.
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
