// Rules tried on the newest decisions while they are typed, then pushed as a shadow or for a share of the sessions.
import { ask, choice, whole } from "./dialog.js";
import { $, figure, get, h, number, percent, post, show, table, visible } from "./dom.js";
import { filterBy } from "./live.js";

const form = $("trial"), PAUSE_MS = 50;
const SAMPLE = "rules:\n  - tools: delete_*\n    action: ask\n    prompt: Delete this?\ndefault: allow\n";
let policies = [], timer, running = false, typed = 0, filled = "", wanted = () => false;

export function startRules(isShown) {
  wanted = isShown;
  form.elements.text.addEventListener("input", () => { typed = performance.now(); clearTimeout(timer); timer = setTimeout(tryRules, PAUSE_MS); });
  form.elements.scheduler.addEventListener("change", () => {
    if (form.elements.text.value === filled) fillIn(); // a text that somebody has begun stays
    describe();
    typed = performance.now();
    tryRules();
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); askPush(); });
  return open;
}

/** Read the policies when the view is opened, and try what stands there. */
async function open() {
  if (!wanted()) return;
  try { ({ policies } = await get("/api/policies")); } catch { return; } // the banner says so
  const field = form.elements.scheduler, was = field.value;
  show(field, policies.map((one) => one.scheduler), () => policies.map(({ scheduler }) => h("option", { value: scheduler }, visible(scheduler))));
  if (policies.some((one) => one.scheduler === was)) field.value = was;
  if (!form.elements.text.value) fillIn();
  describe();
  typed = performance.now();
  tryRules();
}

const policy = () => policies.find((one) => one.scheduler === form.elements.scheduler.value);

function fillIn() {
  filled = policy()?.text || SAMPLE;
  form.elements.text.value = filled;
}

function describe() {
  const one = policy();
  if (!one) return;
  $("trial-from").textContent = one.in_force === "file"
    ? `${visible(one.scheduler)} rules by its own file, which the console does not see. What you push replaces all of it.`
    : `In force: ${visible(one.in_force)}. What you push replaces all of it.`;
}

/** Try what stands there now. While an answer is on its way nothing is sent; what was typed meanwhile comes after it. */
async function tryRules() {
  if (running || !wanted()) return;
  const text = form.elements.text.value, since = typed;
  let right = false;
  running = true;
  try {
    const found = await post("/api/policies/try", { scheduler: form.elements.scheduler.value || "policy", text });
    right = true;
    problem("");
    show($("trial-result"), found, () => result(found));
    $("trial-result").dataset.ms = String(Math.round(performance.now() - since));
  } catch (error) {
    problem([error.message, ...Object.values(error.body?.fields ?? {})].map(visible).join(": "));
  } finally {
    running = false;
    form.querySelector("[type=submit]").disabled = !right;
    if (form.elements.text.value !== text) tryRules();
  }
}

function problem(words) {
  $("trial-problem").textContent = words;
  $("trial-problem").hidden = !words;
  $("trial-result").classList.toggle("old", Boolean(words));
  form.elements.text.setAttribute("aria-invalid", String(Boolean(words)));
}

const CHANGES = [["veto", "denied"], ["ask", "asked about"], ["hold", "waiting"], ["reroute", "replaced"], ["allow", "let through"]];

function result({ judged: count, of, unreadable, heard, counts, groups, more, scheduler }) {
  if (!of) return h("p", { class: "muted" }, "No decision is recorded yet. The newest 1,000 are tried.");
  const seen = CHANGES.filter(([name]) => counts[name]);
  return [
    h("dl", { class: "figures" },
      figure("stay the same", percent(counts.same, count), `${number(counts.same)} of ${number(count)}`),
      seen.map(([name, words]) => figure(`would be ${words}`, number(counts[name])))),
    h("p", { class: "note" }, [
      `Tried on ${count < of - unreadable ? `${number(count)} of ` : ""}the newest ${number(of)} decisions; ${visible(scheduler)} answered in ${number(heard)} of them.`,
      unreadable && `${number(unreadable)} cannot be judged: they still wait, or are too long for the record.`].filter(Boolean).join(" ")),
    groups.length ? changes(groups, seen) : h("p", {}, "These rules would have changed nothing."),
    more ? h("p", { class: "note" }, `and ${number(more)} more tools and agents`) : "",
  ];
}

function changes(groups, seen) {
  const columns = [["tool", ""], ["agent", ""], ["calls", "num"], ...seen.map(([, words]) => [words, "num"]), ["by", ""], ["", "num"]];
  return table("What the rules would have changed", columns, groups.map((one) => h("tr", {},
    h("th", { scope: "row" }, visible(one.tool)), h("td", {}, visible(one.agent || "–")), h("td", { class: "num" }, number(one.of)),
    seen.map(([name]) => h("td", { class: one[name] ? "num strong" : "num none" }, one[name] ? number(one[name]) : "·")),
    h("td", { class: "said" }, visible(one.rules.join(", "))),
    h("td", { class: "num" }, one.examples.length ? h("button", { type: "button", class: "link", "aria-label": `An example of ${visible(one.tool)}`,
      onclick: () => { location.hash = "live"; filterBy("text", one.examples[0]); } }, "example") : ""))));
}

function askPush() {
  const name = form.elements.scheduler.value, text = form.elements.text.value;
  const label = h("input", { name: "label", maxlength: 64, autocomplete: "off", placeholder: "v7" });
  const undo = h("input", { name: "undo_if", maxlength: 200, autocomplete: "off", placeholder: "veto_rate > 2x" });
  const share = h("input", { type: "number", name: "share", min: 1, max: 99, step: 1, value: 10, "aria-label": "Percent of the sessions" });
  ask({
    title: `Push these rules for ${visible(name)}`, button: "Push",
    words: ["Every replica takes them up within seconds. They stay at this stage until you go on: toolgate scheduler rollout --advance, or --cancel."],
    fields: [choice("stage", "shadow", "As a shadow: they are asked, and change nothing", true), choice("stage", "share", "For this percent of the sessions", false, share),
      h("label", {}, "Label", label), h("label", {}, "Undo if ", h("span", { class: "muted" }, "(may be empty)"), undo)],
    send: async ({ stage }) => {
      const body = { scheduler: name, text, label: label.value.trim(), undo_if: undo.value.trim(), share: stage.value === "share" ? whole(share) : 0 };
      const { revision, stage: at } = await post("/api/policies/push", body);
      return `${revision} is pushed: ${at}`;
    },
  }, () => { location.hash = "revisions"; });
}
