// Small helpers. Text is only ever set as text: what agents wrote is never read as HTML.

export const $ = (id) => document.getElementById(id);

/** An element: h("td", {class: "num"}, "3"). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

const whole = new Intl.NumberFormat("en");
export const number = (value) => whole.format(value);
export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(part && part < all ? 1 : 0)} %` : "–");
export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
export const day = (at) => new Date(at * 1000).toLocaleString("en-GB",
  { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
/** An id as people tell it apart: the beginning of a long one, such as a UUID, and the whole of a name. */
export const short = (id) => (id.length > 24 ? id.slice(0, 8) : id);

export function lasting(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left < 100) return `${left} s`;
  return left < 6000 ? `${Math.round(left / 60)} min` : `${Math.round(left / 3600)} h`;
}

/** Spell out control characters, and those that turn text around, so that nothing hides. */
export const visible = (text) =>
  String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (one) =>
    one === "\n" ? one : `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);

export const pretty = (value) => visible(JSON.stringify(value, null, 2) ?? "");

let lastSaid = "";
/** Tell screen readers a text, politely and once. */
export function say(words) {
  if (words === lastSaid) return;
  lastSaid = words;
  $("said").textContent = words;
}

/** Get JSON from the console; throw {status, body}. */
export async function get(path) {
  return answered(await fetch(path, { headers: { accept: "application/json" } }));
}

export async function post(path, body) {
  return answered(await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-toolgate-console": "1" },
    body: JSON.stringify(body),
  }));
}

async function answered(response) {
  const body = await response.json().catch(() => ({ error: "the console gave no answer" }));
  if (response.ok) return body;
  if (response.status === 401) document.dispatchEvent(new Event("signed-out"));
  throw Object.assign(new Error(body.error ?? response.statusText), { status: response.status, body });
}

/** Call `work` now, and every few seconds while `wanted()`. The banner shows failures. */
export function every(seconds, wanted, work) {
  let running = false;
  const look = async () => {
    if (running || !wanted() || document.hidden) return;
    running = true;
    try { await work(); } catch { /* the next call may succeed */ } finally { running = false; }
  };
  setInterval(look, seconds * 1000);
  return look;
}

/** Replace children only if they have changed, so that focus and selection stay. */
export function show(node, key, make) {
  const text = JSON.stringify(key);
  if (node.dataset.shown === text) return;
  node.dataset.shown = text;
  node.replaceChildren(...[make()].flat().filter(Boolean));
}

export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const shelves = new WeakMap();
/** Keep children by key, `{node, …}` each, so that focus and selection stay; move a node only if the order changed. */
export function keyed(parent, items, keyOf, make, draw) {
  const before = shelves.get(parent) ?? new Map(), now = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  for (const item of items) {
    const key = keyOf(item), one = before.get(key) ?? make(item);
    draw(one, item);
    now.set(key, one);
  }
  for (const [key, one] of before) if (!now.has(key)) one.node.remove();
  let at = parent.firstElementChild;
  for (const { node } of now.values()) {
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  shelves.set(parent, now);
}

export function table(caption, columns, rows, props = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    named(h("table", props,
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", {}, rows))));
}

/** Name each cell's column: on a phone a row is a card, and its cells stand under their names. */
export function named(node) {
  const names = [...node.tHead.rows[0].cells].map((cell) => cell.textContent);
  node.setAttribute("role", "table");
  for (const group of [node.tHead, ...node.tBodies]) group.setAttribute("role", "rowgroup");
  for (const row of node.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, at) => {
      cell.setAttribute("role", cell.tagName === "TD" ? "cell" : cell.scope === "col" ? "columnheader" : "rowheader");
      if (names[at]) cell.dataset.label = names[at];
    });
  }
  return node;
}

/** One figure of a list of them: its name, its value, and more about it. */
export const figure = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : ""));
