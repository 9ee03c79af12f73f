"""The guard in JavaScript, over real sidecars: what it runs, what it refuses, what it reports.

Needs node, for some of it the packages that `npm install` puts beside the example. Where they are missing
the tests are skipped, unless TOOLGATE_NODE=required (as CI sets it): then they fail.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUARD = ROOT / "orchestrator" / "typescript"
EXAMPLE = GUARD / "examples" / "ai-sdk"
REQUIRED = os.environ.get("TOOLGATE_NODE") == "required"
HAS_NODE = shutil.which("node") is not None
HAS_PACKAGES = all((EXAMPLE / "node_modules" / name).is_dir() for name in ("ai", "zod", "typescript"))
RULES = """
rules:
  - {tools: write_file, when: {path: "*.env"}, action: deny, reason: secrets stay here}
  - {tools: pay, action: ask, prompt: "Pay this much?"}
  - {tools: delegate, agent_targets: intern, action: deny, reason: no intern}
"""
ROUTES = """
routes:
  - from: read_file
    to: write_file
    when: {path: old}
    arguments: {path: {value: new}, content: {value: x}}
"""
WITHHELD = "The tool ran, but its result is withheld: "

ENDLESS = "{ *[Symbol.iterator]() { for (;;) yield 1; } }"
"""An iterable that has no end."""

UNREADABLE = """[
  new Response("key-abc"), new Blob(["key-abc"]), new Response("key-abc").body, new Request("http://a/key-abc"),
  { f: () => "key-abc" }, { then: 1, f: Promise.resolve("key-abc") }, () => "key-abc", new WeakMap(),
  new (class { #key = "key-abc"; a = 1; text() { return this.#key; } })(),
  new Proxy({}, { get: () => undefined }),
  new (class { text() { return "key-abc"; } })(), Object.create({ text: () => "key-abc" }),
  { get a() { throw new Error("key-abc"); } }, { toJSON() { throw new Error("key-abc"); } },
  Buffer.from([0xff, 0xfe, 0x00]), Buffer.from("key-abc", "utf16le"),
  { [Symbol.asyncIterator]: async function* () { yield "key-abc"; } },
  { error: Object.assign(new Error("no"), { f() {} }) },
  new Map([["a", () => "key-abc"]]), new Intl.NumberFormat(), new FormData(),
]"""

READABLE_OF = """(key) => {
  class Row { constructor() { this.a = key; } }
  class Told { constructor() { this.a = 1; } toString() { return key; } toJSON() { return { b: key }; } }
  class Got { get a() { return key; } }
  class Rows { constructor() { this.n = 1; } *[Symbol.iterator]() { yield key; } }
  const hidden = Object.defineProperty({ a: 1 }, "b", { value: key });
  const listed = Object.assign([1], { a: key });
  return [
    { k: key, n: 1 }, Buffer.from(`a ${key}`), new TextEncoder().encode(key),
    new TextEncoder().encode(key).buffer,
    new Map([["a", key]]), new Map([[{ a: 1 }, key]]), new Set([key]), { rows: new Map([["a", key]]) },
    { error: new Error(key) }, new URL(`http://a/${key}`), new URLSearchParams({ a: key }), new RegExp(key),
    new Headers({ a: key }), { n: 10n, k: key, not: NaN, none: undefined }, new String(key), Symbol(key),
    { toString() { return key; } }, { k: key, toJSON() { return {}; } }, new Row(),
    new Told(), new Got(), new Rows(),
    hidden, listed, { [Symbol("s")]: key }, { [key]: undefined, a: key }, Object.create({ a: key }),
    new Error("no", { cause: new Error(key) }), [new Date(0), key], [new Float32Array([0.5]), key],
    { "its text": 1, toString: () => key }, key.match(/./),
    JSON.parse(`{"__proto__": ${JSON.stringify(key)}}`), Object.assign(new Map(), { a: key }),
    { valueOf: () => key, a: 1 }, { [Symbol.toPrimitive]: (hint) => (hint === "number" ? key : "") },
    new AggregateError([new Error(key)], "no"), new DOMException(key, "AbortError"),
  ];
}"""

READABLE = f"({READABLE_OF})('key-abc')"

SHOWN = [
    {"k": "KEY", "n": 1},
    "a KEY",
    "KEY",
    "KEY",
    {"a": "KEY"},
    [[{"a": 1}, "KEY"]],
    ["KEY"],
    {"rows": {"a": "KEY"}},
    {"error": "Error: KEY"},
    "http://a/KEY",
    "a=KEY",
    "/KEY/",
    {"a": "KEY"},
    {"n": "10", "k": "KEY", "not": "NaN", "none": None},
    "KEY",
    "Symbol(KEY)",
    "KEY",
    {"k": "KEY", "its JSON": {}},
    {"a": "KEY"},
    {"a": 1, "its text": "KEY", "its JSON": {"b": "KEY"}},
    {"a": "KEY"},
    {"n": 1, "its items": ["KEY"]},
    {"a": 1, "b": "KEY"},
    {"its value": [1], "a": "KEY"},
    {"Symbol(s)": "KEY"},
    {"[withheld]": None, "a": "KEY"},
    {"a": "KEY"},
    "Error: no\ncaused by Error: KEY",
    ["1970-01-01T00:00:00.000Z", "KEY"],
    [[0.5], "KEY"],
    {"its text": 1, "its text'": "KEY"},
]
"""What comes back of the first of them."""

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.system,
    pytest.mark.skipif(not HAS_NODE and not REQUIRED, reason="node is not installed"),
]
needs_packages = pytest.mark.skipif(
    not HAS_PACKAGES and not REQUIRED, reason="npm install in orchestrator/typescript/examples/ai-sdk"
)


@pytest.fixture
async def sidecar(process, schedulers, server_url, namespace, short_directory, wait_until, tmp_path):
    """The socket of a sidecar with a policy behind it."""
    (tmp_path / "policy.yaml").write_text(RULES)
    await schedulers.start("policy", "--config", tmp_path / "policy.yaml")
    path = short_directory / "serve.sock"
    running = process(
        "toolgate",
        "serve",
        "--socket",
        path,
        "--redis",
        server_url,
        "--namespace",
        namespace,
        "--json",
        "--required",
        "policy",
    )
    await wait_until(lambda: running.stdout or not running.alive, timeout=50)
    assert running.alive, running.stderr
    return path


@pytest.fixture
def node(process, wait_until):
    """`await node(text)`: what a program printed, as JSON; it has `Guard`."""

    async def run(text, folder=None, *, words=()):
        program = f"import {{ Guard, CallDenied }} from {json.dumps((GUARD / 'index.js').as_uri())};\n{text}"
        running = process("node", "--input-type=module", "-e", program, *words)
        await wait_until(lambda: not running.alive, timeout=30)
        assert running.wait() == 0, running.stderr
        return json.loads(running.stdout)

    return run


def options(path, **more):
    return json.dumps({"socket": str(path), "agent": "clerk", **more})


async def test_a_tool_asks_runs_and_reports(sidecar, node, server_url, namespace, process, wait_until):
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const write = guard.tool("write_file", async ({{ path }}) => `wrote ${{path}}`);
      const broken = guard.tool("broken", async () => {{ throw new RangeError("no"); }});
      const out = await guard.turn({{ session: "s1" }}, async () => [
        await write({{ path: "a.txt" }}),
        await write({{ path: ".env" }}),
        await broken({{}}).catch((error) => error.name),
      ]);
      const used = await guard.usage({{ provider: "mock", input_tokens: 3, cost_usd: "0.5" }});
      console.log(JSON.stringify({{ out, used }}));
      guard.close();
    """)
    assert said == {
        "out": ["wrote a.txt", "The tool call was denied: secrets stay here (rule 1)", "RangeError"],
        "used": True,
    }
    listed = process("toolgate", "decisions", "--redis", server_url, "--namespace", namespace, "--json")
    assert listed.wait(20) == 0
    shown = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {(one["tool_name"], one["outcome"], one["session"]) for one in shown} == {
        ("write_file", "continue", "s1"),
        ("write_file", "deny", "s1"),
        ("broken", "continue", "s1"),
    }


async def test_whom_a_call_hands_work_to_is_ruled_on(sidecar, node):
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const availableAgents = ["intern", "senior"];
      const hand = (call) => guard.decide({{ tool: "delegate", availableAgents, ...call }});
      const rulings = [
        await hand({{ arguments: {{ agent: "intern" }} }}),
        await hand({{ agentTarget: "intern" }}),
        await hand({{ arguments: {{ agent: "senior" }} }}),
      ];
      console.log(JSON.stringify(rulings.map((one) => [one.outcome, one.agent_target])));
      guard.close();
    """)
    assert said == [["deny", None], ["deny", None], ["continue", "senior"]]


async def test_another_tool_runs_only_where_the_guard_has_it_and_after_its_own_check(
    sidecar, node, schedulers, tmp_path
):
    (tmp_path / "routes.yaml").write_text(ROUTES)
    await schedulers.start("router", "--config", tmp_path / "routes.yaml")
    said = await node(f"""
      const guard = new Guard({options(sidecar, notice=True)});
      const read = guard.tool("read_file", async ({{ path }}) => `read ${{path}}`);
      const alone = await read({{ path: "old" }});
      const seen = [];
      const validate = (args) => (seen.push(args), args);
      guard.tool("write_file", async ({{ path }}) => `wrote ${{path}}`, {{ validate }});
      console.log(JSON.stringify({{ alone, both: await read({{ path: "old" }}), seen }}));
      guard.close();
    """)
    assert said["alone"] == "read old"  # what is not there cannot be put in its place
    assert said["both"].splitlines()[-1] == "wrote new"
    assert said["both"].startswith("[read_file was replaced by write_file")
    assert said["seen"] == [{"path": "new", "content": "x"}]


async def test_a_sidecar_that_is_not_there_denies_unless_it_is_said_otherwise(node, short_directory):
    said = await node(f"""
      const make = (more) => new Guard({{ socket: {json.dumps(str(short_directory / "none"))}, ...more }});
      const run = (guard) => guard.tool("run", async () => "ran")({{}}).catch((error) => error.name);
      const out = [await run(make()), await run(make({{ onFault: "continue" }}))];
      out.push(await run(make({{ throws: true }})));
      console.log(JSON.stringify({{ out, told: await make().report("ab".repeat(16), "succeed") }}));
    """)
    denied, ran, thrown = said["out"]
    assert denied.startswith("The tool call was denied: the sidecar cannot be reached")
    assert (ran, thrown, said["told"]) == ("ran", "CallDenied", False)


async def test_a_person_is_asked_by_the_program_and_the_same_decision_goes_on(sidecar, node):
    said = await node(f"""
      const asked = [];
      const answers = ["allow", "refuse"];
      const ask = async (question) => (asked.push(question.prompt), answers.shift());
      const guard = new Guard({{ ...{options(sidecar)}, ask }});
      const pay = guard.tool("pay", async () => "paid");
      const out = [await pay({{ amount: 1 }}), await pay({{ amount: 2 }})];
      const nobody = new Guard({options(sidecar)});
      out.push(await nobody.tool("pay", async () => "paid")({{ amount: 3 }}));
      console.log(JSON.stringify({{ asked, out }}));
      guard.close(); nobody.close();
    """)
    assert said["asked"] == ["Pay this much?"] * 2
    assert said["out"][0] == "paid"
    assert all(one.startswith("The tool call was denied: ") for one in said["out"][1:])


async def test_an_agent_in_a_tool_works_for_the_one_whose_tool_it_is(
    sidecar, node, server_url, namespace, process
):
    await node(f"""
      const guard = new Guard({options(sidecar)});
      const leaf = guard.tool("leaf", async () => "leaf");
      const helper = () => guard.turn({{ agent: "helper" }}, () => leaf({{}}));
      const delegate = guard.tool("delegate", helper);
      const out = await guard.turn({{ session: "root", agent: "boss" }}, () => delegate({{}}));
      console.log(JSON.stringify(out));
      guard.close();
    """)
    listed = process("toolgate", "decisions", "--redis", server_url, "--namespace", namespace, "--json")
    assert listed.wait(20) == 0
    shown = {one["tool_name"]: one for one in map(json.loads, listed.stdout.splitlines())}
    leaf = shown["leaf"]
    assert (leaf["agent"], leaf["root_session"], leaf["lineage"]) == ("helper", "root", ["boss", "helper"])
    assert shown["delegate"]["agent"] == "boss"


@needs_packages
async def test_an_agent_of_the_ai_sdk_has_its_calls_ruled_on(sidecar, process, wait_until):
    plan = [
        {"tool": "write_file", "input": {"path": "a.txt", "content": "x"}},
        {"tool": "write_file", "input": {"path": ".env", "content": "x"}},
        {"tool": "read_file", "input": {"path": "b"}},
    ]
    running = process("node", EXAMPLE / "agent.mjs", json.dumps(plan), options(sidecar, session="ai"))
    await wait_until(lambda: not running.alive, timeout=50)
    assert running.wait() == 0, running.stderr
    said = json.loads(running.stdout)
    assert said["results"] == [
        {"id": "call-1", "tool": "write_file", "output": "wrote a.txt"},
        {
            "id": "call-2",
            "tool": "write_file",
            "output": "The tool call was denied: secrets stay here (rule 1)",
        },
        {"id": "call-3", "tool": "read_file", "output": "what is in b"},
    ]
    assert sorted(said["ran"]) == [["read_file", "b"], ["write_file", "a.txt"]]
    assert said["text"] == "Done."


@needs_packages
def test_its_declarations_are_those_of_what_is_there(process):
    compiler = EXAMPLE / "node_modules" / "typescript" / "bin" / "tsc"
    words = (
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--types",
        "node",
    )
    checked = process("node", compiler, *words, "types-check.ts", cwd=EXAMPLE)
    assert checked.wait(60) == 0, checked.stdout


def test_it_has_no_dependencies_and_ships_what_it_names():
    package = json.loads((GUARD / "package.json").read_text())
    assert "dependencies" not in package
    assert all((GUARD / name).is_file() for name in package["files"])


async def test_a_tool_gives_what_may_be_seen_of_its_result(sidecar, node, schedulers, wait_until):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const seen = [];
      const give = guard.tool("give", async ({{ words }}) => words);
      const fail = guard.tool("fail", async ({{ words }}) => {{
        throw new RangeError("no", {{ cause: new Error(words) }});
      }});
      const ask = async (words) => await give({{ words }});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      const plain = {{ a: 1 }};
      seen.push((await guard.tool("same", async () => plain)({{}})) === plain);
      seen.push(await ask("a key-abc b"), await ask({{ list: ["key-abc"] }}));
      seen.push(await ask("withhold-me key-abc"), await ask("replace-me"), await ask("hold-me"));
      for (const words of ["key-abc", "nothing of note"]) {{
        const told = (error) => [error.name, error.message, error.cause?.message ?? null];
        seen.push(await fail({{ words }}).catch(told));
      }}
      const ruling = await guard.decide({{ tool: "give" }});
      const given = await ruling.succeed("key-abc", {{ seconds: 1 }});
      seen.push([given.outcome, given.result], await guard.report(ruling.id, "succeed"));
      console.log(JSON.stringify(seen));
      guard.close();
    """)
    assert said == [
        True,
        "a [withheld: a key] b",
        {"list": ["[withheld: a key]"]},
        "The tool ran, but its result is withheld: that leaves nobody's house",
        "something else",
        "hold-me",
        ["ResultWithheld", "RangeError: no\ncaused by Error: [withheld: a key]", None],
        ["RangeError", "no", "nothing of note"],
        ["masked", "[withheld: a key]"],
        False,
    ]


