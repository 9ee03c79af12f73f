// A fleet at a glance: decisions, latency and money over time, slots by tenant, who waits for whom.
import { $, every, figure, get, h, lasting, number, percent, show, short, table, visible } from "./dom.js";
import { colourOf, plot, unplot } from "./plots.js";
import { inUse } from "./queue.js";
import { timesOf } from "./rates.js";
import { onTimespan, timespan, timespanWords } from "./timespan.js";

export function startGlance(wanted) {
  const look = every(2, wanted, async () => draw(await get(`/api/glance?window=${timespan()}`)));
  onTimespan(look);
  addEventListener("resize", look);
  document.addEventListener("theme", look);
  return look;
}

function draw(data) {
  const times = timesOf(data);
  figures(data);
  decisions(data, times);
  latency(data, times);
  money(data, times);
  show($("glance-slots"), data.pools, () => slots(data.pools));
  alone(data);
  show($("glance-waits"), [data.waits.map((one) => ({ ...one, for_s: one.for_s && lasting(one.for_s) })), data.more_waits], () => waits(data));
}

const ms = (value) => (value >= 1000 ? `${+(value / 1000).toFixed(value < 10_000 ? 1 : 0)} s` : `${+value.toFixed(value < 10 ? 1 : 0)} ms`);
const quiet = (title, ...words) => [h("figcaption", {}, h("b", { class: "title" }, title)), h("p", { class: "muted" }, words)];

function figures({ all, per_second, latency: series, agents, people, waits: waiting, more_waits }) {
  const newest = series.findLast((one) => one !== null);
  const wait = waiting.length + more_waits;
  show($("glance-figures"), [all.decisions, all.vetoes, per_second, newest, agents, people, wait], () => [
    figure("decisions a second", per_second.toFixed(1)),
    figure("vetoed", percent(all.vetoes, all.decisions), `of ${number(all.decisions)}`),
    figure("half are decided in", newest ? ms(newest[0]) : "–"),
    figure("agents at work", number(agents)),
    figure("waiting", number(wait), people ? h("a", { href: "#approvals" }, `${number(people)} for a person`) : ""),
  ]);
}

function decisions({ all, step }, times) {
  const place = $("glance-decisions"), title = "Decisions and vetoes";
  if (!all.decisions) return unplot(place, ...quiet(title, `No decision in ${timespanWords()}.`));
  const of = (at) => all.series.map((point) => point[at]);
  return plot(place, {
    title: `${title}, by ${step} s`, times, words: (value) => number(Math.round(value)), top: 4,
    label: `${number(all.decisions)} decisions in ${timespanWords()}, ${number(all.vetoes)} vetoed, ${number(all.overrides)} replaced`,
    lines: [{ name: "decisions", colour: "volume", bars: true, values: of(0) }, { name: "vetoed", colour: "red", bars: true, values: of(1) },
      { name: "replaced", colour: "amber", dash: true, values: of(2) }],
  });
}

function latency({ latency: series }, times) {
  const place = $("glance-latency"), title = "Time to decide", newest = series.findLast((one) => one !== null);
  if (!newest) return unplot(place, ...quiet(title, `No decision in ${timespanWords()}.`));
  const of = (at) => series.map((one) => (one ? one[at] : null));
  return plot(place, {
    title, times, words: ms, log: true, label: `Half of the newest decisions took up to ${ms(newest[0])}, 99 of 100 up to ${ms(newest[1])}`,
    lines: [{ name: "p50", colour: "accent", values: of(0) }, { name: "p99", colour: "purple", dash: true, values: of(1) }],
  });
}

function money({ money: accounts }, times) {
  const place = $("glance-money"), title = "Money against its limits";
  const drawn = accounts.filter((one) => one.series.some((value) => value !== null));
  if (!drawn.length) return unplot(place, ...quiet(title, "No budget with a limit is in use."));
  return plot(place, {
    title, times, words: (value) => `${Math.round(100 * value)} %`, top: 1.05,
    label: drawn.map((one) => `${one.account}: ${one.spent} of ${one.limit} spent`).join("; "),
    lines: [{ name: "limit", colour: "muted", dash: true, values: times.map(() => 1) },
      ...drawn.map((one, at) => ({ name: visible(one.account), note: `${visible(one.spent)} of ${visible(one.limit)}`, colour: colourOf(at), values: one.series }))],
  });
}

