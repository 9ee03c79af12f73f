// What a generator gives, gathered: it is ruled on as one, and given again as a generator of the same kind.

import { types } from "node:util";

import { Unreadable, isBytes, shown } from "./shown.js";

/** Characters, bytes and pieces that are read: more than the sidecar gives back, which says where it cut. */
const MAX_READ = 256 * 1024;
const MANY = "it gives too many pieces.";
const SYMBOLS = [Symbol.iterator, Symbol.asyncIterator, Symbol.toStringTag];
const PURE = new Set(["next", "return", "throw", "constructor", ...SYMBOLS]);
const BASES = [
  Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())),
  Object.getPrototypeOf(Object.getPrototypeOf((async function* () {})())),
  Object.prototype,
  null,
];

/** Whether a value is an iterator and nothing else: a cursor has more to it. */
export function isIterator(value) {
  if (typeof value !== "object" || value === null || types.isProxy(value)) return false;
  if (types.isGeneratorObject(value)) return true;
  for (let at = value; !BASES.includes(at); at = Object.getPrototypeOf(at)) {
    if (!Reflect.ownKeys(at).every((key) => PURE.has(key))) return false;
  }
  return typeof value.next === "function" && (Symbol.iterator in value || Symbol.asyncIterator in value);
}

/** Read an iterator to its end, or until no more of it could be given. */
export async function gather(source) {
  const isAsync = Symbol.asyncIterator in source;
  const from = source[isAsync ? Symbol.asyncIterator : Symbol.iterator]();
  const pieces = [];
  let size = 0;
  while (size <= MAX_READ) {
    const { done, value } = await from.next();
    if (done) return new Pieces(isAsync, pieces, value);
    pieces.push(copied(value));
    size += 1 + sizeOf(value);
  }
  await from.return?.();
  return new Pieces(isAsync, pieces, undefined, pieces.length > MAX_READ / 2 ? MANY : undefined);
}

export class Pieces {
  #isAsync;
  #pieces;
  #end;
  #fault;

  /** `fault` is the sentence that says why they cannot be ruled on. */
  constructor(isAsync, pieces, end, fault) {
    this.#isAsync = isAsync;
    this.#pieces = pieces;
    this.#end = end;
    this.#fault = fault;
  }

  /** The pieces as rules see them: texts and bytes that follow one another are one. */
  shown() {
    if (this.#fault) throw new Unreadable(this.#fault);
    const runs = [];
    for (const piece of [...this.#pieces, this.#end]) {
      if (piece === undefined || piece === null) continue;
      const isText = typeof piece === "string" || isBytes(piece);
      if (isText && Array.isArray(runs.at(-1)?.texts)) runs.at(-1).texts.push(piece);
      else runs.push(isText ? { texts: [piece] } : { value: piece });
    }
    const joinedRuns = runs.map((run) => (run.texts ? joined(run.texts) : run.value));
    return joinedRuns.length ? shown(joinedRuns.length === 1 ? joinedRuns[0] : joinedRuns) : null;
  }

  /** A generator of the pieces; of `piece` alone where that is given in their place. */
  again(...instead) {
    const [pieces, end] = instead.length ? [instead, undefined] : [this.#pieces, this.#end];
    return this.#isAsync ? againAsync(pieces, end) : again(pieces, end);
  }
}

function* again(pieces, end) {
  yield* pieces;
  return end;
}

async function* againAsync(pieces, end) {
  yield* pieces;
  return end;
}

/** Texts and bytes as one text, or as bytes if some are: a character may lie in two of them. */
function joined(texts) {
  if (texts.every((one) => typeof one === "string")) return texts.join("");
  return Buffer.concat(texts.map((one) => (ArrayBuffer.isView(one) ? viewed(one) : Buffer.from(one))));
}

function viewed(view) {
  return Buffer.from(view.buffer, view.byteOffset, view.byteLength);
}

/** Bytes of their own: who gives pieces may fill the same ones again. */
function copied(value) {
  if (Buffer.isBuffer(value)) return Buffer.from(value);
  return types.isUint8Array(value) ? value.slice() : value;
}

function sizeOf(value) {
  if (typeof value === "string") return value.length;
  if (isBytes(value)) return value.byteLength;
  try {
    return JSON.stringify(value)?.length ?? 0;
  } catch {
    return 0; // it is said when it is read
  }
}