async def test_all_words_of_an_error_are_ruled_on_and_a_result_that_changes_is_withheld(
    sidecar, node, schedulers
):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      let deep = new Error("key-abc");
      for (let at = 0; at < 20; at++) deep = new Error("above", {{ cause: deep }});
      const errors = [
        new Error("no", {{ cause: "key-abc" }}),
        new Error("no", {{ cause: {{ told: "key-abc" }} }}),
        new AggregateError([new Error("fine"), new Error("key-abc")], "no"),
        deep,
      ];
      const fail = guard.tool("fail", async ({{ at }}) => {{ throw errors[at]; }});
      const seen = [];
      for (const at in errors) seen.push(await fail({{ at: Number(at) }}).catch((error) => error.name));
      const live = ["hold-me"];
      const give = guard.tool("give", async () => {{
        setTimeout(() => live.push("key-abc"), 100); // it is held for a second
        return live;
      }});
      seen.push(await give({{}}));
      console.log(JSON.stringify(seen));
      guard.close();
    """)
    assert said[:4] == ["ResultWithheld"] * 4
    assert said[4] == "The tool ran, but its result is withheld: it was changed while it was ruled on."


async def test_a_result_that_cannot_be_ruled_on_is_withheld(sidecar, node, schedulers):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      const round = {{}};
      round.self = round;
      let deep = [];
      for (let at = 0; at < 10_000; at++) deep = [deep];
      let wide = ["key-abc"];
      for (let at = 0; at < 60; at++) wide = [wide, wide];
      const large = ["key-abc".repeat(200_000)];
      const endless = {ENDLESS};
      const many = [new Array(1e9), new Uint8Array(4e6), endless];
      const results = [round, large, deep, wide, ...many, ...{UNREADABLE}];
      const give = guard.tool("give", async ({{ at }}) => results[at]);
      const seen = [];
      for (const at in results) seen.push(await give({{ at: Number(at) }}));
      const said = seen.map((one) => (typeof one === "string" ? one : `GIVEN ${{typeof one}}`));
      console.log(JSON.stringify(said));
      guard.close();
    """)
    assert [at for at, one in enumerate(said) if not one.startswith(WITHHELD)] == []
    assert "larger than 1024 KiB" in said[1]
    assert not any("key-abc" in one for one in said)
    assert said[7] == (
        f"{WITHHELD}it holds a Response, which no rule can read: return its text or plain JSON instead."
    )


