// The asking side of Toolgate in JavaScript: a guard in front of tools, over `toolgate serve`.
//
//   const guard = new Guard({ agent: "clerk" });
//   const search = guard.tool("search", async ({ query }) => …);
//   await guard.turn({ session: "s1" }, () => search({ query: "x" }));
//
// A call that may not run gives the sentence for the LLM as its result. A sidecar that cannot be reached denies.
// Where schedulers rule on results, a tool gives what may be seen of its own.
// Who works for whom is told by the tool that runs while somebody asks (AsyncLocalStorage), not by ids.

import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";

import { SidecarClient, SidecarError, defaultSocket } from "./client.js";
import { gather, isIterator, Pieces } from "./pieces.js";
import { shown, shownError, Unreadable } from "./shown.js";

export { SidecarClient, SidecarError, defaultSocket };

const REFUSED = "The tool call was denied: ";
const WITHHELD = "The tool ran, but its result is withheld: ";
const CHANGED = "it was changed while it was ruled on.";
const UNREAD = "it failed while it was read.";
/** Characters of an error's words, where nobody rules on them. */
const MAX_WORDS = 256 * 1024;
const TIMEOUT_MS = 55_000;
const HOLD_MS = 15 * 60_000;
const SPARE_MS = 5_000;
const REPORT_MS = 5_000;
const MAX_REQUEST = 128 * 1024;
const ALLOWED = new Set(["continue", "modify"]);

/** A call that may not run, for who would rather catch than read (`throws: true`). */
export class CallDenied extends Error {
  constructor(ruling) {
    super(ruling.refusal);
    this.name = "CallDenied";
    this.ruling = ruling;
  }
}

/** An error of a tool of which a part may not be seen; it has the words that may be, and no cause. */
export class ResultWithheld extends Error {
  constructor(given) {
    super(typeof given.result === "string" ? given.result : JSON.stringify(given.result));
    this.name = "ResultWithheld";
    this.outcome = given.outcome;
  }
}

/** Rules on the calls of one application's agents. */
export class Guard {
  #client;
  #options;
  #tools = new Map();
  #places = new AsyncLocalStorage();

  constructor(options = {}) {
    this.#options = { agent: "", timeoutMs: TIMEOUT_MS, holdMs: HOLD_MS, onFault: "deny", notice: false, ...options };
    this.#client = new SidecarClient(options);
  }

  /** The place in which code runs now: its session, agent and those above it. */
  get place() {
    return this.#places.getStore() ?? { session: "", agent: this.#options.agent, names: [] };
  }

