// Veto rates over time: of all decisions, by scheduler, by tool; each chart has its numbers beside it.
import { spark, topOf } from "./chart.js";
import { $, every, figure, get, h, number, percent, show, table, visible } from "./dom.js";
import { plot, unplot } from "./plots.js";
import { onTimespan, timespan, timespanWords } from "./timespan.js";

export function startRates(wanted) {
  const look = every(2, wanted, async () => draw(await get(`/api/rates?window=${timespan()}`)));
  onTimespan(look);
  addEventListener("resize", look);
  document.addEventListener("theme", look);
  return look;
}

function draw(data) {
  const { all } = data, words = timespanWords();
  $("rates-chart").hidden = $("rates-figures").hidden = !all.decisions;
  if (!all.decisions) {
    unplot($("rates-chart"));
    show($("rates"), words, () => h("div", { class: "empty" }, h("h2", {}, "Nothing was decided"),
      h("p", {}, `No decision in ${words}. Rates appear as soon as agents pick tools.`)));
    return;
  }
  show($("rates-figures"), [all, data.per_second], () => [
    figure("vetoed", percent(all.vetoes, all.decisions), `${number(all.vetoes)} of ${number(all.decisions)}`),
    figure("replaced", percent(all.overrides, all.decisions), number(all.overrides)),
    figure("decisions a second", data.per_second.toFixed(1), "now")]);
  const share = (at) => all.series.map((point) => (point[0] ? point[at] / point[0] : null));
  plot($("rates-chart"), {
    title: "Share of all decisions", label: `Veto rate over ${words}: ${percent(all.vetoes, all.decisions)} of ${all.decisions} decisions`,
    times: timesOf(data), words: (value) => `${+(value * 100).toFixed(1)} %`, top: 0.05,
    lines: [{ name: "replaced", colour: "amber", dash: true, values: share(2) }, { name: "vetoed", colour: "red", values: share(1) }],
  });
  show($("rates"), [data.schedulers, data.tools], () => [
    section("By scheduler", "asked", data.schedulers, true),
    section("By tool", "decisions", data.tools, false),
  ]);
}

/** The middle of each point, in seconds. */
export const timesOf = ({ since, step, points }) => Array.from({ length: points }, (_, at) => since + (at + 0.5) * step);

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
