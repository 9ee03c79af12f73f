// Charts over time, drawn by uPlot (in the folder uplot). A chart stays while its data change; it is made anew for
// another width, another theme or other lines.
import { clock, h, put } from "./dom.js";

/* global uPlot */
const made = new WeakMap();
const HEIGHT = 190, PALETTE = ["accent", "purple", "green", "amber", "red", "muted"];

/** The colour of a line by its number; names of custom properties in style.css. */
export const colourOf = (number) => PALETTE[number % PALETTE.length];

const root = document.documentElement;
const ink = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

/**
 * Draw a chart into a figure. `times` are seconds; `lines` are {name, note, colour, values, bars, dash}; `words` turns a
 * value into text; `top` is the least height of the scale; `log` takes powers of ten; `label` says it all in words.
 */
export function plot(figure, { title, label, times, lines, words, top = 0, log = false }) {
  const width = Math.floor(figure.clientWidth - parseFloat(getComputedStyle(figure).paddingLeft) * 2);
  if (width < 80) return; // it is not shown
  const key = JSON.stringify([width, isDark(), title, lines.map(({ name, colour }) => [name, colour])]);
  const data = [times, ...lines.map(({ values }) => values)];
  let one = made.get(figure);
  if (one?.key === key) {
    one.top = top;
    one.chart.setData(data);
  } else {
    one?.chart.destroy();
    one = { key, top, place: h("div", { class: "plot", role: "img" }), values: lines.map(() => h("b")), notes: lines.map(() => h("span")) };
    const keys = lines.map(({ name, colour, dash, bars }, at) => {
      const mark = h("span", { class: `swatch ${dash ? "dash" : ""} ${bars ? "block" : ""}` });
      mark.style.color = `var(--${colour})`;
      return h("span", { class: "legend" }, mark, `${name} `, one.values[at], one.notes[at]);
    });
    figure.replaceChildren(h("figcaption", {}, h("b", { class: "title" }, title), keys), one.place);
    one.chart = new uPlot(options(one, { width, lines, words, log }), data, one.place);
    made.set(figure, one);
  }
  one.lines = lines;
  one.place.setAttribute("aria-label", label);
  tell(one, lines, words);
}

/** Remove a chart, and show something else in its place. */
export function unplot(figure, ...children) {
  made.get(figure)?.chart.destroy();
  made.delete(figure);
  figure.replaceChildren(...children);
}

/** The values under the cursor, or else the newest ones. */
function tell(one, lines, words) {
  const at = one.chart.cursor.idx;
  lines.forEach(({ note }, number) => {
    const values = one.chart.data[number + 1];
    const value = at === null || at === undefined ? values.findLast((each) => each !== null) : values[at];
    const text = value === null || value === undefined ? "–" : words(value);
    put(one.values[number], text);
    put(one.notes[number], note ? ` ${note}` : "");
  });
}

const wholePowers = (_, splits) => splits.map((value) => (Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6) ? value : null));

function options(one, { width, lines, words, log }) {
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: ink("muted"), font, grid: { stroke: ink("line"), width: 1 }, ticks: { show: false } };
  const linear = (_, __, most) => [0, Math.max(one.top, (most ?? 0) * 1.08, 1e-9)];
  const powers = (_, least, most) => [10 ** Math.floor(Math.log10(Math.max(least ?? 1, 0.1))), 10 ** Math.ceil(Math.log10(Math.max(most ?? 10, 1)) + 0.01)];
  return {
    width, height: HEIGHT, legend: { show: false }, padding: [8, 4, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true }, y: log ? { distr: 3, range: powers } : { range: linear } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => clock(at).slice(0, 5)) },
      { ...axis, size: 58, space: 34, grid: log ? { ...axis.grid, filter: wholePowers } : axis.grid, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : words(tick))) },
    ],
    series: [{}, ...lines.map(({ name, colour, bars, dash }) => ({
      label: name, stroke: ink(colour), width: bars ? 0 : 2, dash: dash ? [5, 4] : undefined, spanGaps: true,
      fill: bars ? ink(colour) : undefined, paths: bars ? uPlot.paths.bars({ size: [0.8, 40] }) : undefined,
      points: { show: bars ? false : (chart, number) => chart.data[number].filter((each) => each !== null).length === 1 },
    }))],
    hooks: { setCursor: [() => one.chart && tell(one, one.lines, words)] },
  };
}