// ---------------------------------------------------------------- slots

function slots(every) {
  const title = "Slots by tenant", pools = every.filter((one) => one.in_use || one.waits || one.most !== null);
  if (!pools.length) return quiet(title, "No slot is in use.");
  const tenants = [...new Set(pools.flatMap((one) => one.tenants.map(({ tenant }) => tenant)))].sort();
  const colour = (tenant) => colourOf(tenants.indexOf(tenant)), shown = pools.slice(0, 8);
  return [h("figcaption", {}, h("b", { class: "title" }, title), tenants.slice(0, 12).map((tenant) => {
    const mark = h("span", { class: "swatch block" });
    mark.style.color = `var(--${colour(tenant)})`;
    return h("span", { class: "legend" }, mark, visible(tenant || "no tenant"));
  })), ...shown.map((pool) => bar(pool, colour)), pools.length > 8 ? h("p", { class: "note" }, `and ${number(pools.length - 8)} more pools`) : ""];
}

function bar(pool, colour) {
  const whole = Math.max(pool.most ?? pool.in_use, pool.in_use, 1);
  const part = (count, tenant) => {
    const node = h("span", { class: "slot", title: `${visible(tenant || "no tenant")}: ${number(count)}` });
    node.style.width = `${(100 * count) / whole}%`;
    node.style.background = `var(--${colour(tenant)})`;
    return node;
  };
  const waiting = pool.tenants.filter((one) => one.waits).map((one) => `${visible(one.tenant || "no tenant")} ${number(one.waits)}`);
  return h("div", { class: "pool" },
    h("div", { class: "poolhead" }, h("a", { href: "#queue" }, visible(pool.name)), h("span", { class: "muted" }, inUse(pool))),
    h("div", { class: "slots", role: "img", "aria-label": pool.tenants.map((one) => `${one.tenant || "no tenant"}: ${one.held} slots, ${one.waits} wait`).join("; ") },
      pool.tenants.filter((one) => one.held).map((one) => part(one.held, one.tenant))),
    pool.waits ? h("div", { class: "note" }, `${number(pool.waits)} wait: ${waiting.join(", ")}`) : "");
}

// ---------------------------------------------------------------- left alone

function alone({ alone: rows, more_alone: more }) {
  const place = $("glance-alone"), title = "Left alone for a while";
  place.hidden = !rows.length;
  const shown = rows.map((one) => ({ ...one, for_s: lasting(one.for_s) }));
  const columns = [["tool, agent or model", ""], ["by", ""], ["why", ""], ["for", "num"]];
  show(place, [shown, more], () => [h("figcaption", {}, h("b", { class: "title" }, title)),
    table(title, columns, shown.map((one) => h("tr", {},
      h("th", { scope: "row" }, visible(one.of)), h("td", {}, visible(one.scheduler)),
      h("td", { class: "said" }, visible(one.words)), h("td", { class: "num" }, one.for_s)))),
    more ? h("p", { class: "note" }, `and ${number(more)} more`) : ""]);
}

// ---------------------------------------------------------------- waits

function waits({ waits: rows, more_waits: more }) {
  const title = "Who waits for whom";
  if (!rows.length) return quiet(title, "Nobody waits.");
  const columns = [["who", ""], ["call", ""], ["waits for", ""], ["of", ""], ["for", "num"]];
  return [h("figcaption", {}, h("b", { class: "title" }, title)),
    table(title, columns, rows.slice(0, 12).map((one) => h("tr", {},
      h("th", { scope: "row" }, visible(one.agent || "an agent"), h("span", { class: "muted" }, ` ${visible(short(one.session))}`)),
      h("td", {}, visible(one.call)), h("td", {}, visible(one.for)),
      h("td", { class: "said" }, visible([...one.whom, one.more && `${number(one.more)} more`].filter(Boolean).join(", "))),
      h("td", { class: "num" }, one.for_s === null ? "" : lasting(one.for_s))))),
    rows.length + more > 12 ? h("p", { class: "note" }, `and ${number(rows.length + more - 12)} more`) : ""];
}
