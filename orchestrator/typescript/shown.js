// What rules see of a result: all that its reader may see, as JSON. What cannot be read so is Unreadable.

import { types } from "node:util";

const MAX_TEXT = 256 * 1024;
const MAX_SIZE = 1024 * 1024;
const MAX_DEPTH = 100;
const FAILED = "its own code failed while it was read.";
/** Classes that hold what their fields do not show. */
const HOSTS = ["Response", "Request", "Blob", "FormData", "ReadableStream", "WritableStream", "TransformStream"];
/** Functions that say what an object is: they are called, and where they stand. */
const WAYS = new Map([
  ["toString", "its text"],
  ["toJSON", "its JSON"],
  ["valueOf", "its value"],
  [Symbol.toPrimitive, "its text"],
  [Symbol.iterator, "its items"],
]);
/** In the source of a class: members that nobody else can read. */
const PRIVATE = /\.\s*#[\p{ID_Start}$_]|class_?private_?(field|method)/iu;
/** Of a stack: where an error was, and what stands before its words. */
const FRAME = /^ {4}at .*(:\d+:\d+\)?|\((<anonymous>|native|index \d+)\))$/;
const KIND = /^(Eval|Range|Reference|Syntax|Type|URI|Aggregate)?Error(: |$)/;

/** A result that no rule can read; its message is the sentence that says why. */
export class Unreadable extends Error {}

/** A result as rules see it. */
export function shown(value) {
  return reading(() => {
    const text = typeof value === "string" ? value : isBytes(value) ? textOfBytes(value) : undefined;
    return text === undefined ? cut(new Reader().read(value)) : cut(text);
  });
}

/** All that an error says, to whoever catches it, and whether that is all that it holds. */
export function shownError(error) {
  return reading(() => {
    const { words, missing } = new Reader().words(error);
    const more = missing ? `\nmore of it is withheld: ${missing}` : "";
    return { words: cut(words + more), isWhole: !missing };
  });
}

export function isBytes(value) {
  return types.isUint8Array(value) || types.isAnyArrayBuffer(value) || types.isDataView(value);
}

/** The beginning of a text that is too long to be sent, of whole characters; the sidecar says where it cut. */
function cut(value) {
  if (typeof value !== "string" || value.length <= MAX_TEXT) return value;
  return value.slice(0, MAX_TEXT).replace(/[\ud800-\udbff]$/, "");
}

function reading(read) {
  try {
    return read();
  } catch (error) {
    throw error instanceof Unreadable ? error : new Unreadable(FAILED);
  }
}

function refuse(what) {
  throw new Unreadable(`it holds ${what}, which no rule can read: return its text or plain JSON instead.`);
}

/** One reading of one result. */
class Reader {
  #size = 0;
  #above = new Set();

  read(value) {
    this.#count(typeof value === "string" ? value.length : 1);
    if (typeof value === "function") refuse("a function");
    if (value === undefined || value === null) return null;
    if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
    if (typeof value !== "object") return typeof value === "boolean" ? value : String(value);
    return isError(value) ? this.#whole(value) : this.#below(value, () => this.#object(value));
  }

  /** The words of an error, its members and causes, and the sentence on what cannot be read of them. */
  words(error) {
    const seen = new Set();
    const left = [["", error]];
    let words = "";
    let missing;
    while (left.length && words.length <= MAX_TEXT) {
      const [why, one] = left.pop();
      if (seen.has(one)) continue;
      seen.add(one);
      words += why;
      if (isError(one)) {
        words += `${textOf(one.name)}: ${textOf(one.message)}`;
        if (one.cause !== undefined) left.push(["\ncaused by ", one.cause]);
        if (one instanceof AggregateError) left.push(...one.errors.map((each) => ["\nmember: ", each]).reverse());
      }
      try {
        if (isError(one)) words += this.#below(one, () => this.#rest(one, words));
        else words += typeof one === "string" ? one : lineOf(reading(() => this.read(one)));
      } catch (fault) {
        missing ??= fault instanceof Unreadable ? fault.message : FAILED;
      }
    }
    return { words, missing };
  }

