// Changes of a queue by an operator, each after a question: move or drop a call, limit or drain a pool.
import { ask, choice, whole } from "./dialog.js";
import { h, number, post, short, visible } from "./dom.js";

const whom = (call) => `${visible(call.tool)} of ${visible(call.agent || "an agent")} (${visible(short(call.id))})`;

/** Ask, and send the order to the queue; `done` reads the queue anew. */
function askQueue({ order, said, ...question }, done) {
  const send = async (form) => {
    const [what, body] = order(form);
    await post(`/api/queue/${what}`, body);
    return said;
  };
  ask({ ...question, send }, done);
}

export function askMove(pool, call, done) {
  const others = pool.waiting.filter((one) => one.id !== call.id);
  const before = h("select", { name: "before", "aria-label": "Before which call" },
    others.map((one) => h("option", { value: one.id }, `${number(one.place)}: ${whom(one)}`)));
  const level = h("input", { type: "number", name: "level", value: call.level, step: 1, "aria-label": "Class" });
  askQueue({
    title: `Move ${whom(call)}`,
    words: ["It keeps the time that it has waited. Calls that have a slot keep it."],
    fields: [choice("to", "first", "Before all others", true), others.length ? choice("to", "before", "Right before", false, before) : "",
      choice("to", "last", "Behind all others"), choice("to", "class", "Into class", false, level)],
    button: "Move", said: `${whom(call)} is moved`,
    order: ({ to }) => ["move", { scheduler: pool.scheduler, call: call.id,
      ...(to.value === "before" ? { before: before.value } : { to: to.value === "class" ? whole(level) : to.value }) }],
  }, done);
}

export function askDrop(pool, call, done) {
  const reason = h("textarea", { name: "reason", rows: 3, maxlength: 300, required: true }, "Do something else instead.");
  askQueue({
    title: `Drop ${whom(call)}?`, danger: true, button: "Drop", said: `${whom(call)} waits no longer`,
    words: ["It waits no longer: it is denied, and cannot come back by itself."],
    fields: [h("label", {}, "Reason, told to the LLM", reason)],
    order: () => ["drop", { scheduler: pool.scheduler, call: call.id, reason: reason.value }],
  }, done);
}

/** Scopes of a limit: a pool with a key is named with it, and the operator may mean that key, or each. */
const scopes = ({ name }) => (name.includes("/")
  ? [choice("pool", name, `Of ${visible(name)} alone`, true), choice("pool", name.split("/")[0], `Of each key of ${visible(name.split("/")[0])}`)] : []);
const chosen = (pool, { pool: scope }) => (scope ? scope.value : pool.name);

export function askDrain(pool, done) {
  askQueue({
    title: `Drain ${visible(pool.name)}?`, danger: true, button: "Drain", said: `${visible(pool.name)} is drained`,
    words: ["It gives no more slots, in the whole fleet, until you set another limit.",
      "Running calls end. Waiting calls go on waiting, and are denied when their time is over."],
    fields: scopes(pool),
    order: (form) => ["limit", { scheduler: pool.scheduler, pool: chosen(pool, form), most: 0 }],
  }, done);
}

export function askLimit(pool, done) {
  const most = h("input", { type: "number", name: "most", min: 0, max: pool.limit ?? 1e6, step: 1, value: pool.most ?? "", "aria-label": "Calls at a time" });
  askQueue({
    title: `Limit ${visible(pool.name)}`, button: "Limit", said: `The limit of ${visible(pool.name)} is changed`,
    words: ["Calls that have a slot keep it."],
    fields: [choice("how", "most", "At most this many at a time", pool.ruled === null, most),
      choice("how", "configured", `As configured: ${pool.limit === null ? "no limit" : number(pool.limit)}`, pool.ruled !== null), h("div", {}, scopes(pool))],
    order: (form) => ["limit", { scheduler: pool.scheduler, pool: chosen(pool, form), most: form.how.value === "most" ? whole(most) : null }],
  }, done);
}
