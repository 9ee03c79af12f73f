// Who has slots since when, and who waits for them in which place, and why.
import { $, every, get, h, lasting, number, short, show, table, visible } from "./dom.js";

export const startQueue = (wanted) => every(1, wanted, async () => {
  const { queues } = await get("/api/queue");
  show($("queue"), queues, () => (queues.length ? queues.flatMap(queue) : empty()));
});

const empty = () => h("div", { class: "empty" }, h("h2", {}, "Nobody has a slot or waits for one"),
  h("p", {}, "Slots of what is scarce are given by a scheduler:"),
  h("pre", {}, "toolgate scheduler run slots --config slots.yaml"));

const queue = ({ scheduler, pools, more }) => [...pools.map((one) => pool(scheduler, one)),
  more ? h("p", { class: "note" }, `and ${number(more)} more pools of ${visible(scheduler)}: toolgate queue`) : ""];

function pool(scheduler, one) {
  const marks = [
    one.ruled === 0 ? "drained" : one.ruled !== null && `limited to ${one.ruled} by an operator`,
    one.adapted !== null && `its tool bears ${one.adapted}`,
  ].filter(Boolean);
  const columns = [["place", ""], ["call", ""], ["tool", ""], ["agent", ""], ["session", ""], ["tenant", ""], ["for", "num"], ["fence", "num"], ["", ""]];
  const calls = [...one.held, ...one.waiting], left = one.in_use + one.waits - calls.length;
  return h("section", { class: "panel" },
    h("h2", {}, visible(one.name), h("span", { class: "muted" }, ` ${visible(scheduler)}`), marks.map((mark) => h("span", { class: "mark" }, mark))),
    h("p", {}, `${number(one.in_use)} of ${number(one.most)} in use, ${number(one.waits)} wait`),
    calls.length ? table(`Calls of ${visible(one.name)}`, columns, calls.map(call)) : "",
    left ? h("p", { class: "note" }, `and ${number(left)} more: toolgate queue`) : "");
}

const call = (one) => h("tr", {},
  h("th", { scope: "row" }, one.place ? number(one.place) : "has it"),
  [one.id, one.tool, one.agent, short(one.session), one.tenant].map((text) => h("td", {}, visible(text))),
  h("td", { class: "num" }, lasting(one.for_s)),
  h("td", { class: "num" }, one.fence ? number(one.fence) : "–"),
  h("td", { class: "muted" }, visible(one.why)));
