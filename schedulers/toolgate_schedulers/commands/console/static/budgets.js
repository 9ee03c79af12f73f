// What is spent and held of each budget.
import { $, every, get, h, show, table, visible } from "./dom.js";

export const startBudgets = (wanted) => every(2, wanted, async () => {
  const { books } = await get("/api/budgets");
  show($("budgets"), books, () => (books.length ? books.map(book) : empty()));
});

const empty = () => h("div", { class: "empty" }, h("h2", {}, "Nothing was spent yet"),
  h("p", {}, "Budgets come with the configuration of a cost-aware scheduler, and appear when a call first costs something:"),
  h("pre", {}, "toolgate scheduler run cost-aware --config costs.yaml"));

function book({ words, accounts, more }) {
  const columns = [["budget", ""], ["used", "meter"], ["left", "num"], ["spent", "num"], ["held", "num"], ["limit", "num"], ["", ""]];
  return h("section", { class: "panel" }, h("h2", {}, words),
    table(`Budgets, ${words}`, columns, accounts.map(account)),
    more ? h("p", { class: "note" }, `and ${more} more that are less full: toolgate budget list`) : "");
}

function account(one) {
  const notes = [one.limit_set && "limit set by hand", one.overruns && `${one.overruns} overruns`, one.orphans && `${one.orphans} orphans`];
  return h("tr", {},
    h("th", { scope: "row" }, visible(one.budget), h("span", { class: "muted" }, ` ${visible(one.whose)} ${one.window}`)),
    h("td", { class: "meter" }, meter(one)),
    h("td", { class: "num strong" }, one.left ?? "–"),
    h("td", { class: "num" }, one.spent), h("td", { class: "num" }, one.reserved), h("td", { class: "num" }, one.limit ?? "none"),
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
