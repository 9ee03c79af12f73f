// Charts as SVG, drawn here. Points are [decisions, vetoes, overrides].
import { clock, svg } from "./dom.js";

const rateOf = ([all, part]) => (all ? part / all : null);

/** Line segments through the points that have a value; a gap where there were no decisions. */
function path(values, x, y) {
  let made = "", drawing = false;
  values.forEach((value, at) => {
    if (value === null) { drawing = false; return; }
    made += `${drawing ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = true;
  });
  return made;
}

/** Points without neighbours, which a line would not show. */
const alone = (values, x, y, kind, radius) => values.map((value, at) =>
  value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null
    ? svg("circle", { class: `point ${kind}`, cx: x(at), cy: y(value), r: radius }) : null);

/** A round upper bound for a rate: 5 %, 10 %, 25 %, 50 % or all. */
export const topOf = (most) => [0.05, 0.1, 0.25, 0.5].find((top) => most <= top) ?? 1;

/** Small chart in a row of a table; all charts of a table share `top`. */
export function spark(series, top) {
  const width = 160, height = 24;
  const x = (at) => 3 + (at * (width - 6)) / (series.length - 1), y = (value) => height - 2 - (value / top) * (height - 4);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    svg("path", { class: "base", d: `M0 ${height - 2}H${width}` }),
    svg("path", { class: "line veto", d: path(series.map(rateOf), x, y) }),
    alone(series.map(rateOf), x, y, "veto", 2));
}

/** Large chart: veto and override rate as lines, decisions as bars below. */
export function overview(data, label, width) {
  const height = 240, left = 48, right = 4, top = 10, lines = 150, bars = 40, gap = 16;
  const { series } = data.all;
  const rates = series.map(rateOf), overrides = series.map(([all, , part]) => (all ? part / all : null));
  const most = topOf(Math.max(0, ...rates.filter(Number.isFinite), ...overrides.filter(Number.isFinite)));
  const step = (width - left - right) / series.length;
  const x = (at) => left + (at + 0.5) * step, y = (value) => top + lines - (value / most) * lines;
  const busiest = Math.max(1, ...series.map(([all]) => all));
  const floor = top + lines + gap + bars;
  const grid = [0, 0.5, 1].map((part) => svg("g", {},
    svg("path", { class: "grid", d: `M${left} ${y(part * most)}H${width - right}` }),
    svg("text", { x: left - 8, y: y(part * most) + 4, "text-anchor": "end" }, `${+(part * most * 100).toFixed(1)} %`)));
  const times = [0, 0.5, 1].map((part) => svg("text", {
    x: left + part * (width - left - right), y: height - 2,
    "text-anchor": ["start", "middle", "end"][part * 2],
  }, clock(data.since + part * (data.until - data.since)).slice(0, 5)));
  const columns = series.map(([all], at) => svg("rect", {
    class: "volume", x: left + at * step + 0.5, width: Math.max(1, step - 1),
    y: floor - (all / busiest) * bars, height: (all / busiest) * bars,
  }));
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    grid, columns,
    svg("text", { x: left - 8, y: floor - bars + 8, "text-anchor": "end" }, String(busiest)),
    svg("path", { class: "grid", d: `M${left} ${floor}H${width - right}` }),
    svg("path", { class: "line override", d: path(overrides, x, y) }),
    svg("path", { class: "line veto", d: path(rates, x, y) }),
    alone(overrides, x, y, "override", 3), alone(rates, x, y, "veto", 3), times);
}
