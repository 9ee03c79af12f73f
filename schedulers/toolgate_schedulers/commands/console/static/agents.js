// Live trees of agents. A row keeps its place in the page while its agent lives, so that focus stays.
import { $, every, get, h, lasting, named, number, post, say, short, table, visible } from "./dom.js";

const rows = new Map();
const dialog = $("stop");
let body = null, living = [], order = "";

export function startAgents(wanted) {
  $("stop-all").addEventListener("click", () => ask(null));
  return every(1, wanted, look);
}

async function look() {
  const found = await get("/api/agents");
  living = found.agents;
  $("agents-empty").hidden = living.length > 0;
  $("agents").hidden = !living.length;
  $("stop-all").hidden = !living.length;
  $("agents-more").hidden = !found.more;
  $("agents-more").textContent = `and ${number(found.more)} more: toolgate agents`;
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
    const name = visible(one.agent || "(no name)");
    const cells = ["now", "turns", "calls", "vetoes", "spent", "age"].map((kind) => h("td", { class: kind === "now" ? "" : "num" }));
    const button = h("button", { type: "button", class: "quiet", "aria-label": `Stop ${name} ${short(one.session)}`, onclick: () => ask(one) }, "Stop…");
    const head = h("th", { scope: "row", title: visible(one.lineage.join(" > ")) }, name, h("span", { class: "muted" }, ` ${visible(short(one.session))}`));
    row = { cells, head, button, node: h("tr", { "data-session": one.session }, head, cells, h("td", { class: "num" }, button)) };
    rows.set(one.session, row);
  }
  row.head.style.paddingLeft = `${Math.min(one.depth, 12) * 1.25}rem`;
  row.button.disabled = one.doing === "idle" && !living.some((other) => other.parent === one.session);
  const words = [visible(one.stopped ? `stopped: ${one.doing}` : one.doing), number(one.turns), number(one.calls), one.vetoes ? number(one.vetoes) : "·", one.spent ?? "·", lasting(one.age)];
  row.cells.forEach((cell, at) => { if (cell.textContent !== words[at]) cell.textContent = words[at]; });
}

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

function below(session) {
  const found = living.filter((one) => one.parent === session);
  return found.flatMap((one) => [one, ...below(one.session)]);
}

function ask(one) {
  const many = one ? (one.root === one.session ? living.filter((other) => other.root === one.session) : [one, ...below(one.session)]) : living;
  const whom = one ? visible(one.agent || "this agent") : "every agent";
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const choice = (value, words, checked) => h("label", { class: "check" }, h("input", { type: "radio", name: "when", value, checked }), words);
  const form = h("form", { method: "dialog" },
    h("h2", { id: "stop-title" }, `Stop ${whom}?`),
    h("p", {}, one ? `${number(many.length)} ${many.length === 1 ? "agent ends its turn" : "agents end their turns: it, and all that work for it"}.`
      : `${number(many.length)} ${many.length === 1 ? "agent ends its turn" : "agents end their turns"}, in every process of the namespace.`),
    h("p", {}, "The stop stands until somebody lifts it: new turns end at once, and new calls are denied."),
    choice("after", "After the tools that run now", true), choice("now", "At once: tools that run are cancelled", false), problem,
    h("div", { class: "buttons" }, h("span", { class: "gap" }),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: "danger" }, "Stop")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    problem.hidden = true;
    try {
      const { turns, stop } = await post("/api/agents/stop", { session: one ? one.session : null, now: form.elements.when.value === "now" });
      const told = turns ? `Told ${turns} ${turns === 1 ? "agent" : "agents"} to stop` : "Nobody was at work";
      say(`${told}; the stop stands until you lift it: toolgate agents resume ${stop}`);
      dialog.close();
      look();
    } catch (error) {
      button.disabled = false;
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}
