// Charts as SVG, by hand. Points are [decisions, vetoes, overrides].
import { clock, svg } from "./dom.js";

const rateOf = ([all, part]) => (all ? part / all : null);

/** Line segments through the points that have a value; a gap where there were no decisions. */
function path(values, x, y) {
  let made = "", drawing = false;
  values.forEach((value, at) => {
    if (value === null) { drawing = false; return; }
    made += `${drawing ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!drawing && (at + 1 >= values.length || values[at + 1] === null)) made += "h0.1";
    drawing = true;
  });
  return made;
}

/** A round upper bound for a rate: 5 %, 10 %, 25 %, 50 % or all. */
export const topOf = (most) => [0.05, 0.1, 0.25, 0.5].find((top) => most <= top) ?? 1;

/** The small one, in a row of a table; all of a table share `top`. */
export function spark(series, top) {
  const width = 120, height = 24;
  const x = (at) => (at * width) / (series.length - 1), y = (value) => height - 2 - (value / top) * (height - 4);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "base", d: `M0 ${height - 2}H${width}` }),
    svg("path", { class: "line veto", d: path(series.map(rateOf), x, y) }));
}

/** The large one: veto and override rate as lines, decisions as bars below. */
export function overview(data, label) {
  const width = 720, height = 220, left = 44, right = 8, top = 10, lines = 140, bars = 40, gap = 14;
  const { series } = data.all;
  const rates = series.map(rateOf), overrides = series.map(([all, , part]) => (all ? part / all : null));
  const most = topOf(Math.max(0, ...rates.filter(Number.isFinite), ...overrides.filter(Number.isFinite)));
  const step = (width - left - right) / series.length;
  const x = (at) => left + (at + 0.5) * step, y = (value) => top + lines - (value / most) * lines;
  const busiest = Math.max(1, ...series.map(([all]) => all));
  const floor = top + lines + gap + bars;
  const grid = [0, 0.5, 1].map((part) => svg("g", {},
    svg("path", { class: "grid", d: `M${left} ${y(part * most)}H${width - right}` }),
    svg("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end" }, `${+(part * most * 100).toFixed(1)} %`)));
  const times = [0, 0.5, 1].map((part) => svg("text", {
    x: left + part * (width - left - right), y: height - 2,
    "text-anchor": ["start", "middle", "end"][part * 2],
  }, clock(data.since + part * (data.until - data.since)).slice(0, 5)));
  const columns = series.map(([all], at) => svg("rect", {
    class: "volume", x: left + at * step + 0.5, width: Math.max(1, step - 1),
    y: floor - (all / busiest) * bars, height: (all / busiest) * bars,
  }));
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    grid, columns,
    svg("text", { x: left - 6, y: floor - bars + 8, "text-anchor": "end" }, String(busiest)),
    svg("path", { class: "grid", d: `M${left} ${floor}H${width - right}` }),
    svg("path", { class: "line override", d: path(overrides, x, y) }),
    svg("path", { class: "line veto", d: path(rates, x, y) }), times);
}
