/** Where the sidecar is, and how it is asked. */
export interface SidecarOptions {
  /** Its address, `http://127.0.0.1:8181`; without it, its Unix socket. */
  url?: string;
  /** Its Unix socket; without it, TOOLGATE_SERVE_SOCKET, else the user's own. */
  socket?: string;
  /** Its token, for an address. */
  token?: string;
  /** For mutual TLS, as node's https.Agent takes them. */
  tls?: { ca?: string | Buffer; cert?: string | Buffer; key?: string | Buffer; passphrase?: string };
  /** Connections at once (64). */
  maxConnections?: number;
}

export interface GuardOptions extends SidecarOptions {
  /** Name of agents that tell none: a kind, not an id. */
  agent?: string;
  /** When one request must be answered, in milliseconds (55000). */
  timeoutMs?: number;
  /** How long a call that is held is waited for, in milliseconds (15 minutes). */
  holdMs?: number;
  /** What becomes of calls while the sidecar cannot be reached. */
  onFault?: "deny" | "continue";
  /** Tell the LLM, in front of a text, that its call was replaced. */
  notice?: boolean;
  /** Throw CallDenied instead of giving the sentence for the LLM. */
  throws?: boolean;
  /** Asks a person about a call; without it, such calls are denied. */
  ask?: (question: PersonQuestion, ruling: Ruling) => Promise<"allow" | "refuse" | "expired">;
}

export interface PersonQuestion {
  prompt: string;
  options: string[];
  timeout_s: number;
}

export type Outcome = "continue" | "modify" | "deny" | "ask" | "pending";
export type Ability = "arguments" | "tool" | "ask" | "wait";

/** What is to become of a call. */
export interface Ruling {
  /** By which it is reported; empty where no decision was made. */
  id: string;
  outcome: Outcome;
  why: string;
  /** What to run. */
  tool: string;
  /** With what. */
  arguments: Record<string, unknown>;
  /** Whom it hands work to, where it does. */
  agent_target: string | null;
  reason: string | null;
  /** The sentence for the LLM, where nothing may run. */
  refusal: string | null;
  scheduler: string | null;
  token?: string | null;
  question?: PersonQuestion | null;
  stop?: { now: boolean; by: string } | null;
  /** Whether `tool` may run with `arguments`. */
  allowed: boolean;
  /** Whether that is another call than the one that was asked about. */
  replaced: boolean;
  /** Whether schedulers rule on what the call gives: use nothing of it but what `succeed` or `fail` gives. */
  rules_on_result?: boolean;
}

/** What may be seen of what a call gave. */
export interface Given<Result = unknown> {
  outcome: "released" | "masked" | "replaced" | "withheld";
  why: string;
  /**
   * To be used in place of the call's own result: the very same if it was released, else plain JSON.
   * In place of an iterator it is a generator, with one piece where it was not released.
   */
  result: Result | unknown;
  reason: string | null;
  scheduler: string | null;
}

/** The ruling on a call, by which its end is told. */
export interface DecidedCall extends Ruling {
  /** Report that the call ran; gives what may be seen of its result. Never rejects. */
  succeed<Result>(result: Result, report?: Report): Promise<Given<Result>>;
  /**
   * Report that the call failed; gives what may be seen of the error's words. Never rejects.
   * If it is not `released`, the error itself may not be seen.
   */
  fail(error: unknown, report?: Report): Promise<Given<string>>;
}

export interface Call {
  tool: string;
  arguments?: Record<string, unknown>;
  /** The tools that there are: names, or names to JSON Schemas. */
  tools?: string[] | Record<string, object | null>;
  callId?: string;
  group?: string;
  iteration?: number;
  /** Whom it may hand work to, where it is a call that does; a ruling may name another of them. */
  availableAgents?: string[];
  /** Whom it hands work to; without it, whom of these its argument `agent` or `agent_name` names. */
  agentTarget?: string;
  /** What can be done with an answer; what cannot is a denial. */
  can?: Ability[];
  answer?: { token: string; answer: "allow" | "refuse" | "expired"; by?: string };
}

export interface Report {
  /** In micro-units of the currency. */
  cost?: number;
  /** In units of the currency, as a number or a decimal text. */
  costUsd?: number | string;
  /** The kind of error. */
  error?: string;
  seconds?: number;
  /** A status of HTTP, `timeout`, a short code. */
  signal?: string;
}

export interface Usage {
  provider: string;
  model?: string;
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  cost?: number;
  cost_usd?: number | string;
  seconds?: number;
  iteration?: number;
  /** The id of the ruling on `llm:request`, if there was one. */
  id?: string;
  /** Where the LLM did not answer: the kind of error. */
  error?: string;
}

export interface ToolOptions<Args, Result> {
  /** JSON Schema of the arguments, by which replacements are checked. */
  schema?: object;
  /** Checks arguments before the tool runs; throws, or gives them as the tool takes them. */
  validate?: (args: unknown) => Args | Promise<Args>;
  /** What a result cost, in units of the currency. */
  cost?: (result: Result) => number | string | undefined;
}

export interface Place {
  session: string;
  agent: string;
  names: string[];
}

export declare class Guard {
  constructor(options?: GuardOptions);
  readonly place: Place;
  turn<Result>(
    at: { session?: string; agent?: string; labels?: Record<string, string>; request?: string },
    body: (turn: { session: string; signal: AbortSignal }) => Promise<Result> | Result,
  ): Promise<Result>;
  decide(call: Call, options?: { signal?: AbortSignal }): Promise<DecidedCall>;
  /** What may be seen of a result. It reads an iterator to its end; nothing is read where nobody rules on results. */
  give<Result>(
    ruling: Ruling,
    result: Result,
    options?: { success?: boolean; signal?: AbortSignal },
  ): Promise<Given<Result>>;
  report(id: string, outcome: "succeed" | "fail" | "release", report?: Report): Promise<boolean>;
  usage(used: Usage): Promise<boolean>;
  tool<Args extends Record<string, unknown>, Result>(
    name: string,
    execute: (args: Args, options?: any) => Promise<Result> | Result,
    options?: ToolOptions<Args, Result>,
  ): (args: Args, options?: any) => Promise<Result | string>;
  tools<Tools extends Record<string, any>>(
    record: Tools,
    how?: {
      schemaOf?: (tool: any) => object | undefined;
      validateOf?: (tool: any) => ((args: unknown) => unknown) | undefined;
    },
  ): Tools;
  close(): void;
}

/** A call that may not run (`throws: true`). */
export declare class CallDenied extends Error {
  readonly ruling: Ruling;
}

/** An error of a tool of which a part may not be seen. */
export declare class ResultWithheld extends Error {
  readonly outcome: "masked" | "replaced" | "withheld";
}

/** The sidecar did not answer (`status` 0), or said why it cannot. */
export declare class SidecarError extends Error {
  readonly status: number;
}

export declare class SidecarClient {
  constructor(options?: SidecarOptions);
  post(where: string, body: unknown, options?: { signal?: AbortSignal; timeoutMs?: number }): Promise<any>;
  close(): void;
}

export declare function defaultSocket(namespace?: string): string;