  /**
   * Run `body` as a turn of an agent: shown in `toolgate agents`, stopped from there.
   * Inside of a running tool it is an agent that works for the one whose tool that is. `request` is what the
   * user asked for; inside of a tool it is not told: what an LLM writes is no user's request.
   */
  async turn({ session = randomUUID(), agent = this.#options.agent, labels, request } = {}, body) {
    const above = this.#places.getStore();
    const same = above !== undefined && above.session === session;
    const place = {
      session: same ? `${session}/${agent}` : session,
      agent,
      root: above?.root || above?.session || session,
      parent: above?.session || undefined,
      names: [...(above?.names ?? []), agent].slice(-64),
      labels: { ...above?.labels, ...labels },
      stop: new AbortController(),
    };
    const asked = request && !above ? { request: String(request).slice(0, MAX_REQUEST) } : {};
    const told = { ...tell(place), ...asked, do: "begin" };
    await this.#post("/v1/turn", told, { timeoutMs: REPORT_MS }).catch(() => undefined);
    const watching = this.#watch(place);
    let status = "completed";
    try {
      return await this.#places.run(place, () => body({ session: place.session, signal: place.stop.signal }));
    } catch (error) {
      status = place.stop.signal.aborted ? "cancelled" : "error";
      throw error;
    } finally {
      watching.abort();
      const end = { ...tell(place), do: "end", status };
      await this.#post("/v1/turn", end, { timeoutMs: REPORT_MS }).catch(() => undefined);
    }
  }

  /**
   * The ruling on one call. Never rejects for what a sidecar did or did not do: that is a denial.
   * Its `succeed(result)` and `fail(error)` report the call, and give what may be seen of its result.
   */
  async decide(call, options) {
    const ruling = await this.#decide(call, options);
    const succeed = async (result, report) => {
      const given = await this.give(ruling, result);
      return await this.#end(ruling, given, "succeed", report);
    };
    const fail = async (error, report) => {
      const given = await this.#giveError(ruling, error);
      return await this.#end(ruling, given, "fail", { error: kindOf(error), ...report });
    };
    return Object.assign(ruling, { succeed, fail });
  }

  async #decide(call, { signal } = {}) {
    const { ask, timeoutMs, holdMs } = this.#options;
    const can = call.can ?? ["arguments", "tool", ...(ask ? ["ask"] : [])];
    const body = {
      ...tell(this.place),
      tool: call.tool,
      arguments: call.arguments ?? {},
      ...(call.tools === undefined ? {} : { tools: call.tools }),
      call_id: call.callId ?? "",
      group: call.group ?? "",
      iteration: call.iteration ?? 0,
      ...(call.availableAgents === undefined ? {} : { available_agents: call.availableAgents }),
      ...(call.agentTarget === undefined ? {} : { agent_target: call.agentTarget }),
      can: [...can, "wait"],
      timeout_ms: timeoutMs,
      ...(call.answer === undefined ? {} : { answer: call.answer }),
    };
    const over = Date.now() + holdMs;
    try {
      let ruling = await this.#ask("/v1/decide", body, signal);
      while (ruling.outcome === "pending" && Date.now() < over) {
        ruling = await this.#ask("/v1/wait", { token: ruling.token, timeout_ms: timeoutMs }, signal);
      }
      if (ruling.outcome === "pending") return deny(call, "expired", `it was ${ruling.reason}, for too long`);
      if (ruling.stop) this.place.stop?.abort(new Error("an operator ended this turn"));
      if (ruling.outcome !== "ask" || !ask || call.answer !== undefined) return finish(ruling);
      const answer = await ask(ruling.question, finish(ruling));
      return await this.#decide({ ...call, answer: { token: ruling.token, answer, by: "" } }, { signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      if (this.#options.onFault === "continue" && error instanceof SidecarError && error.status === 0) {
        return finish({ ...unruled(call), outcome: "continue", why: "unasked" });
      }
      return deny(call, "gate_failed", error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * What may be used of a result, as schedulers rule: bring it before anybody sees it, and report after it.
   * `outcome` is `released`, `masked`, `replaced` or `withheld`; `result` stands in place of the tool's own.
   * What an iterator gives is gathered first, and given as a generator. Nobody is asked, and nothing is read,
   * where no scheduler rules on results of the tool. Never rejects: a fault withholds.
   */
  async give(ruling, result, { success = true, signal } = {}) {
    if (!rulesOnResult(ruling)) return release(result);
    if (!(result instanceof Pieces) && !isIterator(result)) {
      return await this.#rule(ruling, () => shown(result), result, { success, signal });
    }
    const unread = () => new Pieces(Symbol.asyncIterator in result, [], undefined, UNREAD);
    const pieces = result instanceof Pieces ? result : await gather(result).catch(unread);
    const given = await this.#rule(ruling, () => pieces.shown(), undefined, { success, signal });
    return { ...given, result: given.outcome === "released" ? pieces.again() : pieces.again(given.result) };
  }

  /** The same for an error: its words. Of one that holds what no rule can read, nothing but its words is given. */
  async #giveError(ruling, error) {
    if (!rulesOnResult(ruling)) return release(wordsOf(error));
    let told = { words: "" };
    const read = () => (told = shownError(error)).words;
    const given = await this.#rule(ruling, read, undefined, { success: false });
    if (given.outcome !== "released") return given;
    return { ...given, outcome: told.isWhole ? "released" : "masked", result: told.words };
  }

  /** The ruling on what `read` gives, twice the same; on a release of it, `result` is given. */
  async #rule(ruling, read, result, { success, signal }) {
    const { timeoutMs, holdMs } = this.#options;
    const over = Date.now() + holdMs;
    try {
      const body = { id: ruling.id, result: read(), success, can: ["wait"], timeout_ms: timeoutMs };
      const asked = JSON.stringify(body.result);
      let given = await this.#ask("/v1/result", body, signal);
      while (given.outcome === "pending" && Date.now() < over) given = await this.#ask("/v1/result", body, signal);
      if (given.outcome === "pending") return withhold("expired", "it was held, and nobody answered in time.");
      if (given.outcome !== "released") return given;
      return JSON.stringify(read()) === asked ? { ...given, result } : withhold("gate_failed", CHANGED);
    } catch (error) {
      if (error instanceof Unreadable) return withhold("gate_failed", error.message);
      if (signal?.aborted) throw error;
      if (this.#options.onFault === "continue" && error instanceof SidecarError && error.status === 0) {
        return release(result);
      }
      return withhold("gate_failed", error instanceof Error ? error.message : String(error));
    }
  }

