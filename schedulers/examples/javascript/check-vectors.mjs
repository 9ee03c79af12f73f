// Reads and writes the golden vectors of the wire: node check-vectors.mjs [wire.json [wire-2.json]]
// Ends with 1, naming each vector that is read or written otherwise.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as wire from "./wire.mjs";

const path = process.argv[2] ?? new URL("../../../tests/vectors/wire.json", import.meta.url);
const path2 = process.argv[3] ?? new URL("../../../tests/vectors/wire-2.json", import.meta.url);
const vectors = exact(readFileSync(path, "utf8"));
const newer = exact(readFileSync(path2, "utf8"));
const hex = (text) => (text === null ? null : Buffer.from(text, "hex"));
let checked = 0;
const wrong = [];

/** JSON with its large integers exact: as BigInt, where a number would round them. */
function exact(text) {
  const marked = text.replace(/(?<=[:[,]\s*)-?\d{16,}(?=\s*[,}\]])/g, (digits) => `"bigint:${digits}"`);
  return JSON.parse(marked, (_key, value) =>
    typeof value === "string" && value.startsWith("bigint:") ? BigInt(value.slice(7)) : value,
  );
}

function check(kind, vector, test) {
  checked += 1;
  try {
    test(vector);
  } catch (error) {
    wrong.push(`${kind}: ${vector.name ?? "(no name)"}: ${error.message.split("\n")[0]}`);
  }
}

function same(bytes, golden) {
  assert.equal(bytes.toString("hex"), golden);
}

function refuses(read, reason) {
  assert.throws(read, (error) => error instanceof wire.Refused && error.reason === reason);
}

const READ_DEFAULTS = { options: ["Allow once", "Deny"], timeout_s: 300, default: "deny" };

for (const vector of vectors.verdicts) {
  check("verdict", vector, ({ fields, body }) => {
    assert.deepEqual(wire.verdict(hex(body)), fields);
    const written = wire.verdictBody(fields);
    assert.deepEqual(wire.verdict(written), fields);
    // JavaScript does not tell 60.0 from 60: it writes the integer, which is read as well.
    if (!body.includes("cb")) same(written, body);
  });
}
for (const vector of vectors.read.verdicts) {
  check("verdict written otherwise", vector, ({ fields, body }) => {
    const said = Object.entries(wire.verdict(hex(body))).filter(([, value]) => value !== null);
    const defaults = fields.action === "ask_user" ? READ_DEFAULTS : {};
    assert.deepEqual({ ...defaults, ...Object.fromEntries(said) }, fields);
  });
}
for (const vector of [...vectors.questions, ...vectors.read.questions]) {
  check("question", vector, ({ id, phase, fields, body, digest }) => {
    const item = { version: 1, id: hex(id ?? "00".repeat(16)), phase, body: hex(body) };
    const call = wire.question(item);
    assert.deepEqual(Object.fromEntries(Object.keys(fields).map((name) => [name, call[name]])), fields);
    if (digest) same(wire.digest(item), digest);
  });
}
for (const vector of [...vectors.frames, ...newer.frames]) {
  check("frame", vector, ({ items, frame }) => {
    const told = items.map(readable);
    assert.deepEqual(wire.items(hex(frame)), told);
    same(wire.frame(told.map(({ version, id, phase, body, mac }) => wire.item(version, id, phase, body, mac))), frame);
  });
}
for (const [version, vector] of [
  ...vectors.signatures.map((one) => [1, one]),
  ...newer.signatures.map((one) => [2, one]),
]) {
  check("signature", vector, (one) => {
    const item = { version, id: hex(one.id), phase: one.phase, body: hex(one.question_body), mac: hex(one.question_mac) };
    const who = [hex(one.key), one.namespace, one.orchestrator, one.scheduler];
    same(wire.signQuestion(...who, item), one.question_mac);
    assert.ok(wire.isGenuine(...who, item));
    assert.ok(!wire.isGenuine(hex(one.key), `${one.namespace}x`, one.orchestrator, one.scheduler, item));
    assert.ok(!wire.isGenuine(...who, { ...item, phase: 1 - item.phase }));
    assert.ok(!wire.isGenuine(...who, { ...item, mac: null }));
    same(wire.signVerdict(...who, item, hex(one.verdict_body)), one.verdict_mac);
  });
}
for (const vector of vectors.withdrawn) {
  check("withdrawal", vector, ({ fields, body }) => assert.deepEqual(wire.unpack(hex(body), 1024), fields));
}
for (const vector of vectors.heartbeats) {
  check("heartbeat", vector, ({ fields, value }) => {
    assert.deepEqual(wire.unpack(hex(value), 16 * 1024), fields);
    same(wire.pack(fields), value);
  });
}
for (const vector of vectors.holds) {
  check("hold", vector, ({ orchestrator, id, phase, question_body, value }) =>
    same(wire.pack([orchestrator, hex(id), phase, hex(question_body)]), value),
  );
}
for (const vector of vectors.refused.frames) {
  check("refused frame", vector, ({ frame, reason }) => refuses(() => wire.items(hex(frame)), reason));
}
// JavaScript does not tell 1.0 from 1, either.
for (const vector of vectors.refused.items.filter(({ name }) => name !== "phase as a float")) {
  check("refused item", vector, ({ item, reason }) => {
    const good = wire.item(1, Buffer.alloc(16), 0, wire.pack({ action: "continue" }));
    const [before, bad, after] = wire.items(wire.frame([good, hex(item), good]));
    assert.equal(bad.reason, reason);
    assert.ok(before.body && after.body);
  });
}
for (const vector of vectors.refused.questions) {
  check("refused question", vector, ({ phase, body, reason }) =>
    refuses(() => wire.question({ version: 1, id: Buffer.alloc(16), phase, body: hex(body) }), reason),
  );
}

