// Calls that have slots, since when, and calls that wait, with place and reason; operators change them. Panels and
// rows keep their place in the page while they last, so that focus stays.
import { $, every, get, h, keyed, lasting, named, number, put, short, table, visible } from "./dom.js";
import { askDrain, askDrop, askLimit, askMove } from "./queue-orders.js";

export const startQueue = (wanted) => every(1, wanted, look);

async function look() {
  const { queues } = await get("/api/queue");
  const pools = queues.flatMap(({ scheduler, pools: own }) => own.map((one) => ({ ...one, scheduler })));
  const more = queues.reduce((sum, one) => sum + one.more, 0);
  $("queue-empty").hidden = queues.length > 0;
  $("queue-more").hidden = !more;
  put($("queue-more"), `and ${number(more)} more pools: toolgate queue`);
  keyed($("queue"), pools, (one) => `${one.scheduler}\n${one.name}`, makePanel, drawPanel);
}

/** Slots in use, in words; `most` is null where nothing limits them. */
export const inUse = (pool) => (pool.most === null ? `${number(pool.in_use)} in use, no limit` : `${number(pool.in_use)} of ${number(pool.most)} in use`);

const COLUMNS = [["place", ""], ["call", ""], ["tool", ""], ["agent", ""], ["session", ""], ["tenant", ""], ["for", "num"], ["fence", "num"], ["", ""], ["", "num"]];
const act = (words, what, whom, onclick) => h("button", { type: "button", class: `quiet ${what}`, "aria-label": `${words} ${whom}`, onclick }, `${words}…`);

function makePanel(one) {
  const name = visible(one.name), panel = { pool: one, marks: h("span"), figures: h("p"), left: h("p", { class: "note" }) };
  panel.drain = act("Drain", "danger", name, () => askDrain(panel.pool, look));
  const limit = act("Limit", "", name, () => askLimit(panel.pool, look));
  panel.whole = table(`Calls of ${name}`, COLUMNS, []);
  panel.body = panel.whole.querySelector("tbody");
  panel.node = h("section", { class: "panel", "data-pool": one.name },
    h("div", { class: "head" }, h("h2", {}, name, h("span", { class: "muted" }, ` ${visible(one.scheduler)}`), panel.marks),
      h("div", { class: "buttons" }, limit, panel.drain)),
    panel.figures, panel.whole, panel.left);
  return panel;
}

function drawPanel(panel, one) {
  panel.pool = one;
  const marks = [
    one.ruled === 0 ? "drained" : one.ruled !== null && `limited to ${one.ruled} by an operator`,
    one.adapted !== null && `its tool bears ${one.adapted}`,
  ].filter(Boolean);
  if (panel.marks.textContent !== marks.join("")) panel.marks.replaceChildren(...marks.map((mark) => h("span", { class: "mark" }, mark)));
  put(panel.figures, `${inUse(one)}, ${number(one.waits)} wait`);
  const calls = [...one.held, ...one.waiting], left = one.in_use + one.waits - calls.length;
  panel.drain.hidden = one.ruled === 0;
  panel.whole.hidden = !calls.length;
  panel.left.hidden = !left;
  put(panel.left, `and ${number(left)} more: toolgate queue`);
  keyed(panel.body, calls, (each) => `${each.place ? "waits" : "has"} ${each.id}`, (each) => makeRow(panel, each), drawRow);
  named(panel.body.parentElement);
}

function makeRow(panel, one) {
  const cells = COLUMNS.slice(1).map(([, kind]) => h("td", { class: kind })), head = h("th", { scope: "row" });
  const row = { call: one, head, cells, node: h("tr", { "data-call": one.id }, head, cells) };
  cells[7].className = "muted";
  if (one.place) {
    const whom = `${visible(one.tool)} of ${visible(one.agent || "an agent")} ${short(one.id)}`;
    cells[8].append(h("span", { class: "acts" }, act("Move", "", whom, () => askMove(panel.pool, row.call, look)),
      act("Drop", "danger", whom, () => askDrop(panel.pool, row.call, look))));
  }
  return row;
}

function drawRow(row, one) {
  row.call = one;
  put(row.head, one.place ? number(one.place) : "has it");
  const words = [short(one.id), one.tool, one.agent, short(one.session), one.tenant, lasting(one.for_s), one.fence ? number(one.fence) : "–", one.why];
  words.forEach((text, at) => put(row.cells[at], visible(text)));
}