  /** What became of a call that was let through: `succeed`, `fail` or `release`. Told once; never rejects. */
  async report(id, outcome, { cost, costUsd, error, seconds, signal } = {}) {
    if (!id) return false;
    const told = { cost, cost_usd: costUsd, error, seconds, signal };
    const said = Object.fromEntries(Object.entries(told).filter(([, value]) => value !== undefined));
    return await this.#tell("/v1/report", { id, outcome, ...said });
  }

  /** What one request to an LLM used: `provider`, `model`, `input_tokens`, `output_tokens`, `cost_usd` … */
  async usage(used) {
    return await this.#tell("/v1/usage", { ...tell(this.place), ...used });
  }

  /**
   * A function that asks before it runs: `execute(args, options)`, gated.
   * Where another tool is to run, it is one that was wrapped by this guard as well.
   */
  tool(name, execute, { schema, validate, cost } = {}) {
    this.#tools.set(name, { execute, schema, validate, cost });
    return async (args, options) => await this.#run(name, args ?? {}, options);
  }

  /** The tools of the AI SDK (and others of that shape: `{ execute, … }`), each gated. */
  tools(record, { schemaOf, validateOf } = {}) {
    const entries = Object.entries(record).map(([name, one]) => {
      if (typeof one.execute !== "function") return [name, one];
      const how = { schema: schemaOf?.(one), validate: validateOf?.(one) };
      return [name, { ...one, execute: this.tool(name, one.execute.bind(one), how) }];
    });
    return Object.fromEntries(entries);
  }

  /** Close the connections to the sidecar. */
  close() {
    this.#client.close();
  }

  async #run(name, args, options) {
    const tools = Object.fromEntries([...this.#tools].map(([key, one]) => [key, one.schema ?? null]));
    const call = { tool: name, arguments: args, tools, callId: options?.toolCallId };
    const ruling = await this.decide(call, { signal: options?.abortSignal });
    if (!ruling.allowed) {
      if (this.#options.throws) throw new CallDenied(ruling);
      return ruling.refusal;
    }
    const chosen = this.#tools.get(ruling.tool);
    const started = performance.now();
    const seconds = () => (performance.now() - started) / 1000;
    let result;
    try {
      if (!chosen) throw new TypeError(`there is no tool ${ruling.tool}`);
      const valid = chosen.validate ? await chosen.validate(ruling.arguments) : ruling.arguments;
      const place = { ...this.place, names: this.place.names.length ? this.place.names : [this.place.agent] };
      result = await this.#places.run(place, async () => {
        const given = await chosen.execute(valid, options);
        return rulesOnResult(ruling) && isIterator(given) ? await gather(given) : given;
      });
    } catch (error) {
      const given = await ruling.fail(error, { seconds: seconds() });
      throw given.outcome === "released" ? error : new ResultWithheld(given);
    }
    const costUsd = chosen.cost?.(result instanceof Pieces ? result.again() : result);
    const given = await ruling.succeed(result, { seconds: seconds(), costUsd });
    return this.#options.notice && ruling.replaced ? note(given.result, name, ruling) : given.result;
  }

