// The frame: views, the stream of events, the theme, who is signed in.
import { startAgents } from "./agents.js";
import { heldNow, leaveApprovals, startApprovals } from "./approvals.js";
import { startBudgets } from "./budgets.js";
import { $, clock, every, get, number, percent, post, say } from "./dom.js";
import { filterQuery, liveKey, startLive, take } from "./live.js";
import { startQueue } from "./queue.js";
import { startRates } from "./rates.js";
import { startRevisions } from "./revisions.js";
import { startRoster } from "./roster.js";

const VIEWS = ["live", "agents", "approvals", "queue", "rates", "budgets", "revisions", "roster"];
const HIDDEN_MS = 30_000;
let view = "live", source = null, since = null, bus = { up: true }, signedOut = false, retry, hiding;
const shown = (name) => () => view === name && !signedOut;
const looks = {
  agents: startAgents(shown("agents")),
  approvals: startApprovals(shown("approvals")), queue: startQueue(shown("queue")), rates: startRates(shown("rates")),
  budgets: startBudgets(shown("budgets")), revisions: startRevisions(shown("revisions")), roster: startRoster(shown("roster")),
};

// ---------------------------------------------------------------- views

function turn() {
  const name = location.hash.slice(1);
  view = VIEWS.includes(name) ? name : "live";
  for (const one of VIEWS) $(`view-${one}`).hidden = one !== view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "approvals") leaveApprovals();
  looks[view]?.();
  scrollTo(0, 0);
}

// ---------------------------------------------------------------- the stream

function connect() {
  clearTimeout(retry);
  source?.close();
  if (signedOut) return;
  source = new EventSource(`/api/live?${filterQuery()}`);
  source.addEventListener("open", () => { since = null; banner(); });
  source.addEventListener("decisions", (event) => { const batch = JSON.parse(event.data); take(batch); counts(batch); });
  source.addEventListener("approvals", (event) => heldNow(JSON.parse(event.data)));
  source.addEventListener("bus", (event) => { bus = { ...JSON.parse(event.data), at: Date.now() }; banner(); });
  source.addEventListener("error", lost);
}

async function lost() {
  since ??= Date.now();
  banner();
  if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
  try { await get("/api/me"); } catch { /* signed out is told by its event; else try again */ }
  clearTimeout(retry);
  if (!signedOut) retry = setTimeout(connect, 2000);
}

function counts({ per_second, total }) {
  $("f-second").textContent = per_second.toFixed(1);
  $("f-total").textContent = number(total);
}

function banner() {
  const words = signedOut
    ? "You are signed out: this console was started anew, or your session ended. Open the address that it printed, or sign in."
    : since ? `The console has not answered since ${clock(since / 1000)}. What you see is from then; it goes on by itself.`
    : !bus.up ? `The bus has been away since ${clock(bus.at / 1000)}: ${bus.why}. What you see is from then; it goes on by itself.`
    : "";
  const node = $("banner");
  node.hidden = !words;
  if (node.textContent !== words) node.replaceChildren(words, ...(signedOut ? [link()] : []));
  const state = signedOut ? "signed out" : since ? "away" : !bus.up ? "bus away" : bus.reading ? "reading the record" : "live";
  $("pulse").dataset.state = state === "live" || state === "reading the record" ? "up" : "down";
  $("pulse-words").textContent = state;
}

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
startLive(connect);
turn();
connect();
get("/api/me").then(({ user, namespace }) => {
  $("who").textContent = user;
  $("namespace").textContent = namespace === "default" ? "" : namespace;
}).catch(() => {});
