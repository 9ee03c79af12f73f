// Calls that wait for a person. A card never moves while it is there, so that nobody presses the wrong one.
import { $, clock, get, h, lasting, post, say, short, show, visible } from "./dom.js";

const cards = new Map();
const dialog = $("answer");
let ahead = 0; // the console's clock minus this page's, in seconds
let asking = null, wanted = () => true, again = false, loading = false;

export function startApprovals(isShown) {
  wanted = isShown;
  setInterval(tick, 1000);
  dialog.addEventListener("close", () => { asking?.(); asking = null; });
  return look;
}

/** Take the number and ids of the waiting calls from the console. */
export function heldNow({ count, ids }) {
  $("held").hidden = !count;
  $("held").textContent = count;
  $("held").setAttribute("aria-label", `${count} waiting`);
  document.title = `${count ? `(${count}) ` : ""}Toolgate console`;
  say(count ? `${count} ${count === 1 ? "call waits" : "calls wait"} for a person` : "No call waits");
  const known = new Set(ids);
  for (const [id, card] of cards) if (!known.has(id) && !card.over) look();
  look();
}

async function look() {
  if (!wanted()) return;
  if (loading) { again = true; return; }
  loading = true;
  try {
    do {
      again = false;
      draw(await get("/api/approvals"));
    } while (again);
  } catch { /* the banner says so */ } finally { loading = false; }
}

/** Remove ended calls when the view is left. */
export function leaveApprovals() {
  for (const [id, card] of cards) if (card.over) { card.node.remove(); cards.delete(id); }
}

function draw({ waiting, over, now }) {
  ahead = now - Date.now() / 1000;
  const there = new Set(waiting.map((one) => one.id));
  for (const one of waiting) {
    if (!cards.has(one.id)) {
      const card = make(one);
      cards.set(one.id, card);
      $("cards").append(card.node);
    } else cards.get(one.id).until = one.until;
  }
  for (const [id, card] of cards) {
    if (!there.has(id) && !card.over) end(card, over.find((one) => one.id === id)?.words ?? "waits no longer");
  }
  $("approvals-empty").hidden = cards.size > 0;
  show($("approvals-empty"), "empty", () => [h("h2", {}, "No call waits"),
    h("p", {}, "Calls that need a person appear here with their arguments, as soon as a scheduler holds them. To have some held:"),
    h("pre", {}, "# approval.yaml\nrules:\n- {tools: delete_file, prompt: \"Delete this?\"}\n\ntoolgate scheduler run approval --config approval.yaml")]);
  show($("over"), over, () => over.length > 0 && h("section", { class: "panel" }, h("h2", {}, "Lately"),
    h("ul", { class: "lately" }, over.map((one) => h("li", {}, h("span", { class: "time" }, clock(one.at)),
      h("span", {}, h("code", {}, one.call), " ", h("b", {}, visible(one.words))))))));
  tick();
}

function make(one) {
  const left = h("span", { class: "left num" });
  const result = h("p", { class: "result", role: "status" });
  const always = one.always && one.session
    ? h("label", { class: "check" }, h("input", { type: "checkbox" }), "Also let later calls of this tool pass, in this session, for a day") : null;
  const card = { one, until: one.until, left, result, over: false };
  const correct = h("button", { type: "button", onclick: () => askCorrection(card) }, "Correct…");
  if (one.phase === "verify") {
    correct.disabled = true;
    correct.title = "Another scheduler's replacement can be approved or refused, not corrected";
  }
  card.buttons = h("div", { class: "buttons" },
    h("button", { type: "button", class: "primary", onclick: () => approve(card, always) }, "Approve"), correct,
    h("button", { type: "button", class: "danger", onclick: () => askReason(card) }, "Refuse…"));
  const from = [one.agent, one.session].filter(Boolean).map(visible).join(" · ");
  const labels = Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join(", ");
  card.node = h("article", { class: "card", "data-id": one.id, "aria-labelledby": `c-${one.id}` },
    h("div", { class: "cardhead" },
      h("h2", { id: `c-${one.id}` }, visible(one.tool_name), one.agent_target ? ` → ${visible(one.agent_target)}` : ""), left),
    one.prompt && h("p", { class: "prompt" }, visible(one.prompt)),
    h("p", { class: "muted" }, [from, labels && visible(labels), one.rule && `${one.rule.startsWith("rule ") ? "" : "rule "}${visible(one.rule)} of ${visible(one.scheduler)}`].filter(Boolean).join("  ·  ")),
    one.phase === "verify" && h("p", { class: "note" }, "Another scheduler put this call in the place of the agent's."),
    one.truncated && h("p", { class: "problem" }, "The arguments were too long to be sent in full: you do not see all of this call."),
    h("pre", { class: "arguments", tabindex: "0", "aria-label": "Arguments, exactly as they will run" }, one.arguments),
    h("p", { class: "digest muted" }, `call ${one.short} · sha256 ${short(one.digest)}…`),
    always, card.buttons, result);
  return card;
}

function end(card, words) {
  card.over = true;
  card.node.classList.add("over");
  card.left.textContent = "";
  for (const button of card.buttons.querySelectorAll("button")) button.disabled = true;
  if (!card.result.textContent) told(card, words, true);
  if (dialog.open && dialog.dataset.id === card.one.id) {
    const alert = dialog.querySelector(".taken");
    alert.hidden = false;
    alert.textContent = `This call needs no answer any more: ${words}.`;
    for (const button of dialog.querySelectorAll("[type=submit]")) button.disabled = true;
  }
}

