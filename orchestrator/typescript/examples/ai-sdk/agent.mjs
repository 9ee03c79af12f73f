// An agent with two tools and a scripted model, so that it needs no key: with a real one, put it in its place.
//
//   toolgate serve --required policy &
//   node agent.mjs '[{"tool": "write_file", "input": {"path": ".env", "content": "KEY=1"}}]'
//
// It prints one JSON object: what each call gave, and what the model said at the end.

import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { z } from "zod";
import { Guard } from "toolgate-guard";

import { gatedTools } from "./gated-tools.mjs";

const plan = JSON.parse(process.argv[2] ?? "[]");
const options = JSON.parse(process.argv[3] ?? "{}");
const ran = [];

const guard = new Guard({ agent: "writer", ...options });
const tools = gatedTools(guard, {
  write_file: tool({
    description: "Write a file",
    inputSchema: z.object({ path: z.string(), content: z.string() }),
    execute: async ({ path }) => {
      ran.push(["write_file", path]);
      return `wrote ${path}`;
    },
  }),
  read_file: tool({
    description: "Read a file",
    inputSchema: z.object({ path: z.string() }),
    execute: async ({ path }) => {
      ran.push(["read_file", path]);
      return `what is in ${path}`;
    },
  }),
});

const usage = {
  inputTokens: { total: 10, noCache: 10, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 5, text: 5, reasoning: undefined },
};
const calls = plan.map(({ tool: name, input }, index) => ({
  type: "tool-call",
  toolCallId: `call-${index + 1}`,
  toolName: name,
  input: JSON.stringify(input),
}));
const turns = [
  { content: calls, finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] },
  { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] },
];
const model = new MockLanguageModelV3({ doGenerate: async () => turns.shift() });

const answered = await guard.turn({ session: options.session ?? "demo" }, async ({ signal }) => {
  const result = await generateText({ model, tools, prompt: "Go", stopWhen: stepCountIs(3), abortSignal: signal });
  await guard.usage({ provider: "mock", model: "mock", input_tokens: 20, output_tokens: 10, cost_usd: "0.001" });
  return result;
});
const results = answered.steps
  .flatMap((step) => step.content)
  .filter((part) => part.type === "tool-result" || part.type === "tool-error")
  .map((part) => ({ id: part.toolCallId, tool: part.toolName, output: part.output ?? String(part.error) }));
process.stdout.write(`${JSON.stringify({ results, ran, text: answered.text })}\n`);
guard.close();
