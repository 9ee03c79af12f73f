// One replica at work, as bus/README.md ("How a scheduler's worker behaves") has it, step by step.
//
// Two connections: one for the blocking read, one for all else. Ages are read off the server's clock.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { RESP_TYPES, createClient } from "redis";
import * as wire from "./wire.mjs";

const BEAT_MS = 500;
const EXPIRY_MS = 1500;
const GONE_MS = 60_000;
const IDLE_INBOX_MS = 3_600_000;
const RENEW_MS = 200;
const CLAIM_IDLE_MS = 800;
const CLAIM_MOST = 64;
const BLOCK_MS = 1000;
const NOTICE_MS = 2000;
const LEAVE_MS = 50;
const DRAIN_MS = 5000;
const SERVER_MS = 1000; // one that is away is not waited for when we go
const HUNG_MS = 5000;
const KEPT_MS = 10_000;
const IDLE_VERDICTS_MS = 60_000;
const HOLD_SLACK_MS = 5000;
const POISON = 3;
const BYTES = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };

export class Worker {
  /** `scheduler` has name, tools, priority, decide; `key` signs, if given. */
  constructor(scheduler, { url, namespace = "default", key = null, shadow = false, concurrency = 64, revision = "" }) {
    this.scheduler = scheduler;
    this.replica = `${hostname().replace(/[^A-Za-z0-9.-]/g, "-").slice(0, 32)}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.counted = { answered: 0, late: 0, expired: 0, failed: 0, claimed: 0, poisoned: 0, refused: {} };
    this.options = { key, namespace, shadow, concurrency, revision };
    this.beats = 0;
    const shard = `tg:{${namespace}:0}`;
    this.keys = {
      inbox: `${shard}:in:${scheduler.name}`,
      verdicts: (orchestrator) => `${shard}:out:${orchestrator}:${scheduler.name}`,
      wake: (orchestrator) => `${shard}:wake:${orchestrator}`,
      roster: `tg:{${namespace}}:roster`,
      member: (member) => `tg:{${namespace}}:roster:${member}`,
      starts: `tg:{${namespace}}:roster-starts`,
      hold: ({ id, phase }) => `tg:{${namespace}:ledger}:hold:${scheduler.name}:${id.toString("hex")}:${phase}`,
    };
    this.me = `s:${scheduler.name}:${this.replica}`;
    this.globs = scheduler.tools.map(pattern);
    this.held = new Set(); // entries that are being decided
    this.deciding = new Set(); // promises of them
    this.talked = new Set(); // orchestrators that were answered since the last heartbeat
    this.clock = null;
    this.stopping = false;
    this.left = false;
    this.commands = client(url);
    this.reading = client(url);
  }

  /** Join group and roster; when it is done, every orchestrator that is awake asks us. */
  async start() {
    await Promise.all([this.commands.connect(), this.reading.connect()]);
    this.started = Number(await this.run("INCR", this.keys.starts));
    await this.makeGroup();
    await this.beat();
    await this.wakeOrchestrators();
    this.loops = [this.readOn(), this.every(BEAT_MS, () => this.beat()), this.every(RENEW_MS, () => this.renew())];
    await this.noticed();
  }

  /** Off the roster first, then finish what is in hand, then go. What is left a peer takes over. */
  async stop() {
    this.left = true;
    await within(SERVER_MS, attempt(() => this.leaveRoster()));
    await sleep(LEAVE_MS); // what was asked before they knew still comes in
    this.stopping = true;
    await within(BLOCK_MS + SERVER_MS, this.loops[0]);
    await within(DRAIN_MS, Promise.allSettled(this.deciding));
    await within(SERVER_MS, attempt(() => this.leaveGroup()));
    this.reading.destroy();
    this.commands.destroy();
  }

  // -------------------------------------------------------------- reading

  async readOn() {
    const { name } = this.scheduler;
    let newest = ">";
    let from = ">";
    while (!this.stopping) {
      const room = this.options.concurrency - this.held.size;
      if (room <= 0) {
        await Promise.race(this.deciding);
        continue;
      }
      try {
        const read = ["XREADGROUP", "GROUP", name, this.replica, "COUNT", `${room}`, "BLOCK", `${BLOCK_MS}`];
        const found = await this.reading.sendCommand([...read, "STREAMS", this.keys.inbox, from], BYTES);
        from = ">";
        for (const [id, fields] of found?.[0]?.[1] ?? []) this.take((newest = id.toString()), fields, 1);
      } catch (error) {
        from = newest; // what was given to the connection that broke, and never came
        if (/^(NOGROUP|UNBLOCKED)|consumer group/.test(error.message)) await attempt(() => this.makeGroup());
        await sleep(100); // the client connects again by itself
      }
    }
  }

  /** One entry: decided, answered, acknowledged with the last of its answers. */
  take(entry, fields, times) {
    const work = this.work(entry, fields, times).catch((error) => {
      console.error(`entry ${entry}: ${error.message}`); // it stays pending, and is taken over
    });
    this.held.add(entry);
    this.deciding.add(work);
    work.finally(() => {
      this.held.delete(entry);
      this.deciding.delete(work);
    });
  }

  async work(entry, fields, times) {
    const told = {};
    for (let at = 0; at < (fields?.length ?? 0); at += 2) told[fields[at].toString()] = fields[at + 1];
    const orchestrator = told.orch?.toString() ?? "";
    if (times > POISON) this.counted.poisoned += 1;
    else if (!told.frame || !/^[A-Za-z0-9]{1,64}$/.test(orchestrator)) this.refuse("malformed");
    else if (told.event?.toString() === "tool:withdrawn") await this.withdraw(orchestrator, told.frame);
    else await this.answerAll(entry, orchestrator, told.frame);
    await this.done(entry);
  }

  async answerAll(entry, orchestrator, frame) {
    const written = performance.now() - Math.max(0, this.now() - Number(entry.split("-")[0]));
    const asked = this.genuine(orchestrator, frame, "question");
    await Promise.all(
      asked.map(async (item) => {
        const verdict = await this.decide(orchestrator, item, written);
        if (verdict !== null) await this.answer(orchestrator, item, verdict);
      }),
    );
  }

  /** The items of a frame that are right and, with a key, rightly signed. */
  genuine(orchestrator, frame, kind) {
    let found;
    try {
      found = wire.items(frame);
    } catch (error) {
      this.refuse(error.reason);
      return [];
    }
    const { key, namespace } = this.options;
    return found.filter((item) => {
      if (item instanceof wire.Refused) this.refuse(item.reason);
      else if (key === null || wire.isGenuine(key, namespace, orchestrator, this.scheduler.name, item, kind)) return true;
      else this.refuse("forged");
      return false;
    });
  }

  // -------------------------------------------------------------- deciding and answering

  /** The verdict on one question that was written then; null where none is to be given. */
  async decide(orchestrator, item, written) {
    let call;
    try {
      call = wire.question(item);
    } catch (error) {
      this.refuse(error.reason);
      return null;
    }
    const late = () => performance.now() - written > Number(call.ttl_ms);
    if (late()) {
      this.counted.expired += 1;
      return null;
    }
    if (!this.globs.some((glob) => glob.test(call.tool_name))) return { action: "continue" };
    try {
      const { final, ...verdict } = await this.scheduler.decide(call);
      if (verdict.action === "hold") await this.hold(orchestrator, item, verdict.seconds, final);
      this.counted.answered += 1;
      if (late()) this.counted.late += 1;
      return verdict;
    } catch (error) {
      console.error(`decision ${call.id}:`, error);
      this.counted.failed += 1;
      return { action: "failed", reason: `it raised ${error.name}` };
    }
  }

  async answer(orchestrator, item, verdict) {
    const { name } = this.scheduler;
    const { key, namespace, revision } = this.options;
    const start = key && item.version > 1 ? `${this.replica}:${this.started}` : "";
    const body = wire.verdictBody(verdict, item.version > 1 ? revision : "", start);
    const mac = key && wire.signVerdict(key, namespace, orchestrator, name, item, body);
    const frame = wire.frame([wire.item(item.version, item.id, item.phase, body, mac)]); // as it was asked
    this.talked.add(orchestrator);
    // Said twice it does no harm: after a lost connection it is said again.
    await this.surely("XADD", this.keys.verdicts(orchestrator), "*", "event", "verdict", "frame", frame);
  }

  done(entry) {
    return this.surely("XACK", this.keys.inbox, this.scheduler.name, entry);
  }

  /** Stored before it is said, so that any replica may answer. Here only the one that holds does. */
  async hold(orchestrator, item, seconds, final) {
    const value = wire.pack([orchestrator, item.id, item.phase, item.body]);
    const ms = Math.ceil(seconds * 1000) + HOLD_SLACK_MS;
    await this.surely("SET", this.keys.hold(item), value, "PX", `${ms}`);
    const answered = Promise.resolve(final)
      .catch((error) => ({ action: "failed", reason: `it raised ${error.name}` }))
      .then(async (verdict) => {
        const waits = (await this.run("GET", this.keys.hold(item))) !== null;
        if (waits && verdict) await this.answer(orchestrator, item, verdict);
        await this.run("DEL", this.keys.hold(item)); // after the answer: nothing that dies in between loses it
      })
      .catch((error) => console.error(`the final answer of a hold: ${error.message}`));
    this.deciding.add(answered);
    answered.finally(() => this.deciding.delete(answered));
  }

  /** Nobody waits any longer: what was held is forgotten. */
  async withdraw(orchestrator, frame) {
    const meant = this.genuine(orchestrator, frame, "withdrawn").filter((item) => {
      try {
        if (wire.isWithdrawal(item)) return true;
      } catch {
        // as what is none
      }
      this.refuse("malformed");
      return false;
    });
    await Promise.all(meant.map((item) => this.run("DEL", this.keys.hold(item))));
  }

  refuse(reason) {
    this.counted.refused[reason] = (this.counted.refused[reason] ?? 0) + 1;
  }

  // -------------------------------------------------------------- alive

  async beat() {
    const sent = performance.now();
    const { answered, late } = this.counted;
    const plain = {
      priority: this.scheduler.priority,
      tools: this.scheduler.tools,
      shadow: this.options.shadow,
      started: this.started,
      pid: process.pid,
      host: hostname(),
      answered,
      late,
    };
    const heartbeat = this.signed(plain, {
      ...plain,
      wire: wire.VERSIONS,
      phases: this.scheduler.phases ?? ["select", "verify"], // with "admit" it is asked last, about what is about to run
      kinds: ["question", "withdrawn", "zlib"], // it reads no facts, so they may be compressed
      ...(this.scheduler.reads ? { reads: this.scheduler.reads } : {}), // ["request"]: what the user asked for, as call.request
      build: "my-rules-js",
      revision: { label: this.options.revision, digest: "" },
    });
    const alive = this.left
      ? []
      : [
          ["SADD", this.keys.roster, this.me],
          ["SET", this.keys.member(this.me), heartbeat, "PX", `${EXPIRY_MS}`],
        ];
    const [time] = await Promise.all([this.run("TIME"), ...alive.map((command) => this.run(...command))]);
    this.clock = { server: Number(time[0]) * 1000 + Number(time[1]) / 1000, at: (sent + performance.now()) / 2 };
    await this.trim();
  }

  /** What readers of version 1 know, and beside it what the others read, with its signature where there is a key. */
  signed(plain, fields) {
    this.beats += 1;
    const { key, namespace } = this.options;
    const v2 = wire.pack({ ...fields, beat: this.beats });
    const mac = key && wire.signHeartbeat(key, namespace, this.scheduler.name, this.replica, v2);
    return wire.pack({ ...plain, v2, ...(mac ? { mac } : {}) });
  }

  /** By age, never by count; in the inbox nothing that waits to be read or acknowledged. */
  async trim() {
    const oldest = `${Math.floor(this.now() - KEPT_MS)}-0`;
    for (const orchestrator of this.talked) {
      const stream = this.keys.verdicts(orchestrator);
      await this.run("XTRIM", stream, "MINID", "~", oldest);
      await this.run("PEXPIRE", stream, `${IDLE_VERDICTS_MS}`);
    }
    this.talked.clear();
    const pending = await this.run("XPENDING", this.keys.inbox, this.scheduler.name);
    const [group] = await this.run("XINFO", "GROUPS", this.keys.inbox);
    const read = pairs(group)["last-delivered-id"];
    const floors = [oldest, `${read}`, ...(Number(pending[0]) > 0 ? [`${pending[1]}`] : [])];
    await this.run("XTRIM", this.keys.inbox, "MINID", "~", floors.sort(byAge)[0]);
    await this.run("PEXPIRE", this.keys.inbox, `${IDLE_INBOX_MS}`);
  }

  async renew() {
    const { name } = this.scheduler;
    const claim = ["XCLAIM", this.keys.inbox, name, this.replica];
    if (this.held.size > 0) await this.run(...claim, "0", ...this.held, "IDLE", "0", "JUSTID");
    if (this.stopping || this.held.size >= this.options.concurrency) return;
    const idle = ["XPENDING", this.keys.inbox, name, "IDLE", `${CLAIM_IDLE_MS}`, "-", "+", `${CLAIM_MOST}`];
    const times = new Map((await this.run(...idle)).map(([id, , , count]) => [`${id}`, Number(count) + 1]));
    for (const entry of this.held) times.delete(entry);
    if (times.size === 0) return;
    for (const entry of await this.run(...claim, `${CLAIM_IDLE_MS}`, ...times.keys())) {
      if (entry === null) continue;
      this.counted.claimed += 1;
      this.take(entry[0].toString(), entry[1], times.get(entry[0].toString()) ?? 2);
    }
  }

  async makeGroup() {
    const { name } = this.scheduler;
    await this.run("XGROUP", "CREATE", this.keys.inbox, name, "0", "MKSTREAM").catch((error) => {
      if (!error.message.startsWith("BUSYGROUP")) throw error;
    });
    await this.run("PEXPIRE", this.keys.inbox, `${IDLE_INBOX_MS}`);
  }

  async leaveRoster() {
    // A word that it leaves: who only stops to beat has vanished, and is remembered for a minute.
    const word = this.signed({}, { tools: [], started: this.started, wire: wire.VERSIONS, left: true });
    await Promise.all([
      this.run("SREM", this.keys.roster, this.me),
      this.run("SET", this.keys.member(this.me), word, "PX", `${GONE_MS}`),
    ]);
    await this.wakeOrchestrators();
  }

  async leaveGroup() {
    const { name } = this.scheduler;
    for (const consumer of await this.run("XINFO", "CONSUMERS", this.keys.inbox, name)) {
      const told = pairs(consumer);
      if (`${told.name}` === this.replica && Number(told.pending) === 0) {
        await this.run("XGROUP", "DELCONSUMER", this.keys.inbox, name, this.replica);
      }
    }
  }

  async orchestrators() {
    const members = (await this.run("SMEMBERS", this.keys.roster)).map(String);
    return members.filter((member) => member.startsWith("o:")).map((member) => member.slice(2));
  }

  async wakeOrchestrators() {
    for (const one of await this.orchestrators()) {
      const alive = await this.run("EXISTS", this.keys.member(`o:${one}`));
      if (Number(alive) === 1) await this.run("XADD", this.keys.wake(one), "*", "event", "roster");
    }
  }

  /** Until every living orchestrator reads our verdicts; not for longer than two seconds. */
  async noticed() {
    for (const until = performance.now() + NOTICE_MS; performance.now() < until; await sleep(20)) {
      const beats = await Promise.all(
        (await this.orchestrators()).map((one) => this.run("GET", this.keys.member(`o:${one}`))),
      );
      const reading = beats.filter((beat) => beat !== null).map((beat) => wire.unpack(beat, 16 * 1024).reading);
      if (reading.every((names) => names?.includes(this.scheduler.name))) return;
    }
  }

  // -------------------------------------------------------------- time and the server

  /** The server's time now, in ms: what it last told, and what has passed since. */
  now() {
    return this.clock.server + performance.now() - this.clock.at;
  }

  run(...command) {
    return this.commands.sendCommand(command, BYTES);
  }

  /** Again until it was done, or there is no use in it. Only for what may be done twice. */
  async surely(...command) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.run(...command);
      } catch (error) {
        if (tries === 20 || /^[A-Z]+ /.test(error.message)) throw error; // the server's own word is final
        await sleep(100);
      }
    }
  }

  async every(ms, task) {
    while (!this.stopping) {
      await sleep(ms);
      if (!this.stopping) await attempt(task);
    }
  }
}

function client(url) {
  const path = /^unix:\/\/(?<path>[^?]+)/.exec(url)?.groups.path;
  const socket = { socketTimeout: HUNG_MS, ...(path ? { path } : {}) };
  const made = createClient(path ? { socket } : { url, socket });
  made.on("error", (error) => console.error(`the bus: ${error.message || error.code}`)); // it connects again
  return made;
}

/** A tool-name glob: `*`, `?`, `[…]`; case matters. */
function pattern(glob) {
  const text = glob.replace(/\[(!?)([^\]]+)\]|[.*+?^${}()|[\]\\]/g, (found, not, set) => {
    if (set) return `[${not ? "^" : ""}${set.replace(/[\\^]/g, "\\$&")}]`;
    return { "*": ".*", "?": "." }[found] ?? `\\${found}`;
  });
  return new RegExp(`^${text}$`, "s");
}

function pairs(flat) {
  const found = {};
  for (let at = 0; at < flat.length; at += 2) found[flat[at].toString()] = flat[at + 1];
  return found;
}

function byAge(one, other) {
  const [a, b] = [one, other].map((id) => id.split("-").map(BigInt));
  return a[0] === b[0] ? Number(a[1] - b[1]) : Number(a[0] - b[0]);
}

function within(ms, promise) {
  return Promise.race([promise, sleep(ms, undefined, { ref: false })]);
}

/** For what is tried again anyway: a failure is told, and that is all. */
async function attempt(task) {
  try {
    await task();
  } catch (error) {
    console.error(`the bus: ${error.message}`);
  }
}
