// A question before an order: its words, its fields, and what was wrong if the order is refused.
import { $, h, say, visible } from "./dom.js";

const dialog = $("order");

export const choice = (name, value, words, checked, more) =>
  h("label", { class: "check" }, h("input", { type: "radio", name, value, checked }), words, more);

/** Send a field that is no whole number as it is, so that it is refused: empty would mean "as configured". */
export const whole = (field) => (Number.isInteger(field.valueAsNumber) ? field.valueAsNumber : field.value);

/** Ask; `send` gets the form's elements, and gives words to say. `done` is called after the order was taken. */
export function ask({ title, words, fields, button, danger, send }, done) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h("form", { method: "dialog" }, h("h2", { id: "order-title" }, title), words.map((text) => h("p", {}, text)), fields, problem,
    h("div", { class: "buttons" }, h("span", { class: "gap" }),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: danger ? "danger" : "primary" }, button)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const submit = form.querySelector("[type=submit]");
    submit.disabled = true;
    problem.hidden = true;
    try {
      say(await send(form.elements));
      dialog.close();
      done();
    } catch (error) {
      submit.disabled = false;
      problem.textContent = [error.message, ...Object.values(error.body?.fields ?? {})].map(visible).join(": ");
      problem.hidden = false;
    }
  });
  // Input in a field of a choice selects that choice.
  for (const field of form.querySelectorAll("label.check select, label.check [type=number]"))
    field.addEventListener("input", () => { field.closest("label").querySelector("[type=radio]").checked = true; });
  dialog.replaceChildren(form);
  dialog.showModal();
}