  #whole(error) {
    const { words, missing } = this.words(error);
    if (missing) throw new Unreadable(missing);
    this.#count(words.length);
    return words;
  }

  /** What an error shows besides its words. */
  #rest(error, words) {
    const stack = typeof error.stack === "string" ? headOf(error.stack) : error.stack;
    const { fields, ways } = this.#walk(error, (key) => key === "stack" || isWord(error, key));
    if (stack !== undefined) fields.set("stack", stack);
    const entries = Object.entries(this.#compose(error, fields, ways));
    const said = entries.filter(([, value]) => typeof value !== "string" || !words.includes(value));
    return said.map(([name, value]) => `\n${name}: ${lineOf(value)}`).join("");
  }

  #object(value) {
    if (types.isProxy(value)) refuse("a proxy");
    if (typeof value.then === "function") refuse("a promise");
    if (typeof value.next === "function" && (Symbol.iterator in value || Symbol.asyncIterator in value)) {
      refuse("an iterator");
    }
    const form = this.#builtin(value);
    const { fields, ways, base, methods } = this.#walk(value, (key) => isIndex(value, key));
    if (form === undefined) {
      const host = HOSTS.find((name) => globalThis[name] && value instanceof globalThis[name]);
      if (host) refuse(`a ${host}`);
      if (base !== null && Object.getPrototypeOf(base) !== null) refuse("an object of the runtime");
      if (methods && !fields.size && !ways.size) refuse("an object of which nothing shows");
    }
    if (form !== undefined && !fields.size && !ways.size) return form;
    const composed = this.#compose(value, fields, ways, form);
    const only = Object.values(composed);
    return !fields.size && ways.size && only.length === 1 ? only[0] : composed;
  }

  /** What an object of the language is, without what was added to it; undefined of every other object. */
  #builtin(value) {
    if (isBytes(value)) return this.#text(textOfBytes(value));
    if (Array.isArray(value) || types.isTypedArray(value)) {
      this.#count(value.length);
      return Array.from({ length: value.length }, (_, at) => this.read(value[at]));
    }
    if (types.isMap(value)) return this.#pairs([...Map.prototype.entries.call(value)]);
    if (types.isSet(value)) return [...Set.prototype.values.call(value)].map((one) => this.read(one));
    if (types.isDate(value)) {
      return Number.isNaN(Date.prototype.getTime.call(value)) ? "Invalid Date" : Date.prototype.toISOString.call(value);
    }
    if (types.isRegExp(value)) return this.#text(RegExp.prototype.toString.call(value));
    if (types.isBoxedPrimitive(value)) return this.read(unboxed(value));
    if (value instanceof URL) return this.#query(value.href, value.searchParams);
    if (value instanceof URLSearchParams) return this.#query(URLSearchParams.prototype.toString.call(value), value);
    if (globalThis.Headers && value instanceof Headers) return this.#pairs([...Headers.prototype.entries.call(value)]);
    return undefined;
  }

  /** Fields of an object and of its classes, read once each, and the functions that say what it is. */
  #walk(value, isKnown) {
    const found = { fields: new Map(), ways: new Set(), base: value, methods: false };
    for (let at = value; (found.base = at) !== null && !isBase(at); at = Object.getPrototypeOf(at)) {
      if (types.isProxy(at)) refuse("a proxy");
      const isClass = at !== value && Object.hasOwn(at, "constructor");
      if (isClass && typeof at.constructor === "function" && PRIVATE.test(sourceOf(at.constructor))) {
        refuse("an object with private members");
      }
      for (const key of Reflect.ownKeys(at)) {
        if (isKnown(key) || found.fields.has(key) || found.ways.has(key)) continue;
        const held = Object.getOwnPropertyDescriptor(at, key);
        if (isClass && (typeof held.value === "function" || (held.set && !held.get)) && !WAYS.has(key)) {
          if (key === Symbol.asyncIterator) refuse("an iterator");
          found.methods ||= key !== "constructor";
          continue;
        }
        const read = value[key];
        if (WAYS.has(key) && typeof read === "function") found.ways.add(key);
        else found.fields.set(key, read);
      }
    }
    return found;
  }

  #compose(value, fields, ways, form) {
    const composed = Object.create(null);
    const known = new Set(form === undefined ? [] : [JSON.stringify(form)]);
    const put = (name, read) => {
      while (Object.hasOwn(composed, name)) name += "'";
      composed[name] = read;
      known.add(JSON.stringify(read));
    };
    if (form !== undefined) put("its value", form);
    for (const [key, held] of fields) put(this.#text(String(key)), this.read(held));
    if (fields.size && ways.size) known.add(JSON.stringify(composed));
    for (const key of ways) {
      for (const said of key === Symbol.iterator ? [this.#items(value)] : saidBy(value, key)) {
        if (said === value) continue;
        const read = this.read(said);
        if (!known.has(JSON.stringify(read))) put(WAYS.get(key), read);
      }
    }
    return composed;
  }

  #items(value) {
    const items = [];
    for (const one of value) {
      this.#count(1);
      items.push(one);
    }
    return items;
  }

  #pairs(pairs) {
    const names = new Set(pairs.map(([key]) => key).filter((key) => typeof key === "string"));
    if (names.size !== pairs.length) return pairs.map((pair) => pair.map((one) => this.read(one)));
    const form = Object.create(null);
    for (const [key, one] of pairs) form[this.#text(key)] = this.read(one);
    return form;
  }

  /** A text, and what it gives when it is read by its names, where that is written otherwise in it. */
  #query(text, named) {
    this.#text(text);
    const pairs = [...URLSearchParams.prototype.entries.call(named)];
    if (pairs.flat().every((one) => text.includes(one))) return text;
    return { "its text": text, "its values": this.#pairs(pairs) };
  }

  #below(value, read) {
    if (this.#above.has(value)) throw new Unreadable("it holds itself.");
    if (this.#above.size >= MAX_DEPTH) throw new Unreadable(`it is nested more than ${MAX_DEPTH} levels deep.`);
    this.#above.add(value);
    try {
      return read();
    } finally {
      this.#above.delete(value);
    }
  }

  #text(text) {
    this.#count(text.length);
    return text;
  }

  #count(size) {
    this.#size += size;
    if (this.#size > MAX_SIZE) throw new Unreadable(`it is larger than ${MAX_SIZE / 1024} KiB.`);
  }
}

