// Money spent and reserved of each budget: one page of accounts at a time, by budget and by text.
import { $, day, every, get, h, number, show, table, visible } from "./dom.js";

const form = $("budget-filters");
let paged = { book: "", page: 0 }, look = () => {};

export function startBudgets(wanted) {
  let timer;
  form.addEventListener("input", () => { paged = { book: "", page: 0 }; clearTimeout(timer); timer = setTimeout(look, 150); });
  form.addEventListener("submit", (event) => { event.preventDefault(); look(); });
  look = every(2, wanted, async () => {
    const asked = { budget: form.elements.budget.value, text: form.elements.text.value.trim(), ...paged };
    const { books } = await get(`/api/budgets?${new URLSearchParams(asked)}`);
    form.hidden = !books.length;
    choices(books);
    show($("budgets"), books, () => (books.length ? books.map(book) : empty()));
  });
  return look;
}

const empty = () => h("div", { class: "empty" }, h("h2", {}, "Nothing was spent yet"),
  h("p", {}, "Budgets come with the configuration of a cost-aware scheduler, and appear when a call first costs something:"),
  h("pre", {}, "toolgate scheduler run cost-aware --config costs.yaml"));

/** The budgets to choose from; the chosen one stays, even if its accounts are gone. */
function choices(books) {
  const field = form.elements.budget, was = field.value, counts = new Map();
  for (const { budgets } of books) for (const one of budgets) counts.set(one.budget, (counts.get(one.budget) ?? 0) + one.accounts);
  if (was && !counts.has(was)) counts.set(was, 0);
  show(field, [...counts], () => [h("option", { value: "" }, "all"),
    ...[...counts].map(([name, count]) => h("option", { value: name }, `${visible(name)} (${number(count)})`))]);
  field.value = was;
}

function book(one) {
  const { words, accounts, found } = one;
  const columns = [["budget", ""], ["used", "meter"], ["left", "num"], ["spent", "num"], ["LLM", "num"], ["tools", "num"], ["held", "num"], ["limit", "num"], ["", ""]];
  return h("section", { class: "panel" },
    h("div", { class: "head" }, h("h2", {}, words, h("span", { class: "count" }, `${number(found)} ${found === 1 ? "account" : "accounts"}`)), pager(one)),
    h("p", { class: "muted" }, one.budgets.map(summary).join(" · ")),
    accounts.length ? table(`Budgets, ${words}`, columns, accounts.map(account)) : h("p", { class: "note" }, "No account fits."),
    models(words, accounts));
}

const summary = (one) => [`${visible(one.budget)}: ${one.accounts === 1 ? "1 account" : `${number(one.accounts)} accounts`}`,
  one.full ? `${number(one.full)} used up` : one.most && `the fullest ${Math.round(100 * one.most)} %`].filter(Boolean).join(", ");

function pager({ book: name, words, page, pages }) {
  if (pages < 2) return "";
  const go = (to, said) => h("button", { type: "button", class: "quiet", disabled: to < 0 || to >= pages, "aria-label": `${said} accounts, ${words}`,
    onclick: () => { paged = { book: name, page: to }; look(); } }, said);
  return h("div", { class: "buttons" }, go(page - 1, "Previous"), h("span", { class: "muted" }, `${number(page + 1)} of ${number(pages)}`), go(page + 1, "Next"));
}

/** Spending for LLMs, by model, of the accounts that paid any. */
function models(words, accounts) {
  const lines = accounts.filter((one) => one.models.length).flatMap((one) =>
    one.models.map(({ model, spent }) => h("tr", {},
      h("th", { scope: "row" }, model ? visible(model) : "model not known"),
      h("td", { class: "num" }, visible(spent)),
      h("td", {}, visible(one.budget), h("span", { class: "muted" }, ` ${visible(one.whose)}`))))).slice(0, 20);
  return lines.length ? [h("h2", { class: "second" }, "LLM spend by model"),
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
