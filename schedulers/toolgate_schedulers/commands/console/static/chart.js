// Small charts in the rows of a table, as SVG. Points are [decisions, vetoes, overrides].
import { svg } from "./dom.js";

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
