// The wire, versions 1 and 2 (bus/README.md): bytes to values and back. Bounded, and nothing here touches the world.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { decode, encode } from "@msgpack/msgpack";

export const VERSIONS = [1, 2];
/** Phase that a body names, by the number in its item: 3 and 5 are asked a second time. */
export const PHASES = ["select", "verify", "admit", "verify", "result", "result"];
const AGAIN = new Set([3, 5]);
/** How many of the numbers a version knows: the others came with the second. */
const phasesOf = (version) => (version === 1 ? 2 : PHASES.length);
export const MAX_QUESTION = 256 * 1024;
export const MAX_VERDICT = 64 * 1024;
const MAX_FRAME = MAX_QUESTION + 64 * 1024;
const MAX_ITEMS = 64;
const MAX_ENTRIES = 1024;
const MAX_DEPTH = 32;
const MAX_NODES = 10_000;
const MAX_REASON = 1024;

/** Bytes that must be counted and dropped; `reason` is one of the contract's words. */
export class Refused extends Error {
  constructor(reason, detail) {
    super(`${reason}: ${detail}`);
    this.reason = reason;
  }
}

const LIMITS = {
  useBigInt64: true, // 64 bits are more than a number of JavaScript holds
  maxStrLength: 64 * 1024,
  maxBinLength: MAX_QUESTION,
  maxArrayLength: MAX_ENTRIES,
  maxMapLength: MAX_ENTRIES,
  maxExtLength: 0,
  mapKeyConverter(key) {
    if (typeof key !== "string") throw new Error("a key that is no text");
    return key;
  },
};

/** One bounded msgpack value; throws Refused. */
export function unpack(bytes, limit) {
  if (bytes.length > limit) throw new Refused("oversize", `${bytes.length} bytes, ${limit} allowed`);
  try {
    return narrowed(decode(bytes, LIMITS));
  } catch (error) {
    throw new Refused("malformed", error.message);
  }
}

/** A plain value as msgpack; integers of more than 32 bits stay integers. */
export function pack(value) {
  return Buffer.from(encode(widened(value), { useBigInt64: true, ignoreUndefined: true }));
}

// JavaScript has two kinds of integers. Here they are numbers wherever a number is exact.
function narrowed(value, depth = 0) {
  if (depth > MAX_DEPTH + 4) throw new Error("nested too deep"); // what is around the arguments included
  if (typeof value === "bigint") {
    return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
  }
  return mapped(value, (one) => narrowed(one, depth + 1));
}

function widened(value) {
  const wide = Number.isSafeInteger(value) && (value > 0xffffffff || value < -0x80000000);
  return wide ? BigInt(value) : mapped(value, widened);
}

function mapped(value, change) {
  if (Array.isArray(value)) return value.map((one) => change(one));
  if (value === null || typeof value !== "object" || value instanceof Uint8Array) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, change(one)]));
}

// ---------------------------------------------------------------- frames and items

/** The items of a frame; a bad one stands as its Refused. Throws Refused for the frame as a whole. */
export function items(frame) {
  const unpacked = unpack(frame, MAX_FRAME);
  if (!Array.isArray(unpacked) || unpacked.length > MAX_ITEMS) {
    throw new Refused("malformed", `a frame is an array of at most ${MAX_ITEMS} items`);
  }
  return unpacked.map(readItem);
}

function readItem(one) {
  if (!Array.isArray(one) || !Number.isInteger(one[0])) {
    return new Refused("malformed", "an item is an array that begins with its version");
  }
  if (!VERSIONS.includes(one[0])) return new Refused("version", `version ${one[0]}; this side speaks ${VERSIONS}`);
  const [version, id, phase, body, mac] = one;
  if (version > 1 && one.length === 5 && Number.isInteger(phase) && phase >= phasesOf(version) && phase < 128) {
    return new Refused("phase", `phase ${phase} is not known here`);
  }
  const right =
    one.length === 5 &&
    id instanceof Uint8Array &&
    id.length === 16 &&
    Number.isInteger(phase) &&
    phase >= 0 &&
    phase < phasesOf(version) &&
    body instanceof Uint8Array &&
    (mac === null || mac instanceof Uint8Array);
  if (!right) return new Refused("malformed", "an item is [version, id, phase, body, signature or nil]");
  return { version, id: Buffer.from(id), phase, body: Buffer.from(body), mac: mac && Buffer.from(mac) };
}

