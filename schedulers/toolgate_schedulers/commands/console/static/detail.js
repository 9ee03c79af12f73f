// One decision in full: the question, each verdict with its time, and the call that ran.
import { clock, get, h, named, pretty, visible } from "./dom.js";

export async function detail(id, filterBy) {
  let decision;
  try {
    decision = await get(`/api/decisions/${encodeURIComponent(id)}`);
  } catch (error) {
    return h("p", { class: "note" }, error.message);
  }
  return h("div", { "data-told": decision.followed }, words(decision), calls(decision), verdicts(decision), result(decision), about(decision, filterBy));
}

function words(decision) {
  const { why, result, after, beside } = decision.explained;
  return h("div", { class: "why" },
    why.map((one, at) => h("p", { class: at ? "" : "lead" }, visible(one))),
    result.slice(0, 1).map((one) => h("p", {}, visible(one))),
    after.map((one) => h("p", {}, visible(one))),
    beside.map((one) => h("p", { class: "muted" }, visible(one))));
}

function calls(decision) {
  const replaced = decision.outcome === "modify";
  const ran = decision.outcome === "continue" || replaced;
  return h("div", { class: "calls" },
    call(replaced ? "The LLM's call" : ran ? "What ran" : "What did not run", decision.tool_name, decision.tool_input, decision.agent_target),
    replaced && call("What ran instead", decision.final_tool, decision.final_input, decision.final_agent));
}

function call(title, tool, input, agent) {
  return h("figure", {}, h("figcaption", {}, title),
    h("pre", { tabindex: "0" }, h("b", {}, visible(tool)), agent ? ` → ${visible(agent)}` : "", "\n", pretty(input)));
}

const ROUNDS = ["select", "verify", "again", "admit"];
const roundOf = (one) => (one.again ? "again" : one.phase);

function verdicts(decision) {
  return table(decision, "Verdicts", "No verdict was heard.");
}

/** What schedulers said about what the call gave. The record has places of masks, and no text of the result. */
function result(decision) {
  const ruled = decision.result;
  if (!ruled || typeof ruled !== "object" || !ruled.outcome) return false;
  return h("div", {}, h("p", {}, h("b", {}, "Its result "), h("span", { class: `outcome o-${ruled.outcome}` }, visible(ruled.outcome))),
    table({ ...ruled, seconds: Number(ruled.seconds) || 0 }, "Verdicts on the result", "No verdict on the result was heard."));
}

function table(decision, title, none) {
  const given = (decision.verdicts ?? []).filter((one) => one && typeof one === "object");
  given.sort((a, b) => ROUNDS.indexOf(roundOf(a)) - ROUNDS.indexOf(roundOf(b)) || (a.seconds ?? 0) - (b.seconds ?? 0));
  const silent = decision.silent ?? [];
  if (!given.length && !silent.length) return h("p", { class: "note" }, none);
  const timed = given.filter((one) => one.action !== "hold").map((one) => Number(one.seconds) || 0);
  const longest = Math.max(decision.seconds, ...timed, 0.001);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    named(h("table", { class: "verdicts" },
      h("thead", {}, h("tr", {}, ["scheduler", "verdict", "said", "priority", "ms", ""].map((name, at) =>
        h("th", { scope: "col", class: at === 3 || at === 4 ? "num" : "" }, name)))),
      h("tbody", {}, given.map((one) => line(one, longest)), silent.map(missing)))));
}

function line(one, longest) {
  const marks = ["late", "shadow", "capped"].filter((mark) => one[mark]);
  if (roundOf(one) === "verify") marks.push("about the replacement");
  if (one.phase === "result" && one.again) marks.push("about the other result");
  else if (roundOf(one) === "again") marks.push("about the replacement as others changed it");
  if (one.phase === "admit") marks.push("as it was about to run");
  if (one.fence) marks.push(`number ${one.fence}`);
  if (one.problem) marks.push(one.problem === "overruled" ? "overruled" : `not valid: ${one.problem}`);
  const held = one.action === "hold";
  const seconds = Number(one.seconds) || 0;
  const bar = h("span", { class: "bar" });
  bar.style.width = `${Math.max(2, (100 * Math.min(seconds, longest)) / longest)}%`;
  const parts = (Array.isArray(one.masks) ? one.masks : []).filter(Array.isArray).slice(0, 20).map(place).join(", ");
  const said = [parts, one.reason, one.prompt].filter(Boolean).map(visible).join(" · ");
  const call = one.tool ? `${visible(one.tool)} ${one.arguments === undefined ? "" : visible(JSON.stringify(one.arguments))}` : "";
  return h("tr", { class: one.shadow || one.late ? "aside" : "" },
    h("th", { scope: "row", title: one.revision ? `revision ${visible(one.revision)}` : "" }, visible(one.scheduler)),
    h("td", {}, h("span", { class: `outcome o-${one.action}` }, one.action), marks.map((mark) => h("span", { class: "mark" }, mark))),
    h("td", { class: "said" }, said, call && h("code", {}, call)),
    h("td", { class: "num" }, String(one.priority ?? "")),
    h("td", { class: "num" }, held ? `for ${seconds} s` : (seconds * 1000).toFixed(1)),
    h("td", { class: "barcell", "aria-hidden": "true" }, held ? "" : bar));
}

/** The name of what is masked, and where it stands. */
const place = ([path, start, end, name]) =>
  [name, path || "text", start === null && end === null ? "" : `${start ?? 0}–${end ?? "end"}`].filter((one) => one !== "").join(" ");

const missing = (name) => h("tr", { class: "aside" },
  h("th", { scope: "row" }, visible(name)),
  h("td", {}, h("span", { class: "outcome o-silent" }, "silent")), h("td"), h("td"), h("td"), h("td"));

function about(decision, filterBy) {
  const only = (name, value) => value && h("div", {}, h("dt", {}, name), h("dd", {},
    h("button", { type: "button", class: "link", title: `Show only this ${name}`, onclick: () => filterBy(name, value) }, visible(value))));
  const labels = Object.entries(decision.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
  const plain = (name, value) => value && h("div", {}, h("dt", {}, name), h("dd", {}, visible(value)));
  return h("dl", { class: "about" },
    only("agent", decision.agent), only("session", decision.session), only("tool", decision.tool_name),
    plain("labels", labels), plain("asked", (decision.asked ?? []).join(", ")),
    plain("decided in", `${((decision.seconds - (decision.waited ?? 0)) * 1000).toFixed(1)} ms`),
    decision.waited > 0.05 && plain("waited to be admitted", `${decision.waited.toFixed(1)} s`),
    plain("at", `${clock(decision.at)} (the agent's clock)`),
    plain("trace", traceOf(decision)), plain("decision", decision.id));
}

function traceOf(decision) {
  const parent = decision.trace?.traceparent;
  return typeof parent === "string" ? parent.split("-")[1] : "";
}