function isError(value) {
  return !types.isProxy(value) && (types.isNativeError(value) || value instanceof Error);
}

function isWord(error, key) {
  if (key === "name" || key === "message") return typeof error[key] === "string";
  return key === "cause" || (key === "errors" && error instanceof AggregateError);
}

function isIndex(value, key) {
  if (types.isRegExp(value)) return key === "lastIndex";
  if (!Array.isArray(value) && !types.isTypedArray(value) && !types.isStringObject(value)) return false;
  return key === "length" || (typeof key === "string" && /^\d+$/.test(key) && Number(key) < value.length);
}

/** Whether a prototype is the language's or node's own: nothing on it is of the result. */
function isBase(prototype) {
  const made = Object.hasOwn(prototype, "constructor") && prototype.constructor;
  if (typeof made !== "function" || made.prototype !== prototype) return false;
  if ([Buffer, URL, URLSearchParams, DOMException].includes(made)) return true;
  return /\{\s*\[native code\]\s*\}$/.test(sourceOf(made)) || made === globalThis.Headers;
}

function sourceOf(made) {
  return Function.prototype.toString.call(made);
}

function saidBy(value, key) {
  if (key === Symbol.toPrimitive) return ["string", "number", "default"].map((hint) => value[key](hint));
  return [key === "toJSON" ? value[key]("") : value[key]()];
}

function unboxed(value) {
  const kinds = { String, Number, Boolean, BigInt, Symbol };
  const made = Object.keys(kinds).find((name) => types[`is${name}Object`](value));
  return kinds[made].prototype.valueOf.call(value);
}

/** Bytes as the text that they are in UTF-8. */
function textOfBytes(value) {
  const bytes = types.isAnyArrayBuffer(value) ? new Uint8Array(value) : value;
  let text = "\0";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    // said below
  }
  return text.includes("\0") ? refuse("bytes that are no text of UTF-8") : text;
}

function headOf(stack) {
  const lines = stack.split("\n").filter((line) => !FRAME.test(line));
  return lines.join("\n").replace(KIND, "");
}

function lineOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function textOf(value) {
  try {
    return String(value);
  } catch {
    return "a value that has no text";
  }
}