/** One item's bytes. */
export function item(version, id, phase, body, mac = null) {
  return pack([version, id, phase, body, mac]);
}

/** A frame of at most 64 packed items. */
export function frame(packed) {
  const count = packed.length;
  const head = count < 16 ? Buffer.from([0x90 | count]) : Buffer.from([0xdc, count >> 8, count & 0xff]);
  return Buffer.concat([head, ...packed]);
}

// ---------------------------------------------------------------- bodies

const isText = (value) => typeof value === "string";
const isInteger = (value) => Number.isInteger(value) || typeof value === "bigint";
const isMap = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Uint8Array);
const isTexts = (value) => Array.isArray(value) && value.every(isText);
const orNil = (test) => (value) => value === null || test(value);

/** Each field of a question: what it must be, and what stands for it where it is left out. */
const QUESTION = {
  phase: [(value) => PHASES.includes(value)],
  tool_name: [isText],
  tool_input: [(value) => isMap(value) && isBounded(value), () => ({})],
  available_tools: [isTexts, () => []],
  root_session: [isText, () => ""],
  session: [isText, () => ""],
  agent: [isText, () => ""],
  tool_call_id: [isText, () => ""],
  parallel_group_id: [isText, () => ""],
  parent: [orNil(isText), () => null],
  lineage: [(value) => isTexts(value) && value.length <= 64, () => []],
  labels: [(value) => isMap(value) && Object.values(value).every(isText), () => ({})],
  trace: [(value) => isMap(value) && Object.values(value).every(isText), () => ({})],
  iteration: [isInteger, () => 0],
  available_agents: [orNil(isTexts), () => null],
  agent_target: [orNil(isText), () => null],
  ttl_ms: [isInteger, () => 500],
  truncated: [(value) => typeof value === "boolean", () => false],
  request: [isText, () => ""],
  result_form: [(value) => value === "text" || value === "json", () => null],
  result: [(value) => value instanceof Uint8Array, () => null],
  success: [(value) => typeof value === "boolean", () => true],
  result_cut: [(value) => typeof value === "boolean", () => false],
  session_labels: [orNil((value) => isMap(value) && Object.values(value).every(isTexts)), () => ({})],
  required_labels: [(value) => isMap(value) && Object.values(value).every(isTexts), () => ({})],
};
/** Fields that version 1 does not know. */
const NEWER = new Set(["request", "result_form", "result", "success", "result_cut", "session_labels", "required_labels"]);

/** The question in an item, with its `id`; throws Refused. Fields that nobody knows mean nothing in version 2. */
export function question({ version, id, phase, body }) {
  const fields = unpack(body, MAX_QUESTION);
  if (!isMap(fields)) throw new Refused("malformed", "a question is a map");
  for (const [name, value] of Object.entries(fields)) {
    if (!Object.hasOwn(QUESTION, name) || (version === 1 && NEWER.has(name))) {
      if (version === 1) throw new Refused("malformed", `${name}: unknown field`);
      if (!isBounded([value])) throw new Refused("malformed", `${name}: beyond the bounds`);
    } else if (!QUESTION[name][0](value)) throw new Refused("malformed", `${name}: not what it must be`);
  }
  if (fields.phase !== PHASES[phase] || phase >= phasesOf(version)) {
    throw new Refused("malformed", "phase differs between item and body");
  }
  const call = { id: id.toString("hex") };
  for (const [name, [, absent]] of Object.entries(QUESTION)) {
    if (!Object.hasOwn(fields, name) && !absent) throw new Refused("malformed", `${name}: missing`);
    call[name] = Object.hasOwn(fields, name) ? fields[name] : absent();
  }
  call.again = AGAIN.has(phase);
  if (version === 1) call.session_labels = null; // it cannot say what its session bears
  call.result = fields.phase === "result" ? readResult(call) : null;
  return call;
}

