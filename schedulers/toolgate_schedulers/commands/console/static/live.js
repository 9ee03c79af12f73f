// The live list: a bounded number of rows, drawn once a frame, however many decisions come.
import { detail } from "./detail.js";
import { $, clock, h, number, say, visible } from "./dom.js";

const MOST = matchMedia("(max-width: 44rem)").matches ? 50 : 200;
const FIELDS = ["outcome", "tool", "scheduler", "agent", "session", "text"];
const form = $("filters"), list = $("rows");
const nodes = new Map();
let coming = new Map(), fresh = false, paused = false, pressed = false, skipped = 0, frame = 0, loaded = false;
let refilter = () => {};

export function filterQuery() {
  const query = new URLSearchParams();
  for (const name of FIELDS) {
    const value = form.elements[name].value.trim();
    if (value) query.set(name, value);
  }
  return query;
}

/** `changed` is called when the filter changes. */
export function startLive(changed) {
  refilter = () => {
    $("clear").hidden = !filterQuery().size;
    skipped = 0;
    changed();
  };
  let timer;
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refilter, 250); });
  form.addEventListener("submit", (event) => { event.preventDefault(); refilter(); });
  form.addEventListener("reset", () => setTimeout(refilter));
  $("pause").addEventListener("click", togglePause);
  $("more").addEventListener("click", () => {
    const open = form.classList.toggle("open");
    $("more").setAttribute("aria-expanded", String(open));
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) { toggle(row); draw(); }
  });
  list.addEventListener("focusout", draw);
  list.addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { if (pressed) { pressed = false; draw(); } });
}

/** Decisions from the server, oldest first. */
export function take(batch) {
  loaded = true;
  if (batch.fresh) { fresh = true; coming.clear(); skipped = 0; }
  for (const row of batch.rows) {
    coming.delete(row.id);
    coming.set(row.id, row);
  }
  for (const id of coming.keys()) {
    if (coming.size <= MOST) break;
    coming.delete(id);
    if (!batch.fresh) skipped += 1;
  }
  skipped += batch.skipped;
  draw();
}

function draw() {
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; render(); });
}

/** True while somebody looks at a row: it is pressed, open, or has the focus of the keyboard. Nothing may move it then. */
const held = () => pressed || Boolean(list.querySelector('.row[aria-expanded="true"], .row:focus-visible'));

function render() {
  if ((paused || held()) && !fresh) {
    for (const [id, row] of coming) { // a verdict that came late changes its row where it stands
      const there = nodes.get(id);
      if (there) { update(there, row); coming.delete(id); }
    }
    tellPause();
    return;
  }
  if (fresh) { list.replaceChildren(); nodes.clear(); fresh = false; }
  const added = document.createDocumentFragment();
  const news = [];
  for (const row of coming.values()) {
    const there = nodes.get(row.id);
    if (there) update(there, row);
    else news.push(row);
  }
  for (const row of news.reverse()) {
    const node = make(row);
    nodes.set(row.id, node);
    added.append(node);
  }
  coming.clear();
  list.prepend(added);
  trim();
  tell();
  tellPause();
}

function trim() {
  let node = list.lastElementChild;
  while (node && list.childElementCount > MOST) {
    const before = node.previousElementSibling;
    if (!node.contains(document.activeElement)) { nodes.delete(node.dataset.id); node.remove(); }
    node = before;
  }
}

function tell() {
  $("skipped").hidden = !skipped;
  $("skipped").textContent = `${number(skipped)} more went by faster than rows are drawn. All are counted; a filter finds them.`;
  const empty = $("live-empty");
  empty.hidden = list.childElementCount > 0 || !loaded;
  document.querySelector(".cols").classList.toggle("gone", !empty.hidden || !list.childElementCount);
  if (!empty.hidden) empty.replaceChildren(...(filterQuery().size ? nothingFits() : nothingYet()));
}

const nothingFits = () => [
  h("h2", {}, "No decision fits"),
  h("p", {}, "None of the newest 2,000 does. New ones that do will appear here by themselves. Tool, scheduler and agent are exact, or a glob such as ", h("code", {}, "write_*"), "."),
];
const nothingYet = () => [
  h("h2", {}, "No decisions yet"),
  h("p", {}, "They appear here as soon as an agent picks a tool. To see some now:"),
  h("pre", {}, "toolgate scheduler run policy --config rules.yaml\ntoolgate run \"Tidy my notes\" --plan plan.yaml"),
];

