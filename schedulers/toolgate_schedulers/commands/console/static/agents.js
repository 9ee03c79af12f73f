// Live trees of agents, and the orders to them. A row keeps its place in the page while its agent lives, so that
// focus stays.
import { ask, choice, whole } from "./dialog.js";
import { $, every, get, h, lasting, named, number, post, say, short, show, table, visible } from "./dom.js";

const rows = new Map();
let body = null, living = [], order = "", look = () => {};

export function startAgents(wanted) {
  $("stop-all").addEventListener("click", () => askStop(null));
  $("pause-all").addEventListener("click", () => askPause(null));
  look = every(1, wanted, read);
  return look;
}

async function read() {
  const found = await get("/api/agents");
  living = found.agents;
  $("agents-empty").hidden = living.length > 0;
  $("agents").hidden = !living.length;
  $("stop-all").hidden = $("pause-all").hidden = !living.length;
  $("agents-more").hidden = !found.more;
  $("agents-more").textContent = `and ${number(found.more)} more: toolgate agents`;
  show($("orders"), found.orders.map((one) => ({ ...one, for_s: lasting(one.for_s), left_s: one.left_s && lasting(one.left_s) })), () => orders(found.orders));
  if (!body) make();
  const there = new Set(living.map((one) => one.session));
  for (const [session, row] of rows) if (!there.has(session)) { row.node.remove(); rows.delete(session); }
  for (const one of living) draw(one);
  place();
}

function make() {
  const columns = [["agent", ""], ["now", ""], ["turns", "num"], ["calls", "num"], ["vetoes", "num"], ["spent", "num"], ["age", "num"], ["", ""]];
  $("agents").replaceChildren(table("Agents", columns, []));
  body = $("agents").querySelector("tbody");
}

function draw(one) {
  let row = rows.get(one.session);
  if (!row) {
    const name = visible(one.agent || "(no name)"), whom = `${name} ${short(one.session)}`;
    const cells = ["now", "turns", "calls", "vetoes", "spent", "age"].map((kind) => h("td", { class: kind === "now" ? "" : "num" }));
    const act = (words, kind, onclick) => h("button", { type: "button", class: `quiet ${kind}`, "aria-label": `${words} ${whom}`, onclick }, `${words}…`);
    const button = act("Stop", "danger", () => askStop(one));
    const head = h("th", { scope: "row", title: visible(one.lineage.join(" > ")) }, name, h("span", { class: "muted" }, ` ${visible(short(one.session))}`));
    const acts = h("td", { class: "num" }, h("span", { class: "acts" }, act("Pause", "", () => askPause(one)), button));
    row = { cells, head, button, node: h("tr", { "data-session": one.session }, head, cells, acts) };
    rows.set(one.session, row);
  }
  row.head.style.paddingLeft = `${Math.min(one.depth, 12) * 1.25}rem`;
  row.button.disabled = one.doing === "idle" && !living.some((other) => other.parent === one.session);
  const words = [visible(doing(one)), number(one.turns), number(one.calls), one.vetoes ? number(one.vetoes) : "·", one.spent ?? "·", lasting(one.age)];
  row.cells.forEach((cell, at) => { if (cell.textContent !== words[at]) cell.textContent = words[at]; });
}

const doing = (one) => (one.stopped ? `stopped: ${one.doing}` : one.paused ? `paused: ${one.doing}` : one.doing);

/** Reorder rows only if the order has changed: a node that is moved loses the focus. */
function place() {
  const wanted = living.map((one) => one.session).join(" ");
  if (wanted === order) return;
  order = wanted;
  let at = body.firstElementChild;
  for (const one of living) {
    const node = rows.get(one.session).node;
    if (node === at) at = at.nextElementSibling;
    else body.insertBefore(node, at);
  }
  named(body.parentElement);
}

// ---------------------------------------------------------------- orders

const counted = (count, one, several) => `${number(count)} ${count === 1 ? one : several}`;

function below(session) {
  const found = living.filter((one) => one.parent === session);
  return found.flatMap((one) => [one, ...below(one.session)]);
}

/** The agents that an order to one of them, or to all, means. */
function meant(one) {
  if (!one) return living;
  return one.root === one.session ? living.filter((other) => other.root === one.session) : [one, ...below(one.session)];
}

const called = (one) => (one ? visible(one.agent || "this agent") : "every agent");
const session = (one) => (one ? one.session : null);
const AND_ALL = { one: ": it, and all that work for it.", all: ", in every process of the namespace." };

function askStop(one) {
  const many = meant(one).length, end = counted(many, "agent ends its turn", "agents end their turns");
  ask({
    title: `Stop ${called(one)}?`, danger: true, button: "Stop",
    words: [`${end}${one ? (many > 1 ? AND_ALL.one : ".") : AND_ALL.all}`,
      "The stop stands until somebody lifts it: new turns end at once, and new calls are denied."],
    fields: [choice("when", "after", "After the tools that run now", true), choice("when", "now", "At once: tools that run are cancelled", false)],
    send: async (form) => {
      const { turns, stop } = await post("/api/agents/stop", { session: session(one), now: form.when.value === "now" });
      const told = turns ? `Told ${turns} ${turns === 1 ? "agent" : "agents"} to stop` : "Nobody was at work";
      return `${told}; the stop stands until you lift it: toolgate agents resume ${stop}`;
    },
  }, look);
}

function askPause(one) {
  const many = meant(one).length, wait = counted(many, "agent waits", "agents wait");
  const minutes = h("input", { type: "number", name: "minutes", min: 1, max: 10080, step: 1, value: 10, "aria-label": "Minutes" });
  ask({
    title: `Pause ${called(one)}?`, button: "Pause",
    words: [`${wait} with the next call${one ? (many > 1 ? AND_ALL.one : ".") : AND_ALL.all}`,
      "Calls that run now finish. No call is denied for having waited."],
    fields: [choice("until", "resumed", "Until somebody ends the pause", true), choice("until", "time", "For these minutes", false, minutes)],
    send: async (form) => {
      const { agents } = await post("/api/agents/pause", { session: session(one), minutes: form.until.value === "time" ? whole(minutes) : null });
      return `Paused ${counted(agents, "agent", "agents")}`;
    },
  }, look);
}

function orders(standing) {
  if (!standing.length) return null;
  const columns = [["order", ""], ["whom", ""], ["by", ""], ["for", "num"], ["left", "num"], ["", "num"]];
  return h("section", { class: "panel" }, h("h2", {}, "Pauses and stops that stand"),
    table("Pauses and stops that stand", columns, standing.map((one) => h("tr", {},
      h("th", { scope: "row" }, one.stop ? "stop" : "pause", h("span", { class: "muted" }, ` ${visible(one.id)}`)),
      h("td", { class: "said" }, visible(one.everyone ? "every agent" : one.whom.split(" ").map(short).join(" "))),
      h("td", {}, visible(one.by)), h("td", { class: "num" }, lasting(one.for_s)),
      h("td", { class: "num" }, one.left_s === null ? "·" : lasting(one.left_s)),
      h("td", { class: "num" }, h("button", { type: "button", class: "quiet", "aria-label": `${one.stop ? "Lift the stop" : "End the pause"} ${visible(one.id)}`,
        onclick: () => resume(one) }, one.stop ? "Lift" : "End"))))));
}

async function resume(one) {
  try {
    await post("/api/agents/resume", { id: one.id });
    say(one.stop ? "The stop is lifted" : "The pause is over");
  } catch (error) { say(error.message); }
  look();
}