/** The result in a question: a text, or a value of JSON; throws Refused. */
function readResult({ result, result_form: form }) {
  try {
    if (result === null || form === null) throw new Error("nothing");
    const text = new TextDecoder("utf-8", { fatal: true }).decode(result);
    if (form === "text") return text;
    if (hasKeyTwice(text)) throw new Error("a key that comes twice");
    return JSON.parse(text);
  } catch {
    throw new Refused("malformed", "a result is text or JSON as bytes");
  }
}

/** Whether an object in a text of JSON has a key twice: programs read that differently. */
function hasKeyTwice(text) {
  const open = [];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"\s*:?|[{}[\]]/g)) {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (token.endsWith(":")) {
      const [keys, key] = [open.at(-1), JSON.parse(token.slice(0, -1))];
      if (keys?.has(key)) return true;
      keys?.add(key);
    }
  }
  return false;
}

/** Whether an item is a withdrawal. In version 1 only its body tells it from a question. */
export function isWithdrawal({ version, phase, body }) {
  const fields = unpack(body, MAX_QUESTION);
  if (!isMap(fields) || fields.phase !== PHASES[phase] || phase >= phasesOf(version)) return false;
  return version === 1 ? Object.keys(fields).length === 1 : isBounded(fields);
}

/** Whether a value is no deeper, wider or larger than allowed, and holds only what JSON knows. */
function isBounded(value) {
  let level = [value];
  let nodes = 0;
  for (let depth = 0; level.length > 0; depth += 1) {
    const children = level.flatMap((one) => Object.values(one));
    nodes += children.length;
    if (depth > MAX_DEPTH || nodes > MAX_NODES) return false;
    if (children.some((one) => one instanceof Uint8Array)) return false;
    level = children.filter((one) => one !== null && typeof one === "object");
  }
  return true;
}

/** A verdict's body; in version 2 it may name the revision of the rules, and the start that gave it. */
export function verdictBody(verdict, revision, start) {
  const reason = verdict.reason?.length > MAX_REASON ? `${verdict.reason.slice(0, MAX_REASON - 1)}…` : verdict.reason;
  const body = pack({ ...verdict, ...(reason === undefined ? {} : { reason }), ...(revision ? { revision } : {}), ...(start ? { start } : {}) });
  if (body.length <= MAX_VERDICT) return body;
  return pack({ action: "failed", reason: `its verdict has ${body.length} bytes, ${MAX_VERDICT} are allowed` });
}

/** A verdict from its body, unchecked: only orchestrators read verdicts, and check-vectors. */
export function verdict(body) {
  return unpack(body, MAX_VERDICT);
}

// ---------------------------------------------------------------- signatures

const SCHEME = Buffer.from([2]);

/** What a question's signature covers, and what its digest is taken of. */
export function signed({ id, phase, body }) {
  return Buffer.concat([id, Buffer.from([phase]), body]);
}

/** SHA-256 of that. */
export function digest(item) {
  return createHash("sha256").update(signed(item)).digest();
}

/** The signature of a question, or of its withdrawal. */
export function signQuestion(key, namespace, orchestrator, scheduler, item, kind = "question") {
  return sign(key, namespace, kind, scheduler, orchestrator, Buffer.from([item.version]), signed(item));
}

/** The signature of a verdict on that question. */
export function signVerdict(key, namespace, orchestrator, scheduler, item, body) {
  return sign(key, namespace, "verdict", scheduler, orchestrator, Buffer.from([item.version]), digest(item), body);
}

/** The signature of what a replica says of itself on the roster. */
export function signHeartbeat(key, namespace, scheduler, replica, told) {
  return sign(key, namespace, "heartbeat", scheduler, replica, told);
}

/** Whether an item bears the signature of a question (or a withdrawal) from this orchestrator to this scheduler. */
export function isGenuine(key, namespace, orchestrator, scheduler, item, kind = "question") {
  const right = signQuestion(key, namespace, orchestrator, scheduler, item, kind);
  return item.mac !== null && item.mac.length === right.length && timingSafeEqual(item.mac, right);
}

/** A byte that says how it is signed, and the MAC of all parts, each with its length: first namespace and kind. */
export function sign(key, ...parts) {
  const mac = createHmac("sha256", key);
  for (const part of parts.map((one) => Buffer.from(one))) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    mac.update(length).update(part);
  }
  return Buffer.concat([SCHEME, mac.digest()]);
}
