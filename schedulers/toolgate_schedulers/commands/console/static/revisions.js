// Configurations of the schedulers: rollouts, replicas, history, changes. Read only.
import { $, day, every, figure, get, h, number, percent, show, table, visible } from "./dom.js";

export const startRevisions = (wanted) => every(2, wanted, async () => {
  const { schedulers, changes, more } = await get("/api/revisions");
  show($("rollouts"), schedulers.map((one) => [one.scheduler, one.in_force, one.rollout, one.last_rollout]), () =>
    schedulers.filter((one) => one.rollout || one.last_rollout).map((one) => (one.rollout ? rollout(one) : ending(one))));
  show($("revisions"), [schedulers, more], () => inForce(schedulers, more));
  show($("histories"), schedulers.map((one) => [one.scheduler, one.history]), () =>
    schedulers.filter((one) => one.history.length).map(history));
  show($("changes"), changes, () => changes.length > 0 && told(changes));
});

const code = (text) => h("code", {}, visible(text));

function rollout({ scheduler, in_force, rollout: one }) {
  const rest = [...one.stages.slice(one.number), "all"].map(visible).join(", ");
  const lasts = one.of ? `at least until ${day(one.since + one.of)}` : "until an operator advances it";
  const sees = one.share
    ? figure("sessions with the new", number(one.sessions_new), ` of ${number(one.sessions)} alive`)
    : figure("sessions with the new", "0", ` of ${number(one.sessions)} alive: it is only asked beside`);
  return h("section", { class: "panel", "data-rollout": scheduler },
    h("h2", {}, `Rollout of ${visible(scheduler)}: `, code(in_force), " → ", code(one.to)),
    h("p", {}, h("b", {}, visible(one.stage)), `, ${lasts}; then ${rest}. Begun by ${visible(one.author || "somebody")}.`),
    h("dl", { class: "figures" }, sees,
      figure("denied, new", percent(one.vetoes, one.asked), ` of ${number(one.asked)}`),
      figure("denied, old", percent(one.was_vetoes, one.was_asked), ` of ${number(one.was_asked)}`),
      figure("failed, new", percent(one.errors, one.asked), ` old ${percent(one.was_errors, one.was_asked)}`),
      one.compared ? figure("ruled otherwise", percent(one.disagreed, one.compared), ` of ${number(one.compared)}`) : ""),
    h("p", { class: "note" }, one.undo_if ? ["Undoes itself if ", code(one.undo_if), "."] : "No condition undoes it."));
}

const ending = ({ scheduler, in_force, last_rollout: one }) => h("section", { class: "panel", "data-rollout": scheduler },
  h("h2", {}, `The last rollout of ${visible(scheduler)} is ${visible(one.ending)}`),
  h("p", {}, visible(one.why), ". In force: ", code(in_force)));

function inForce(schedulers, more) {
  if (!schedulers.length) {
    return h("div", { class: "empty" }, h("h2", {}, "No scheduler is alive, and nothing was pushed"),
      h("p", {}, "A configuration that is pushed is taken up by every replica within seconds, and can be undone:"),
      h("pre", {}, "toolgate scheduler push policy --config new.yaml --label v7"));
  }
  const columns = [["scheduler", ""], ["rules by", ""], ["tries", ""], ["", ""]];
  return h("section", { class: "panel" }, h("h2", {}, "In force"),
    table("In force", columns, schedulers.flatMap(scheduler)),
    more ? h("p", { class: "note" }, `and ${number(more)} more: toolgate scheduler status NAME`) : "");
}

function scheduler(one) {
  const notes = [one.problem, !one.replicas.length && "no replica is alive",
    one.more_replicas && `and ${number(one.more_replicas)} more replicas`].filter(Boolean);
  return [h("tr", {}, h("th", { scope: "row" }, visible(one.scheduler)),
    h("td", {}, one.in_force === "file" ? "each replica's own file" : one.in_force ? code(one.in_force) : ""), h("td"),
    h("td", { class: "said" }, visible(notes.join(", ")))),
  ...(one.doubts ?? []).map((said) => h("tr", { class: "aside", "data-doubt": one.scheduler },
    h("th", { scope: "row", class: "indent" }, "doubtful"), h("td", { colspan: "3", class: "said" }, visible(said)))),
  ...one.replicas.map(replica)];
}

const replica = (one) => h("tr", { class: "aside" },
  h("th", { scope: "row", class: "indent" }, visible(one.replica)),
  h("td", {}, one.revision ? code(one.revision) : "does not say"), h("td", {}, one.trial ? code(one.trial) : ""),
  h("td", { class: "said" }, [one.refused && `refused: ${visible(one.refused)}`, one.follows === false && "does not follow pushed configurations"]
    .filter(Boolean).join(", ")));

function history({ scheduler: name, history: rows }) {
  const columns = [["revision", ""], ["state", ""], ["by", ""], ["at", ""], ["bytes", "num"], ["", ""]];
  return h("section", { class: "panel" }, h("h2", {}, `Pushed for ${visible(name)}`),
    table(`Pushed for ${name}`, columns, rows.map((one) => h("tr", {},
      h("th", { scope: "row" }, code(one.revision)), h("td", {}, visible(one.state)), h("td", {}, visible(one.author)),
      h("td", {}, visible(one.at)), h("td", { class: "num" }, number(one.bytes)),
      h("td", {}, one.before ? h("button", { type: "button", class: "link", "aria-label": `What ${visible(one.revision)} changed`,
        onclick: () => compare(name, one) }, "what changed") : "")))));
}

async function compare(name, { digest, before, revision }) {
  const place = h("div", {});
  const close = h("button", { type: "button", onclick: () => $("diff").close() }, "Close");
  $("diff").replaceChildren(h("h2", { id: "diff-title" }, `What ${visible(revision)} of ${visible(name)} changed`), place,
    h("div", { class: "buttons" }, h("span", { class: "gap" }), close));
  $("diff").showModal();
  try {
    const { lines } = await get(`/api/revisions/${encodeURIComponent(name)}/diff?from=${before}&to=${digest}`);
    place.replaceChildren(lines.length ? h("pre", { class: "diff", tabindex: "0" }, lines.map(line))
      : h("p", {}, "Nothing: both are the same text."));
  } catch (error) {
    place.replaceChildren(h("p", { class: "problem", role: "alert" }, visible(error.message)));
  }
}

const KINDS = { "+": "plus", "-": "minus", "@": "at" };
const line = (text) => h("span", { class: KINDS[text[0]] ?? "" }, visible(text) || " ");

const EVENTS = {
  "config:pushed": "pushed", "config:undone": "undone", "rollout:started": "rollout begun", "rollout:advanced": "rollout went on",
  "rollout:done": "rollout done", "rollout:undone": "rollout undone",
};

const told = (changes) => h("section", { class: "panel" }, h("h2", {}, "Changed within a day"),
  table("Changed within a day", [["scheduler", ""], ["at", ""], ["what", ""], ["from, to", ""], ["by", ""], ["why", ""]],
    changes.map((one) => h("tr", {}, h("th", { scope: "row" }, visible(one.scheduler)),
      h("td", {}, one.at ? day(one.at) : ""), h("td", {}, EVENTS[one.event] ?? ""),
      h("td", { class: "globs" }, [one.was, one.revision].filter(Boolean).map(visible).join(" → ")),
      h("td", {}, visible(one.author)), h("td", { class: "said" }, visible(one.why))))));
