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
      const results = [round, ["key-abc".repeat(200_000)], 10n];
      const give = guard.tool("give", async ({{ at }}) => results[at]);
      const seen = [await give({{ at: 0 }}), await give({{ at: 1 }}), await give({{ at: 2 }})];
      console.log(JSON.stringify(seen));
      guard.close();
    """)
    assert all(one.startswith("The tool ran, but its result is withheld: ") for one in said)
    assert "larger than 1024 KiB" in said[1]