  /** Report a call, with its kind of error only if that may be seen, and pass on what is given of its result. */
  async #end(ruling, given, outcome, report = {}) {
    const hidden = given.outcome !== "released" && outcome === "fail";
    await this.report(ruling.id, outcome, hidden ? { ...report, error: "Error" } : report);
    return given;
  }

  async #ask(where, body, signal) {
    const ruling = await this.#client.post(where, body, { signal, timeoutMs: this.#options.timeoutMs + SPARE_MS });
    if (typeof ruling.outcome !== "string") throw new SidecarError("this is no ruling");
    return ruling;
  }

  async #post(where, body, options) {
    return await this.#client.post(where, body, options);
  }

  async #tell(where, body) {
    try {
      const answer = await this.#post(where, body, { timeoutMs: REPORT_MS });
      if (answer.stop) this.place.stop?.abort(new Error("an operator ended this turn"));
      return answer.recorded === true;
    } catch {
      return false; // the ledger counts a call of which nothing is told as run
    }
  }

  #watch(place) {
    const over = new AbortController();
    const body = { ...tell(place), do: "watch", timeout_ms: TIMEOUT_MS };
    const look = async () => {
      while (!over.signal.aborted) {
        const how = { signal: over.signal, timeoutMs: TIMEOUT_MS + SPARE_MS };
        const turn = await this.#post("/v1/turn", body, how);
        if (turn.stop) place.stop.abort(new Error("an operator ended this turn"));
        if (turn.stop || !turn.busy) return;
      }
    };
    look().catch(() => undefined); // rulings tell of a stop as well
    return over;
  }
}

function tell(place) {
  return {
    session: place.session,
    agent: place.agent,
    ...(place.root && place.root !== place.session ? { root_session: place.root } : {}),
    ...(place.parent ? { parent: place.parent, lineage: place.names } : {}),
    ...(place.labels && Object.keys(place.labels).length ? { labels: place.labels } : {}),
  };
}

function finish(ruling) {
  const allowed = ALLOWED.has(ruling.outcome);
  return { ...ruling, allowed, replaced: ruling.outcome === "modify" };
}

function unruled(call) {
  const nobody = { agent_target: null, reason: null, refusal: null, scheduler: null };
  return { id: "", tool: call.tool, arguments: call.arguments ?? {}, ...nobody };
}

function deny(call, why, reason) {
  return finish({ ...unruled(call), outcome: "deny", why, reason, refusal: REFUSED + reason });
}

function rulesOnResult(ruling) {
  return Boolean(ruling.id && ruling.rules_on_result);
}

function release(result) {
  return { outcome: "released", why: "unasked", result, reason: null, scheduler: null };
}

function withhold(why, reason) {
  return { outcome: "withheld", why, result: WITHHELD + reason, reason, scheduler: null };
}

function kindOf(error) {
  return (error instanceof Error ? textOf(error.name) : typeof error).slice(0, 256);
}

/** The words of an error that nobody rules on, of its members and of what caused it. */
function wordsOf(error) {
  const seen = new Set();
  const left = [["", error]];
  let words = "";
  while (left.length && words.length <= MAX_WORDS) {
    const [why, one] = left.pop();
    if (seen.has(one)) continue;
    seen.add(one);
    words += why + (one instanceof Error ? `${textOf(one.name)}: ${textOf(one.message)}` : textOf(one));
    if (one instanceof Error && one.cause !== undefined) left.push(["\ncaused by ", one.cause]);
    if (one instanceof AggregateError) left.push(...one.errors.map((member) => ["\nmember: ", member]).reverse());
  }
  return words;
}

function textOf(value) {
  try {
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  } catch {
    return "a value that has no text";
  }
}

function note(result, asked, ruling) {
  const words = `[${asked} was replaced by ${ruling.tool}${ruling.reason ? `: ${ruling.reason}` : ""}]`;
  return typeof result === "string" ? `${words}\n${result}` : result;
}