function told(card, words, done) {
  card.result.textContent = visible(words);
  card.result.classList.toggle("bad", !done);
}

function tick() {
  const now = Date.now() / 1000 + ahead;
  for (const card of cards.values()) {
    if (card.over) continue;
    const seconds = card.until - now;
    card.left.textContent = `${lasting(seconds)} left`;
    card.left.classList.toggle("soon", seconds < 30);
  }
}

async function send(card, body) {
  const answer = await post(`/api/approvals/${card.one.id}/answer`, { digest: card.one.digest, ...body });
  told(card, answer.words, answer.done);
  say(answer.words);
  look();
}

async function approve(card, always) {
  busy(card, true);
  try {
    await send(card, { action: "approve", always: Boolean(always?.querySelector("input").checked) });
  } catch (error) {
    told(card, error.message, false);
    busy(card, false);
    look();
  }
}

function busy(card, is) {
  for (const button of card.buttons.querySelectorAll("button")) {
    button.disabled = is || card.over || (card.one.phase === "verify" && button.textContent === "Correct…");
  }
}

function openDialog(card, title, fields, submit, onSubmit) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h("form", { method: "dialog", novalidate: true },
    h("h2", { id: "answer-title" }, title),
    h("p", { class: "problem taken", role: "alert", hidden: true }), fields, problem,
    h("div", { class: "buttons" }, h("span", { class: "gap" }),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: submit.kind }, submit.words)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    problem.hidden = true;
    try {
      await onSubmit(form);
      dialog.close();
    } catch (error) {
      button.disabled = card.over;
      if (!wrong(form, error)) {
        problem.textContent = error.message;
        problem.hidden = false;
        look();
      }
    }
  });
  dialog.dataset.id = card.one.id;
  dialog.replaceChildren(form);
  const before = document.activeElement;
  asking = () => before?.focus();
  dialog.showModal();
}

/** Show errors by field; return true if there were any. */
function wrong(form, error) {
  const { fields = {}, doubts = {} } = error.body ?? {};
  for (const name of ["tool", "arguments"]) {
    const place = form.querySelector(`#e-${name}`);
    if (!place) return false;
    place.textContent = fields[name] ?? "";
    place.hidden = !fields[name];
    form.elements[name].setAttribute("aria-invalid", String(Boolean(fields[name])));
  }
  const list = Object.entries(doubts);
  const doubt = form.querySelector("#doubts");
  doubt.hidden = !list.length;
  doubt.querySelector("ul").replaceChildren(...list.map(([path, words]) => h("li", {}, h("code", {}, visible(path || "arguments")), ` ${words}`)));
  if (Object.keys(fields).length) form.elements[fields.arguments ? "arguments" : "tool"]?.focus();
  else if (list.length) doubt.querySelector("input").focus();
  return list.length > 0 || Boolean(fields.tool || fields.arguments);
}

function askReason(card) {
  openDialog(card, `Refuse ${visible(card.one.tool_name)}`,
    [h("label", {}, "Reason ", h("span", { class: "muted" }, "(told to the agent)"),
      h("textarea", { name: "reason", rows: "3", maxlength: "1000", autofocus: true }))],
    { words: "Refuse", kind: "danger" },
    (form) => send(card, { action: "deny", reason: form.elements.reason.value.trim() }));
}

function askCorrection(card) {
  const { one } = card;
  const tools = [...new Set([one.tool_name, ...one.tools])];
  const text = h("textarea", { name: "arguments", rows: String(Math.min(18, Math.max(6, one.arguments.split("\n").length + 1))),
    spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: "code", "aria-describedby": "e-arguments", autofocus: true });
  text.value = one.arguments;
  text.addEventListener("input", () => checkJson(text));
  const tool = h("select", { name: "tool", "aria-describedby": "e-tool" },
    tools.map((name) => h("option", { value: name, selected: name === one.tool_name }, visible(name))));
  openDialog(card, `Correct ${visible(one.tool_name)}`, [
    one.prompt && h("p", { class: "prompt" }, visible(one.prompt)),
    h("label", {}, "Tool", tool), h("p", { class: "problem", id: "e-tool", hidden: true }),
    h("label", {}, "Arguments ", h("span", { class: "muted" }, "(JSON)"), text),
    h("p", { class: "problem", id: "e-arguments", role: "alert", hidden: true }),
    h("details", {}, h("summary", {}, "The call as it waits"), h("pre", { tabindex: "0" }, one.arguments)),
    h("div", { id: "doubts", class: "doubts", role: "alert", hidden: true },
      h("p", {}, "Unlike the calls that are known:"), h("ul"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "anyway" }), "Send it anyway")),
    h("label", {}, "Reason ", h("span", { class: "muted" }, "(kept with the answer)"), h("input", { name: "reason", maxlength: "1000", autocomplete: "off" })),
  ], { words: "Run corrected call", kind: "primary" },
  (form) => send(card, {
    action: "edit", tool: form.elements.tool.value, arguments: form.elements.arguments.value,
    reason: form.elements.reason.value.trim(), anyway: form.elements.anyway.checked,
  }));
}

/** Check the text while it is typed. The console's own check decides. */
function checkJson(text) {
  const place = dialog.querySelector("#e-arguments");
  let words = "";
  try {
    const value = JSON.parse(text.value);
    if (value === null || typeof value !== "object" || Array.isArray(value)) words = "must be a JSON object";
  } catch (error) { words = `is not JSON: ${error.message}`; }
  place.textContent = words;
  place.hidden = !words;
  text.setAttribute("aria-invalid", String(Boolean(words)));
}