async def test_all_that_a_reader_of_a_result_may_see_is_ruled_on(sidecar, node, schedulers):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      const results = {READABLE};
      const clean = (({READABLE_OF}))("nothing");
      const guarded = async (of) => {{
        const tool = guard.tool("give", async ({{ at }}) => of[at]);
        const seen = [];
        for (const at in of) seen.push(await tool({{ at: Number(at) }}));
        return seen;
      }};
      const same = (await guarded(clean)).map((one, at) => one === clean[at]);
      console.log(JSON.stringify({{ given: await guarded(results), same }}));
      guard.close();
    """)
    mark = "[withheld: a key]"
    assert said["given"][: len(SHOWN)] == [json.loads(json.dumps(one).replace("KEY", mark)) for one in SHOWN]
    assert [at for at, one in enumerate(said["given"]) if mark not in json.dumps(one)] == []
    assert [at for at, one in enumerate(said["given"]) if "key-abc" in json.dumps(one)] == []
    assert all(said["same"])


async def test_all_of_an_error_is_ruled_on(sidecar, node, schedulers):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      const make = (key) => {{
        class Told extends Error {{ toString() {{ return key; }} }}
        class Got extends Error {{ get detail() {{ return {{ key }}; }} }}
        const mixed = new Error("no");
        mixed.message = {{ key }};
        return [
          new Error("no", {{ cause: new Map([["k", key]]) }}),
          new Told("no"), new Got("no"), mixed,
          Object.assign(new Error("no"), {{ stack: `Error: ${{key}}\n    at x (file:1:2)` }}),
          Object.assign(new Error("no"), {{ name: key }}),
          Object.assign(new Error("no"), {{ response: {{ data: [key] }} }}),
          Object.assign(new Error("no"), {{ [Symbol(key)]: 1 }}),
          new Map([["k", key]]), [new Error(key)], key,
        ];
      }};
      const failing = async (errors) => {{
        const fail = guard.tool("fail", async ({{ at }}) => {{ throw errors[at]; }});
        const seen = [];
        for (const at in errors) seen.push(await fail({{ at: Number(at) }}).catch((error) => error));
        return seen;
      }};
      const clean = make("nothing");
      const same = (await failing(clean)).map((one, at) => one === clean[at]);
      const hidden = (await failing(make("key-abc"))).map((one) => [one.name, one.message, `${{one.cause}}`]);
      const opaque = Object.assign(new RangeError("no"), {{ config: {{ get: () => "key-abc" }} }});
      const [words] = await failing([opaque]);
      console.log(JSON.stringify({{ same, hidden, words: [words.name, words.message, words.outcome] }}));
      guard.close();
    """)
    assert all(said["same"])
    assert {name for name, *_ in said["hidden"]} == {"ResultWithheld"}
    assert [words for _, words, _ in said["hidden"] if "[withheld: a key]" not in words] == []
    assert "key-abc" not in json.dumps(said)
    assert said["hidden"][0][1] == 'Error: no\ncaused by {"k":"[withheld: a key]"}'
    name, message, outcome = said["words"]
    assert (name, outcome) == ("ResultWithheld", "masked")
    assert message.startswith("RangeError: no\nmore of it is withheld: it holds a function")