// ---------------------------------------------------------------- what version 2 has of its own

function readable({ version = 1, id, phase, body, mac }) {
  return { version, id: hex(id), phase, body: hex(body), mac: hex(mac) };
}

for (const vector of newer.verdicts) {
  check("verdict of version 2", vector, ({ fields, revision, start, body }) => {
    assert.deepEqual(wire.verdict(hex(body)), { ...fields, ...(revision ? { revision } : {}), ...(start ? { start } : {}) });
    if (!body.includes("cb")) same(wire.verdictBody(fields, revision, start), body);
  });
}
for (const vector of newer.read.questions) {
  check("question of version 2", vector, ({ phase, fields, body }) => {
    const call = wire.question({ version: 2, id: Buffer.alloc(16), phase, body: hex(body) });
    assert.deepEqual(Object.fromEntries(Object.keys(fields).map((name) => [name, call[name]])), fields);
    refuses(() => wire.question({ version: 1, id: Buffer.alloc(16), phase, body: hex(body) }), "malformed");
  });
}
for (const vector of newer.parts) {
  check("signature of parts", vector, ({ key, namespace, kind, parts, mac }) =>
    same(wire.sign(hex(key), namespace, kind, ...parts.map(hex)), mac),
  );
}
for (const vector of [...vectors.signatures, ...newer.signatures]) {
  check("signature of a withdrawal", vector, (one) => {
    const version = newer.signatures.includes(one) ? 2 : 1;
    const item = { version, id: hex(one.id), phase: one.phase, body: hex(one.withdrawn_body), mac: hex(one.withdrawn_mac) };
    const who = [hex(one.key), one.namespace, one.orchestrator, one.scheduler];
    assert.ok(wire.isGenuine(...who, item, "withdrawn"));
    assert.ok(!wire.isGenuine(...who, item, "question"));
  });
}
for (const vector of newer.withdrawn) {
  check("withdrawal of version 2", vector, ({ phase, body }) =>
    assert.ok(wire.isWithdrawal({ version: 2, phase, body: hex(body) })),
  );
}
for (const vector of newer.refused.withdrawn) {
  check("refused withdrawal", vector, ({ version, phase, body }) =>
    assert.ok(!wire.isWithdrawal({ version, phase, body: hex(body) })),
  );
}
for (const vector of newer.heartbeats.filter((one) => one.scheduler)) {
  check("signed heartbeat", vector, ({ key, namespace, scheduler, replica, fields, value }) => {
    const { v2, mac } = wire.unpack(hex(value), 16 * 1024);
    assert.deepEqual(wire.unpack(Buffer.from(v2), 16 * 1024), fields);
    same(wire.signHeartbeat(hex(key), namespace, scheduler, replica, wire.pack(fields)), Buffer.from(mac).toString("hex"));
  });
}
for (const vector of newer.refused.items) {
  check("refused item of version 2", vector, ({ item, reason }) => {
    const good = wire.item(2, Buffer.alloc(16), 0, wire.pack({ action: "continue" }));
    const [before, bad, after] = wire.items(wire.frame([good, hex(item), good]));
    assert.equal(bad.reason, reason);
    assert.ok(before.body && after.body);
  });
}
for (const vector of newer.refused.questions) {
  check("refused question of version 2", vector, ({ phase, body, reason }) =>
    refuses(() => wire.question({ version: 2, id: Buffer.alloc(16), phase, body: hex(body) }), reason),
  );
}

for (const line of wrong) console.error(line);
console.log(`${checked - wrong.length} of ${checked} golden vectors are read and written as they should be.`);
process.exitCode = wrong.length > 0 ? 1 : 0;
