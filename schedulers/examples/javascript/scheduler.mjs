// node scheduler.mjs [--redis URL] [--namespace NAME] [--keys FILE] [--shadow] [--revision LABEL] [--json]
// Runs my-rules.mjs until SIGTERM or SIGINT; then it finishes what is in hand and ends with 0.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import rules from "./my-rules.mjs";
import { Worker } from "./worker.mjs";

const { values } = parseArgs({
  options: {
    redis: { type: "string", default: process.env.TOOLGATE_REDIS_URL ?? "redis://127.0.0.1:6379" },
    namespace: { type: "string", default: process.env.TOOLGATE_NAMESPACE ?? "default" },
    keys: { type: "string", default: process.env.TOOLGATE_KEYS },
    name: { type: "string", default: rules.name },
    priority: { type: "string", default: `${rules.priority}` },
    shadow: { type: "boolean", default: false },
    revision: { type: "string", default: "" },
    json: { type: "boolean", default: false },
  },
});

/** The key of one scheduler in a file of lines `name: hexadecimal`; null without a file. */
function keyOf(name, file) {
  if (!file) return null;
  for (const line of readFileSync(file, "utf8").split("\n")) {
    const found = /^([\w.-]+)\s*:\s*["']?([0-9a-fA-F]{32,})["']?\s*(#.*)?$/.exec(line.trim());
    if (found?.[1] === name) return Buffer.from(found[2], "hex");
  }
  throw new Error(`${file} has no key for ${name}: add \`${name}: <hex>\``);
}

if (!/^[A-Za-z0-9_.-]{1,64}$/.test(values.name)) throw new Error("--name: 1 to 64 letters, digits, '.', '_' or '-'");
if (!/^[A-Za-z0-9_.+-]{0,48}$/.test(values.revision)) {
  throw new Error("--revision: at most 48 letters, digits, '.', '_', '+' or '-'");
}
const scheduler = { ...rules, name: values.name, priority: Number.parseInt(values.priority, 10) };
const worker = new Worker(scheduler, {
  url: values.redis,
  namespace: values.namespace,
  key: keyOf(values.name, values.keys),
  shadow: values.shadow,
  revision: values.revision,
});

let ending = false;
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, async () => {
    if (ending) process.exit(1);
    ending = true;
    await worker.stop();
    process.exit(0);
  });
}

await worker.start();
const { replica } = worker;
const { name, tools } = scheduler;
if (values.json) console.log(JSON.stringify({ event: "ready", name, replica, pid: process.pid }));
else console.error(`${name} (replica ${replica}, pid ${process.pid}) rules on ${tools.join(" ")}`);
