// The time that charts show: one choice for all views.
let chosen = "15m";
const buttons = () => document.querySelectorAll("[data-window]");

export const timespan = () => chosen;
export const timespanWords = () => (chosen === "1h" ? "the last hour" : "the last 15 minutes");

/** `look` is called when another time is chosen. */
export function onTimespan(look) {
  for (const button of buttons()) {
    button.addEventListener("click", () => {
      chosen = button.dataset.window;
      for (const one of buttons()) one.setAttribute("aria-pressed", String(one.dataset.window === chosen));
      look();
    });
  }
}
