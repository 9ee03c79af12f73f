// Money spent and reserved of each budget.
import { $, day, every, get, h, show, table, visible } from "./dom.js";

export const startBudgets = (wanted) => every(2, wanted, async () => {
  const { books } = await get("/api/budgets");
  show($("budgets"), books, () => (books.length ? books.map(book) : empty()));
});

const empty = () => h("div", { class: "empty" }, h("h2", {}, "Nothing was spent yet"),
  h("p", {}, "Budgets come with the configuration of a cost-aware scheduler, and appear when a call first costs something:"),
  h("pre", {}, "toolgate scheduler run cost-aware --config costs.yaml"));

function book({ words, accounts, more }) {
  const columns = [["budget", ""], ["used", "meter"], ["left", "num"], ["spent", "num"], ["LLM", "num"], ["tools", "num"], ["held", "num"], ["limit", "num"], ["", ""]];
  return h("section", { class: "panel" }, h("h2", {}, words),
    table(`Budgets, ${words}`, columns, accounts.map(account)),
    more ? h("p", { class: "note" }, `and ${more} more that are less full: toolgate budget list`) : "",
    models(words, accounts));
}

/** Spending for LLMs, by model, of the accounts that paid any. */
function models(words, accounts) {
  const lines = accounts.filter((one) => one.models.length).slice(0, 20).flatMap((one) =>
    one.models.map(({ model, spent }) => h("tr", {},
      h("th", { scope: "row" }, model ? visible(model) : "model not known"),
      h("td", { class: "num" }, visible(spent)),
      h("td", {}, visible(one.budget), h("span", { class: "muted" }, ` ${visible(one.whose)}`)))));
  return lines.length ? [h("h2", {}, "LLM spend by model"),
    table(`LLM spend by model, ${words}`, [["model", ""], ["spent", "num"], ["paid by", ""]], lines)] : "";
}

function account(one) {
  const notes = [one.limit_set && "limit set by hand", one.overruns && `${one.overruns} overruns`, one.orphans && `${one.orphans} orphans`,
    one.llm === null && "its journal cannot be read yet", one.apart && `${one.apart} not told apart`];
  return h("tr", {},
    h("th", { scope: "row" }, visible(one.budget), h("span", { class: "muted" }, ` ${visible(one.whose)} ${visible(one.window)}${one.ends ? `, until ${day(one.ends)}` : ""}`)),
    h("td", { class: "meter" }, meter(one)),
    h("td", { class: "num strong" }, one.left ?? "–"),
    h("td", { class: "num" }, one.spent),
    h("td", { class: "num" }, one.llm ?? "–"), h("td", { class: "num" }, one.tools ?? "–"),
    h("td", { class: "num" }, one.reserved), h("td", { class: "num" }, one.limit ?? "none"),
    h("td", { class: "muted" }, notes.filter(Boolean).join(", ")));
}

function meter(one) {
  if (one.used === null) return h("span", { class: "muted" }, "only counted");
  const spent = h("span", { class: "spent" }), held = h("span", { class: "held" });
  spent.style.width = `${Math.min(100, 100 * one.spent_part)}%`;
  held.style.width = `${Math.max(0, Math.min(100, 100 * one.used) - Math.min(100, 100 * one.spent_part))}%`;
  const full = one.used >= 1 ? "full" : one.used >= 0.8 ? "near" : "";
  return h("span", { class: `gauge ${full}` }, h("span", { class: "track", "aria-hidden": "true" }, spent, held),
    h("span", { class: "gauge-words" }, `${Math.round(100 * one.used)} %`));
}