function make(row) {
  const node = h("li", { "data-id": row.id },
    h("button", { type: "button", class: "row rowgrid", "aria-expanded": "false" }));
  fillRow(node.firstElementChild, row);
  return node;
}

function update(node, row) {
  fillRow(node.firstElementChild, row);
  if (node.firstElementChild.getAttribute("aria-expanded") === "true") open(node);
}

function fillRow(button, row) {
  const notes = [
    row.late && `${row.late} late`, ...row.shadow.map((one) => `shadow ${one}`),
    row.silent.length && `silent: ${row.silent.join(", ")}`, row.result,
  ].filter(Boolean).join(" · ");
  button.replaceChildren(
    h("span", { class: "time" }, clock(row.at)),
    h("span", { class: `outcome o-${row.outcome}` }, row.outcome),
    h("span", { class: "call" },
      h("b", {}, visible(row.tool)), " ", h("span", { class: "args" }, visible(row.input)),
      (row.final_tool || (row.reason && row.outcome !== "continue")) && h("span", { class: "reason" },
        row.final_tool && h("span", { class: "instead" }, "→ ", visible(row.final_tool)), visible(row.reason))),
    h("span", { class: "from" }, visible(row.agent || "–"), h("span", { class: "muted" }, " ", visible(row.session))),
    h("span", { class: "by" }, visible(row.by || WORDS[row.why] || row.why), notes && h("span", { class: "muted notes" }, visible(notes))),
    h("span", { class: "num ms" }, row.ms.toFixed(1), h("span", { class: "unit" }, " ms")));
}

const WORDS = { agreed: "all agreed", unasked: "nobody asked", failed_open: "failed open", bus_down: "bus was away", no_approver: "no approver", gate_failed: "gate failed" };

function toggle(row) {
  const node = row.parentElement;
  if (row.getAttribute("aria-expanded") === "true") {
    row.setAttribute("aria-expanded", "false");
    node.querySelector(".detail")?.remove();
  } else {
    row.setAttribute("aria-expanded", "true");
    open(node);
  }
}

async function open(node, looks = 3) {
  const made = await detail(node.dataset.id, filterBy);
  if (node.firstElementChild.getAttribute("aria-expanded") !== "true") return;
  node.querySelector(".detail")?.remove();
  node.append(h("div", { class: "detail" }, made));
  const ran = node.querySelector(".row .o-continue, .row .o-modify"); // its tool may still run
  if (ran && made.dataset.told === "0" && looks) setTimeout(() => open(node, looks - 1), 1500);
}

/** Show only the decisions that fit. */
export function filterBy(name, value) {
  form.elements[name].value = value;
  refilter();
  form.scrollIntoView({ block: "nearest" });
}

function tellPause() {
  const waits = coming.size, still = paused || (waits > 0 && held());
  const words = !still ? "Pause" : waits ? `Go on (${waits >= MOST ? `${MOST}+` : waits} new)` : "Go on";
  if ($("pause").textContent !== words) $("pause").textContent = words;
  $("pause").setAttribute("aria-pressed", String(still));
}

/** Pause, or go on; to go on from an open row is to close it. */
export function togglePause() {
  if (paused || (coming.size && held())) {
    paused = false;
    for (const row of list.querySelectorAll('.row[aria-expanded="true"]')) toggle(row);
    if (list.contains(document.activeElement)) document.activeElement.blur();
  } else paused = true;
  tellPause();
  say(paused ? "Paused" : "Live again");
  draw();
}

/** Handle keys of this view; return true if the key was one of them. */
export function liveKey(event) {
  const rows = [...list.querySelectorAll(".row")];
  const at = rows.indexOf(document.activeElement?.closest?.("li")?.firstElementChild);
  const go = (next) => { rows[Math.max(0, Math.min(rows.length - 1, next))]?.focus(); return true; };
  switch (event.key) {
    case "j": case "ArrowDown": return rows.length > 0 && (event.key === "j" || at >= 0) && go(at + 1);
    case "k": case "ArrowUp": return at >= 0 && go(at - 1);
    case "p": togglePause(); return true;
    case "/": form.elements.text.focus(); return true;
    case "Escape": {
      const row = rows[at];
      if (row?.getAttribute("aria-expanded") === "true") { toggle(row); row.focus(); return true; }
      return false;
    }
    default: return false;
  }
}
