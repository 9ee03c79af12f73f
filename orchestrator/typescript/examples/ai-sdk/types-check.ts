// Compiled by the tests, never run: the declarations are those of what is there.

import { CallDenied, Guard, SidecarError, type Ruling } from "toolgate-guard";

const guard = new Guard({ agent: "clerk", onFault: "deny", ask: async (question) => (question.prompt ? "allow" : "refuse") });
const search = guard.tool("search", async ({ query }: { query: string }) => query.length, {
  cost: (result) => result * 0.01,
});

export async function main(): Promise<number | string> {
  const ruling: Ruling = await guard.decide({ tool: "search", arguments: { query: "x" }, can: ["arguments"] });
  if (ruling.allowed) await guard.report(ruling.id, "succeed", { costUsd: "0.1" });
  await guard.usage({ provider: "anthropic", input_tokens: 1 });
  try {
    return await guard.turn({ session: "s" }, async ({ session, signal }) =>
      signal.aborted ? session : search({ query: "x" }),
    );
  } catch (error) {
    if (error instanceof CallDenied) return error.ruling.why;
    if (error instanceof SidecarError) return error.status;
    throw error;
  }
}

// @ts-expect-error an outcome that there is not
void guard.report("id", "done");