async def test_what_a_generator_gives_is_ruled_on_as_one_and_given_as_a_generator(sidecar, node, schedulers):
    await schedulers.start("by_result:by_result")
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      const soon = () => new Promise((go) => setTimeout(go, 50));
      while (!(await guard.decide({{ tool: "give" }})).rules_on_result) await soon();
      const all = async (from) => {{
        const seen = [Symbol.asyncIterator in from ? "async" : "sync"];
        for await (const piece of from) seen.push(ArrayBuffer.isView(piece) ? [...piece] : piece);
        return seen;
      }};
      const of = async (body) => await all(await guard.tool("give", body)({{}}));
      const row = {{ a: 1 }};
      let told = 0;
      const long = () => ((told += 1), "x".repeat(8000));
      const fails = async function* () {{ yield "a"; throw new RangeError("key-abc"); }};
      const half = new TextEncoder().encode("\u00e9");
      const out = {{
        clean: await of(async function* () {{ yield "a"; yield null; yield row; }}),
        sync: await of(function* () {{ yield "a ke"; yield "y-abc b"; }}),
        async: await of(async function* () {{ yield "a ke"; yield null; yield Buffer.from("y-abc"); }}),
        rows: await of(async () => [{{ a: "key-abc" }}, 2].values()),
        half: await of(async () => [half.slice(0, 1), half.slice(1)].values()),
        endless: (await of(function* () {{ yield "key-abc"; for (;;) yield long(); }}))[1],
        returned: (await guard.tool("give", function* () {{ return "key-abc"; }})({{}})).next().value,
        kept: (await guard.tool("give", function* () {{ return row; }})({{}})).next().value === row,
        failed: await of(fails).catch((e) => e.message),
        nested: await guard.tool("give", async () => ({{ rows: [1].values() }}))({{}}),
        cost: [],
      }};
      const cost = (from) => (out.cost.push(...from), 1);
      await guard.tool("give", function* () {{ yield 1; yield 2; }}, {{ cost }})({{}});
      const ruling = await guard.decide({{ tool: "give" }});
      const given = await ruling.succeed((function* () {{ yield "key-abc"; }})());
      out.hand = [given.outcome, ...given.result];
      const broken = await guard.decide({{ tool: "give" }});
      const withheld = await broken.succeed((function* () {{ throw new Error("key-abc"); }})());
      out.broken = [withheld.outcome, ...withheld.result];
      out.told = told;
      console.log(JSON.stringify(out));
      guard.close();
    """)
    mark = "[withheld: a key]"
    assert said["clean"] == ["async", "a", None, {"a": 1}]
    assert said["sync"] == ["sync", f"a {mark} b"]
    assert said["async"] == ["async", f"a {mark}"]
    assert said["rows"] == ["sync", [{"a": mark}, 2]]
    assert said["half"] == ["sync", [195], [169]]
    assert (said["returned"], said["kept"], said["failed"]) == (mark, True, f"RangeError: {mark}")
    assert said["told"] < 100
    assert "cut off here" in said["endless"]
    assert "key-abc" not in json.dumps(said)
    assert said["nested"].startswith(f"{WITHHELD}it holds an iterator")
    assert said["cost"] == [1, 2]
    assert said["hand"] == ["masked", mark]
    assert said["broken"] == ["withheld", f"{WITHHELD}it failed while it was read."]


async def test_where_nobody_rules_on_results_nothing_is_read(sidecar, node):
    said = await node(f"""
      const guard = new Guard({options(sidecar)});
      let read = 0;
      const touch = () => ((read += 1), "x");
      const value = {{ get a() {{ return touch(); }}, toJSON: touch, toString: touch }};
      const rows = (function* () {{ read += 1; yield 1; }})();
      const body = new Response("x");
      const of = async (value) => (await guard.tool("give", async () => value)({{}})) === value;
      const same = [await of(value), await of(rows), await of(body)];
      console.log(JSON.stringify({{ same, read, used: body.bodyUsed }}));
      guard.close();
    """)
    assert said == {"same": [True, True, True], "read": 0, "used": False}
