// The rules: the only file that is about this scheduler. `decide` is asked about a tool call before it runs.
//
// It gives a verdict: {action: "continue"}, {action: "deny", reason}, {action: "modify", tool, arguments},
// {action: "ask_user", prompt}; or {action: "hold", seconds, final}, where `final` is a promise of one.

export default {
  name: "my-rules-js",
  priority: 10,
  tools: ["web_*", "send_mail", "refund"],

  async decide(call) {
    if (call.tool_name === "web_search" && call.available_tools.includes("advanced_search")) {
      return { action: "modify", tool: "advanced_search", arguments: call.tool_input, reason: "cheaper index" };
    }
    if (call.tool_name === "send_mail" && !String(call.tool_input.to ?? "").endsWith("@example.com")) {
      return { action: "deny", reason: "mail stays in the house" };
    }
    if (call.tool_name === "refund") {
      return { action: "hold", seconds: 5, reason: "looking at the account", final: account(call) };
    }
    return { action: "continue" };
  },
};

/** Something that takes longer than patience: here it only takes its time. */
async function account(call) {
  await new Promise((resolve) => setTimeout(resolve, 700));
  return Number(call.tool_input.amount) > 100
    ? { action: "deny", reason: "more than 100 is for people" }
    : { action: "continue" };
}
