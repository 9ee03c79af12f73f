// The frame: views, the stream of events, the theme, who is signed in.
import { startAgents } from "./agents.js";
import { heldNow, leaveApprovals, startApprovals } from "./approvals.js";
import { startBudgets } from "./budgets.js";
import { $, clock, every, get, number, percent, post, say } from "./dom.js";
import { startGlance } from "./glance.js";
import { filterQuery, liveKey, startLive, take } from "./live.js";
import { startQueue } from "./queue.js";
import { startRates } from "./rates.js";
import { startRevisions } from "./revisions.js";
import { startRoster } from "./roster.js";
import { startRules } from "./rules.js";

const VIEWS = ["glance", "live", "agents", "approvals", "queue", "rates", "budgets", "rules", "revisions", "roster"];
const STALE_MS = 12_000; // the console sends a sign of life every four seconds
const BEHIND_S = 10;
const HIDDEN_MS = 30_000;
let view = "glance", source = null, since = null, bus = { up: true }, signedOut = false, retry, hiding;
let heard = Date.now(), behind = 0;
const shown = (name) => () => view === name && !signedOut;
const looks = {
  glance: startGlance(shown("glance")), agents: startAgents(shown("agents")),
  approvals: startApprovals(shown("approvals")), queue: startQueue(shown("queue")), rates: startRates(shown("rates")),
  budgets: startBudgets(shown("budgets")), revisions: startRevisions(shown("revisions")), roster: startRoster(shown("roster")),
  rules: startRules(shown("rules")),
};

// ---------------------------------------------------------------- views

function turn() {
  const name = location.hash.slice(1);
  view = VIEWS.includes(name) ? name : "glance";
  for (const one of VIEWS) $(`view-${one}`).hidden = one !== view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const rest = document.querySelector("nav .rest[aria-current]");
  $("nav-more").textContent = rest?.textContent ?? "More";
  $("nav-more").classList.toggle("current", Boolean(rest));
  openMore(false);
  if (view !== "approvals") leaveApprovals();
  looks[view]?.();
  scrollTo(0, 0);
}

// On a phone the bar has room for five: the other views stand behind "More".
function openMore(open) {
  $("nav").classList.toggle("open", open);
  $("nav-more").setAttribute("aria-expanded", String(open));
}

// ---------------------------------------------------------------- the stream

function connect() {
  clearTimeout(retry);
  source?.close();
  if (signedOut) return;
  source = new EventSource(`/api/live?${filterQuery()}`);
  heard = Date.now();
  source.addEventListener("open", () => { since = null; alive(); });
  const on = (kind, work) => source.addEventListener(kind, (event) => { work(JSON.parse(event.data)); alive(); });
  on("decisions", (batch) => { take(batch); counts(batch); });
  on("beat", counts);
  on("approvals", heldNow);
  on("bus", (news) => { bus = { ...news, at: Date.now() }; });
  source.addEventListener("error", lost);
}

/** Something was heard: the stream does not stand still. */
function alive() {
  heard = Date.now();
  banner();
}

async function lost() {
  since ??= Date.now();
  banner();
  if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
  try { await get("/api/me"); } catch { /* signed out is told by its event; else try again */ }
  clearTimeout(retry);
  if (!signedOut) retry = setTimeout(connect, 2000);
}

function counts({ per_second, total, behind_s }) {
  $("f-second").textContent = per_second.toFixed(1);
  $("f-total").textContent = number(total);
  behind = behind_s;
}

/** What is wrong with what the page shows: a state for the dot, and words for the banner; null if nothing is. */
function wrong() {
  const stands = "What you see is from then; it goes on by itself.";
  if (signedOut) return ["signed out", "You are signed out: this console was started anew, or your session ended. Open the address that it printed, or sign in."];
  if (since) return ["away", `The console has not answered since ${clock(since / 1000)}. ${stands}`];
  if (source && Date.now() - heard > STALE_MS) return ["stale", `The console has sent nothing since ${clock(heard / 1000)}, though it should every few seconds. ${stands}`];
  if (!bus.up) return ["bus away", `The bus has been away since ${clock(bus.at / 1000)}: ${bus.why}. ${stands}`];
  if (behind > BEHIND_S) return ["stale", `The console has read nothing from the bus since ${clock(heard / 1000 - behind)}. ${stands}`];
  return null;
}

function banner() {
  const found = wrong(), node = $("banner"), words = found?.[1] ?? "";
  node.hidden = !words;
  if (node.textContent !== words) node.replaceChildren(words, ...(signedOut ? [link()] : []));
  $("pulse").dataset.state = found ? "down" : "up";
  const state = found?.[0] ?? (bus.reading ? "reading the record" : "live");
  if ($("pulse-words").textContent !== state) $("pulse-words").textContent = state;
}

setInterval(banner, 1000);

function link() {
  const made = document.createElement("a");
  made.href = "/";
  made.textContent = "Sign in";
  return made;
}

document.addEventListener("signed-out", () => { signedOut = true; source?.close(); banner(); });
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { source?.close(); source = null; }, HIDDEN_MS);
  else { if (!source) connect(); looks[view]?.(); }
});
setInterval(async () => { // a hidden page holds no stream (browsers allow a site six), but still shows the number of held calls
  if (!document.hidden || source || signedOut) return;
  try { const { waiting } = await get("/api/approvals"); heldNow({ count: waiting.length, ids: waiting.map((one) => one.id) }); } catch { /* later */ }
}, 15_000);

const figures = every(4, shown("live"), async () => {
  const { all } = await get("/api/rates?window=15m");
  $("f-veto").textContent = percent(all.vetoes, all.decisions);
  $("f-override").textContent = percent(all.overrides, all.decisions);
});

// ---------------------------------------------------------------- theme, name, keys

$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("toolgate-theme", root.dataset.theme); } catch { /* only for this page then */ }
  say(dark ? "Light" : "Dark");
  document.dispatchEvent(new Event("theme"));
});

const name = $("name"), nameForm = $("name-form");
$("who").addEventListener("click", () => { nameForm.elements.user.value = $("who").textContent; $("name-problem").hidden = true; name.showModal(); });
nameForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    $("who").textContent = (await post("/api/me", { user: nameForm.elements.user.value })).user;
    name.close();
  } catch (error) {
    $("name-problem").textContent = error.message;
    $("name-problem").hidden = false;
  }
});
name.querySelector("[data-close]").addEventListener("click", () => name.close());
$("sign-out").addEventListener("click", async () => { await post("/api/sign-out", {}).catch(() => {}); location.assign("/"); });

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) {
    if (event.key === "Escape" && event.target.closest?.("#filters")) event.target.blur();
    return;
  }
  if (view === "live" && liveKey(event)) event.preventDefault();
});

looks.live = figures;
addEventListener("hashchange", turn);
$("nav-more").addEventListener("click", () => openMore(!$("nav").classList.contains("open")));
startLive(connect);
turn();
connect();
get("/api/me").then(({ user, namespace }) => {
  $("who").textContent = user;
  $("namespace").textContent = namespace === "default" ? "" : namespace;
}).catch(() => {});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
