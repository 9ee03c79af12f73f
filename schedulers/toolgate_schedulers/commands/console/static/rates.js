// Veto rates over time: of all decisions, by scheduler, by tool; each chart has its numbers beside it.
import { overview, spark, topOf } from "./chart.js";
import { $, every, get, h, number, percent, show, table, visible } from "./dom.js";

let window_ = "15m";

export function startRates(wanted) {
  const look = every(2, wanted, async () => draw(await get(`/api/rates?window=${window_}`)));
  for (const button of document.querySelectorAll("[data-window]")) {
    button.addEventListener("click", () => {
      window_ = button.dataset.window;
      for (const one of document.querySelectorAll("[data-window]")) one.setAttribute("aria-pressed", String(one === button));
      look();
    });
  }
  addEventListener("resize", look);
  return look;
}

function draw(data) {
  const words = window_ === "1h" ? "the last hour" : "the last 15 minutes";
  const all = data.all;
  if (!all.decisions) {
    show($("rates"), words, () => h("div", { class: "empty" }, h("h2", {}, "Nothing was decided"),
      h("p", {}, `No decision in ${words}. Rates appear as soon as agents pick tools.`)));
    return;
  }
  const width = Math.max(260, $("rates").clientWidth - 42);
  show($("rates"), [data, width], () => [
    h("dl", { class: "figures" },
      figure("vetoed", percent(all.vetoes, all.decisions), `${number(all.vetoes)} of ${number(all.decisions)}`),
      figure("replaced", percent(all.overrides, all.decisions), number(all.overrides)),
      figure("decisions a second", data.per_second.toFixed(1), "now")),
    h("figure", { class: "panel" },
      h("figcaption", {}, h("span", { class: "key veto" }, "vetoed"), h("span", { class: "key override" }, "replaced"), h("span", { class: "key volume" }, "decisions")),
      overview(data, `Veto rate over ${words}: ${percent(all.vetoes, all.decisions)} of ${all.decisions} decisions`, width)),
    section("By scheduler", "asked", data.schedulers, true),
    section("By tool", "decisions", data.tools, false),
  ]);
}

const figure = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));

function section(title, counted, lines, schedulers) {
  const top = topOf(Math.max(0, ...lines.flatMap((one) => one.series.map(([all, part]) => (all ? part / all : 0)))));
  const columns = [["name", ""], [counted, "num"], ["vetoed", "num"], ["veto rate", "num"], ["replaced", "num"],
    ...(schedulers ? [["late", "num"], ["silent", "num"]] : []), [`over time, to ${top * 100} %`, "sparkcell"]];
  return h("section", { class: "panel" }, h("h2", {}, title),
    table(`Veto rates ${title.toLowerCase()}`, columns, lines.map((one) => h("tr", {},
      h("th", { scope: "row" }, visible(one.name), one.shadow ? h("span", { class: "mark" }, "shadow") : ""),
      cell(one.decisions), cell(one.vetoes),
      h("td", { class: "num strong" }, percent(one.vetoes, one.decisions)),
      cell(one.overrides),
      schedulers && [cell(one.late), cell(one.silent)],
      h("td", { class: "sparkcell" }, spark(one.series, top))))));
}

const cell = (value) => h("td", { class: value ? "num" : "num none" }, value ? number(value) : "·");
