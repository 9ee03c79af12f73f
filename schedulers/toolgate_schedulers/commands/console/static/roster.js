// Living schedulers with their replicas, orchestrators, and readers of facts.
import { $, every, get, h, number, show, table, visible } from "./dom.js";

export const startRoster = (wanted) => every(2, wanted, async () => {
  const view = await get("/api/roster");
  show($("roster"), view, () => [schedulers(view.schedulers), others(view)]);
});

function schedulers(lines) {
  if (!lines.length) {
    return h("div", { class: "empty" }, h("h2", {}, "No scheduler is alive"),
      h("p", {}, "Agents run their tools without rulings, unless they require a scheduler. To start one:"),
      h("pre", {}, "toolgate scheduler run policy --config rules.yaml"));
  }
  const columns = [["scheduler", ""], ["replicas", "num"], ["priority", "num"], ["tools", ""], ["answered", "num"], ["late", "num"], ["last seen", "num"]];
  return h("section", { class: "panel" }, h("h2", {}, "Schedulers"), table("Schedulers", columns, lines.flatMap(line)));
}

function line(one) {
  const revisions = Object.keys(one.revisions);
  const marks = [
    one.shadow && "shadow", one.disagree && "replicas disagree", one.incompatible && "incompatible",
    revisions.length > 1 && `${revisions.length} revisions alive: ${revisions.join(", ")}`,
  ].filter(Boolean);
  const head = h("tr", {},
    h("th", { scope: "row" }, visible(one.name), marks.map((mark) => h("span", { class: "mark" }, visible(mark)))),
    num(one.replicas), num(one.priority), h("td", { class: "globs" }, visible(one.tools.join("  "))),
    num(one.answered), num(one.late), h("td", { class: "num" }, `${one.last_seen_s.toFixed(1)} s`));
  return [head, ...(one.members.length > 1 ? one.members.map(member) : [])];
}

const member = (one) => h("tr", { class: "aside" },
  h("th", { scope: "row", class: "indent" }, visible(one.replica)), h("td"), h("td"),
  h("td", {}, `${visible(one.host)}, pid ${one.pid}${one.revision ? `, revision ${visible(one.revision)}` : ""}`), num(one.answered), num(one.late),
  h("td", { class: "num" }, `${one.last_seen_s.toFixed(1)} s`));

const num = (value) => h("td", { class: value ? "num" : "num none" }, number(value));

function others({ orchestrators, readers }) {
  const reads = Object.entries(readers).filter(([, count]) => count);
  return h("div", { class: "two" },
    h("section", { class: "panel" }, h("h2", {}, `Orchestrators`, h("span", { class: "count" }, number(orchestrators.length))),
      orchestrators.length
        ? table("Orchestrators", [["agents", ""], ["process", ""], ["asks", ""]], orchestrators.slice(0, 100).map((one) =>
          h("tr", {}, h("th", { scope: "row" }, visible(agentsOf(one))), h("td", { class: "globs muted" }, visible(one.name)),
            h("td", {}, visible(one.asks.join(", ") || "nobody yet")))))
        : h("p", { class: "muted" }, "No agent runs now."),
      orchestrators.length > 100 ? h("p", { class: "note" }, `and ${orchestrators.length - 100} more`) : ""),
    h("section", { class: "panel" }, h("h2", {}, "Readers of facts"),
      h("dl", { class: "about" }, reads.map(([role, count]) => h("div", {}, h("dt", {}, visible(role)), h("dd", {}, number(count)))))));
}

/** The agents that a process runs, as "boss, worker (3)"; an id alone tells nobody anything. */
function agentsOf({ agents, sessions, lately }) {
  if (!sessions) return lately.length ? `lately ${lately.join(", ")}` : "no agent known";
  const named = agents.map(([name, count]) => `${name || "(no name)"}${count > 1 ? ` (${number(count)})` : ""}`);
  const rest = sessions - agents.reduce((sum, [, count]) => sum + count, 0);
  return [...named, rest && `${number(rest)} more`].filter(Boolean).join(", ");
}
