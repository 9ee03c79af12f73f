"""Cases: a configuration and calls, drawn from a seed. Every form of every subject comes in its turn."""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from forms import FORMS, HONEST, Subject, called, put, tool_forms, twice
from meanings import Budget, Guard, Limit, Order, Pool, Route, Rule, RuleList, Test, Trust, Written
from readings import Call, Who

__all__ = ["FAMILIES", "Case", "World", "worlds"]


class Case(NamedTuple):
    """Calls, made one after the other; what stands in `kind` is what they try."""

    kind: str
    calls: tuple[Call, ...]
    is_honest: bool = False
    """Whether all of it is told plainly: what may run has to run."""


class World(NamedTuple):
    """A configuration, and cases that are tried under it."""

    family: str
    written: Written
    cases: tuple[Case, ...]


TOOLS = (
    "bash",
    "write_file",
    "read_file",
    "send_mail",
    "pay",
    "set_role",
    "fetch",
    "book",
    "deploy",
    "sandbox",
)
UUIDS = ("7f9c24e8-3b12-4fef-91e0-5a2d7c4b8f01", "0b4e7a52-9c1d-4c8e-8f3a-2d6b5e9f7a10")
SUBJECTS = (
    Subject("bash", "command", "matches", "rm -rf", ("rm -rf /srv", "cd /; rm -rf ."), ("ls -l", "git push")),
    Subject("bash", "command", "glob", "*curl*evil*", ("curl http://evil",), ("curl localhost", "make")),
    Subject("write_file", "path", "glob", "*.env", ("x/.env", "prod.env"), ("notes.txt", "Ü/ß.md"), "path"),
    Subject("write_file", "path", "matches", r"\.pem$", ("keys/a.pem",), ("keys/a.pub", "b"), "path"),
    Subject(
        "send_mail", "to", "glob", "*@evil.example", ("eve@evil.example",), ("ann@ok.example", "b@c.example")
    ),
    Subject("send_mail", "to.email", "glob", "*@evil.example", ("eve@evil.example",), ("ann@ok.example",)),
    Subject(
        "send_mail",
        "to",
        "in",
        ["eve@evil.example", "m@x.example"],
        ("m@x.example",),
        ("ann@ok.example", "i"),
    ),
    Subject("pay", "amount", "gt", 100, (101, 5000, 10**17), (5, 99, 0)),
    Subject("pay", "order.amount", "gte", 1000, (1000, 5000), (1, 999)),
    Subject("pay", "order.lines.amount", "gt", 1000, (1001, 5000), (1, 1000)),
    Subject("pay", "amount", "lt", 0, (-1, -5000), (1, 5000)),
    Subject("pay", "amount", "equals", 5000, (5000,), (4999, 1)),
    Subject("pay", "amount", "in", [5000, 7000], (7000,), (4999, 1)),
    Subject("pay", "account", "equals", UUIDS[0], (UUIDS[0],), (UUIDS[1], "anna"), "uuid"),
    Subject("set_role", "user.role", "equals", "admin", ("admin",), ("reader", "guest")),
    Subject("set_role", "role", "in", ["admin", "root"], ("admin", "root"), ("reader", "guest")),
    Subject(
        "fetch", "url", "matches", r"evil\.example", ("https://evil.example",), ("https://ok.example", "a")
    ),
    Subject("book", "day", "glob", "2026-12-*", ("2026-12-24",), ("2026-11-30", "2027-01-02"), "date"),
    Subject("deploy", "force", "equals", True, (True,), (False, "no")),
    Subject("pay", "items.0", "gt", 100, (5000,), (5, 6)),
)


def worlds(seed: int, families: Collection[str] = ()) -> Iterator[World]:
    """Worlds without an end: each round has every family, with other values, agents and rules beside."""
    number, names = 0, sorted(families or FAMILIES)
    while True:
        for name in names:
            for make in FAMILIES[name]:
                yield from make(random.Random(f"oracle {seed} {number} {name}"))
        number += 1


# ---------------------------------------------------------------------- rules on values


def _calls(dice: random.Random, subject: Subject, form: str, value: Any, who: Who) -> Call | None:
    try:
        arguments = FORMS[form](dice, subject, value)
    except TypeError:  # what cannot stand in a set
        return None
    if arguments is None:
        return None
    schema = None
    if form == "default left out":
        schema = {"type": "object", "properties": {subject.path: {"default": value}}}
    return Call(subject.tool, arguments, who, schema)


def _cases(dice: random.Random, family: str, subject: Subject) -> Iterator[Case]:
    for form in FORMS:
        for values in (subject.inside, subject.outside):
            call = _calls(dice, subject, form, dice.choice(values), Who())
            if call is not None:
                kind = f"{family}: {called(form, subject)}"
                yield Case(kind, (call,), values is subject.outside and form in HONEST)
    for _ in range(6):
        if (both := twice(dice, subject, dice.choice(subject.inside))) is not None:
            yield Case(f"{family}: {both[0]}", (Call(subject.tool, both[1]),))
    for value in subject.inside:
        arguments = put(subject.path, value)
        yield Case(f"{family}: tool's name", (Call(tool_forms(dice, subject.tool), arguments),))
    if subject.path == "order.amount":
        order = {"order": {"amount": 1, "note": "x"}}
        yield Case(f"{family}: changed meanwhile", (Call("pay", order, rewrites="order.amount"),))
    if subject.path == "amount":
        yield Case(f"{family}: changed at the top", (Call("pay", {"amount": 1}, rewrites="amount"),))


def _beside(dice: random.Random, tool: str) -> tuple[Rule, ...]:
    """Rules above that are about other calls."""
    others = (
        Rule("deny", ("nothing_*",)),
        Rule("allow", (tool,), {"never": Test("equals", "there")}),
        Rule("deny", (tool,), who={"agents": "nobody"}),
        Rule("ask", (tool,), {"never": Test("equals", "there")}),
    )
    return tuple(dice.sample(others, dice.choice([0, 0, 1, 2])))


_REDACTS: Sequence[Mapping[str, Any]] = (
    *({}, {}, {"max_chars": 256}, {"patterns": ["sk-[A-Za-z0-9]{20,}"]}),
    {"fields": ["secret"], "max_chars": 256},
)


def _single(scheduler: str, action: str) -> Callable[[random.Random], Iterator[World]]:
    def make(dice: random.Random) -> Iterator[World]:
        words = {"allow": "allows", "deny": "denies", "ask": "asks"}
        family = f"{scheduler} {words[action]}"
        for subject in SUBJECTS:
            if action == "allow":
                subject = subject._replace(inside=subject.outside, outside=subject.inside)
            more = {"via": "ask_user"} if scheduler == "approval" else {}
            tools = dice.choice([(subject.tool,), ("*",), (subject.tool[:2] + "*", "other")])
            rule = Rule(action, tools, {subject.path: Test(subject.kind, subject.given)}, more=more)
            above = _beside(dice, subject.tool) if scheduler == "policy" else ()
            default = "deny" if action == "allow" else "allow"
            written = RuleList(scheduler, (*above, rule), default, redact=dice.choice(_REDACTS))
            yield World(family, written, tuple(_cases(dice, family, subject)))

    return make


def _two_rules(dice: random.Random) -> Iterator[World]:
    """The first asks a person, who says yes; the second denies: what the first cannot see is no privilege."""
    family = "policy, first rule asks"
    notes = (("unseen", "x" * 70_000), ("surrogate", "x\ud800"), ("plain", "x"), ("list", ["x"]))
    for subject in SUBJECTS[:6]:
        first = Rule("ask", (subject.tool,), {"note": Test("equals", "please")})
        second = Rule("deny", (subject.tool,), {subject.path: Test(subject.kind, subject.given)})
        written = RuleList("policy", (first, second), person_agrees=True)
        cases = [
            Case(f"{family}: {note}", (Call(subject.tool, put(subject.path, value) | {"note": told}),))
            for value in subject.inside
            for note, told in notes
        ]
        yield World(family, written, tuple(cases))


def _standing(dice: random.Random) -> Iterator[World]:
    """A person lets `git push*` pass for the session: that is no approval of what cannot be seen."""
    family = "approval, standing"
    harmless = Rule("ask", ("bash",), {"command": Test("glob", "git push*")})
    other = Rule("ask", ("bash",), {"command": Test("matches", "rm -rf")})
    written = RuleList("approval", (harmless, other))
    cases = []
    padding = {"plain": "", "padded": " #" + "x" * 16_400, "padded more": " #" + "x" * 70_000}
    for at, (form, behind) in enumerate(padding.items()):
        who = Who(session=f"standing {at}")
        asked = Call("bash", {"command": "git push origin"}, who, is_approved=True)
        cases.append(Case(f"{family}: {form}", (asked, Call("bash", {"command": f"rm -rf /{behind}"}, who))))
    yield World(family, written, tuple(cases))


# ---------------------------------------------------------------------- lineages


def _who(dice: random.Random, depth: int, session: str = "s") -> Who:
    """A sub-agent so deep below `boss`, whose session is `session`."""
    if depth == 0:
        return Who("boss", session)
    chain = ("boss", "planner", "coder", "tester")[:depth]
    parent = session if depth == 1 else f"{session}-{depth - 1}"
    return Who(f"helper{dice.randint(0, 9)}", f"{session}-{depth}", session, parent, chain)


_WHO_RULES = (("policy", "deny"), ("policy", "ask"), ("approval", "ask"), ("router", "deny"))
_DEPTHS = ("itself", "sub-agent", "sub-agent of depth 2", "sub-agent of depth 3", "sub-agent of depth 4")


def _lineages(dice: random.Random) -> Iterator[World]:
    """Rules on the agents and sessions of a parent hold for who works for it."""
    subject = SUBJECTS[dice.randrange(6)]
    for whose in ({"agents": "boss"}, {"agents": "bo*"}, {"sessions": "s"}):
        when = dice.choice([{}, {subject.path: Test(subject.kind, subject.given)}])
        for scheduler, action in _WHO_RULES:
            more = {"via": "ask_user"} if scheduler == "approval" else {}
            rule = Rule(action, (subject.tool,), when, whose, more)
            written: Written = Route(rule) if scheduler == "router" else RuleList(scheduler, (rule,))
            family = f"{scheduler}, {next(iter(whose))}"
            cases = []
            for depth, whose_call in enumerate(_DEPTHS):
                call = Call(subject.tool, put(subject.path, dice.choice(subject.inside)), _who(dice, depth))
                cases.append(Case(f"{family}: {whose_call}", (call,)))
            other = Call(subject.tool, put(subject.path, subject.inside[0]), Who("stranger", "other"))
            cases.append(Case(f"{family}: another agent", (other,), is_honest=scheduler != "router"))
            yield World(family, written, tuple(cases))


def _pairs(dice: random.Random, family: str, call: Callable[[Who], Call]) -> tuple[Case, ...]:
    """A call by the parent, and the same by a sub-agent; and the reverse."""
    found = []
    for depth, whose_call in enumerate(_DEPTHS):
        for turned in (False, True):
            session = f"{family} {depth} {turned}"
            calls = [call(_who(dice, 0, session)), call(_who(dice, depth, session))]
            found.append(Case(f"{family}: {whose_call}", tuple(reversed(calls) if turned else calls)))
    return tuple(found)


def _pay(who: Who) -> Call:
    return Call("pay", {"amount": 1}, who)


def _counts(dice: random.Random) -> Iterator[World]:
    for per, agents in (
        ("session", None),
        ("tree", None),
        ("fleet", "boss"),
        ("agent", "boss"),
        ("tool", None),
    ):
        family = f"rate-limit, {per}" + (" of an agent" if agents else "")
        cases = _pairs(dice, family, _pay)
        wide = (_pay(Who()), Call(tool_forms(dice, "pay"), {}, Who()))
        cases += (Case(f"{family}: tool's name", wide),) if not agents else ()
        for one in cases:  # what is counted by the fleet needs a world of its own
            yield World(family, Limit(("pay",), per, agents), (one,))
    for level in ("session", "tree", "fleet"):
        family = f"cost-aware, {level}"
        for one in _pairs(dice, family, _pay):
            yield World(family, Budget(level), (one,))
    for option in ("calls_per_session", "calls_per_tree"):
        family = f"loop-guard, {option}"
        yield World(family, Guard(option), _pairs(dice, family, _pay))


def _repeats(dice: random.Random) -> Iterator[World]:
    """Equal calls are counted as equal: the first told plainly, the second in another form."""
    family = "loop-guard, same_call"
    cases = []
    for subject in SUBJECTS:
        for form in FORMS:
            who = Who(session=f"{subject.tool} {subject.path} {subject.kind} {form}")
            value = dice.choice(subject.inside)
            call = _calls(dice, subject, form, value, who)
            if call is None or form == "default left out":
                continue
            again = _calls(random.Random(form), subject, form, value, who)
            plain = Call(subject.tool, put(subject.path, value), who)
            pair = (call, again or call) if dice.random() < 0.5 else (plain, call)
            numbered = tuple(one._replace(iteration=at) for at, one in enumerate(pair, 1))
            cases.append(Case(f"{family}: {called(form, subject)}", numbered))
    yield World(family, Guard("same_call"), tuple(cases))


# ---------------------------------------------------------------------- slots


_KEY_FORMS = (
    *("list", "tuple", "path object", "enum", "text of a class", "JSON text"),
    "list of objects for a text",
)
PATHS = ("/srv/a", "/srv/./a", "/srv/x/../a", "/srv//a", "/srv/a/", "//srv/a", "/./srv/a")
LINKS = (
    *("https://api.example/x", "https://api.example./y", "https://API.example/", "https://u:p@api.example/"),
    *("https://api.example:443/", "https:api.example", "https:\\\\api.example/", " https://api.example/x"),
    *("https://ａｐｉ.example/", "https://api。example/", "https://api%2eexample/", "https:///api.example/"),
)


def _slots(dice: random.Random) -> Iterator[World]:
    for key, tool, argument, spellings in (
        ("$.path", "write_file", "path", PATHS),
        ("$.url#host", "fetch", "url", LINKS),
    ):
        family = f"slots, {key}"
        for at, other in enumerate(spellings):
            calls = (Call(tool, {argument: spellings[0]}), Call(tool, {argument: other}))
            kind = "plain" if at == 0 else "another spelling"
            yield World(family, Pool(Rule("deny", (tool,)), key), (Case(f"{family}: {kind}", calls),))
        elsewhere = tuple(Call(tool, {argument: one}) for one in (spellings[0], f"{spellings[0]}b/"))
        yield World(
            family,
            Pool(Rule("deny", (tool,)), "$.path" if argument == "path" else None),
            (Case(f"{family}: another place", elsewhere, is_honest=True),),
        )
        subject = Subject(tool, argument, "", "", (spellings[0],), (), "path" if argument == "path" else "")
        for form in _KEY_FORMS:
            call = _calls(dice, subject, form, spellings[0], Who())
            if call is not None:
                calls = (Call(tool, {argument: spellings[0]}), call)
                yield World(family, Pool(Rule("deny", (tool,)), key), (Case(f"{family}: {form}", calls),))
    for subject in dice.sample(SUBJECTS, 6):
        family = "slots, when"
        for form in FORMS:
            rule = Rule("deny", (subject.tool,), {subject.path: Test(subject.kind, subject.given)})
            value = dice.choice(subject.inside)
            call = _calls(dice, subject, form, value, Who())
            if call is not None:
                plain = Call(subject.tool, put(subject.path, value))
                kind = f"{family}: {called(form, subject)}"
                yield World(family, Pool(rule), (Case(kind, (plain, call)),))
    for crowd in (7, 8, 12):
        family = "slots, many pools"
        calls = (_pay(Who()), _pay(Who()))
        yield World(
            family, Pool(Rule("deny", ("pay",)), crowd=crowd), (Case(f"{family}: {crowd + 1}", calls),)
        )
    family = "slots, agents"
    for one in _pairs(dice, family, _pay):
        yield World(family, Pool(Rule("deny", ("pay",), who={"agents": "boss"})), (one,))


# ---------------------------------------------------------------------- order


def _order(dice: random.Random) -> Iterator[World]:
    def mail(who: Who) -> Call:
        return Call("send_mail", {"to": "ann@ok.example"}, who)

    for scope, whose in ((None, {}), ("tree", {}), ("session", {"agents": "boss"})):
        family = "policy, at_most" + (" of an agent" if whose else f" in {scope or 'its scope'}")
        yield World(family, Order("at_most", scope, whose), _pairs(dice, family, mail))
    family = "policy, at_most by label"
    labelled = Who("boss", "s", labels={"team": "a"})
    cases = [
        Case(f"{family}: {called}", (mail(labelled), mail(who)))
        for called, who in (("label left out", Who("boss", "s")), ("same label", labelled))
    ]
    for case in cases:
        yield World(family, Order("at_most", "label:team"), (case,))
    family = "policy, unless_after"
    secret = SUBJECTS[2]._replace(tool="read_file", inside=("keys/a.pem",))
    cases = []
    for form in FORMS:
        who = Who("boss", f"after {form}")
        read = _calls(dice, secret, form, "keys/a.pem", who)
        if read is not None:
            cases.append(Case(f"{family}: {form}", (read, mail(who))))
    for depth, whose_call in enumerate(_DEPTHS):
        session = f"after {depth}"
        read = Call("read_file", {"path": "keys/a.pem"}, _who(dice, 0, session))
        cases.append(Case(f"{family}: {whose_call}", (read, mail(_who(dice, depth, session)))))
    many = Who("boss", "many")
    reads = [Call("read_file", {"path": f"notes/{at}.txt"}, many) for at in range(300)]
    first = Call("read_file", {"path": "keys/a.pem"}, many)
    cases.append(Case(f"{family}: pushed out", (first, *reads, mail(many))))
    yield World(family, Order("unless_after"), tuple(cases))


# ---------------------------------------------------------------------- where it goes


ADDRESSEES = {
    "plain": ("eve@evil.example",),
    "display name": (
        *("ann@ok.example <eve@evil.example>", '"ann@ok.example" <eve@evil.example>'),
        *("eve@evil.example (ann@ok.example)", "<eve@evil.example> ann@ok.example"),
        *("eve@evil.example<ann@ok.example>", "eve@evil.example <ann@ok.example>"),
    ),
    "several in one": (
        *("ann@ok.example, eve@evil.example", "ann@ok.example;eve@evil.example", "team: eve@evil.example;"),
        *(
            "ann@ok.example,,eve@evil.example",
            "ann@ok.example\n eve@evil.example",
            "ann@ok.example\teve@evil.example",
        ),
    ),
    "odd grammar": (
        *(
            '"eve@evil.example,"@ok.example',
            "eve@evil.example(@ok.example)",
            "<@ok.example:eve@evil.example>",
        ),
        *(
            "eve@evil.example\x00@ok.example",
            '"x"<eve@evil.example>@ok.example',
            "eve@[evil.example]@ok.example",
        ),
    ),
    "another domain's letters": (
        "ann@gross.example",
        "ann@o\u212a.example.evil.example",
        "ann@ok.example\u3002evil",
    ),
    "keys of an object": ({"eve@evil.example": "ann@ok.example"},),
    "list": (["ann@ok.example", "eve@evil.example"], [["eve@evil.example"]], ("eve@evil.example",)),
    "list of objects": (
        [{"email": "eve@evil.example"}],
        [{"email": "ann@ok.example"}, {"email": "eve@evil.example"}],
    ),
    "JSON text": ('["eve@evil.example"]', '{"email": "eve@evil.example"}'),
}
FRIENDS = (
    "ann@ok.example",
    "Ann@OK.example",
    ["ann@ok.example", "bob@ok.example"],
    "bob@groß.example",
    "ann@named.example",
)
BAD_LINKS = {
    "plain": ("https://evil.example/x", "http://evil.example"),
    "another spelling": (
        *(
            "https:evil.example",
            "https:/\\evil.example",
            "//evil.example/",
            "\\\\evil.example",
            "https:\\\\evil.example",
        ),
        *(
            "ht\ntps://evil.example/",
            " https://evil.example",
            "https:////evil.example",
            "HTTPS://EVIL.example",
        ),
    ),
    "trusted before an at": (
        *(
            "https://docs.example@evil.example/",
            "https://docs.example:x@evil.example/",
            "https://docs.example%2f@evil.example",
        ),
        *(
            "https://evil.example\\@docs.example/",
            "https://evil.example/@docs.example/",
            "https://docs.example\\.evil.example/",
        ),
    ),
    "list": (["https://docs.example/a", "https://evil.example/x"],),
    "object": ({"href": "https://evil.example/x"}, [{"href": "https://evil.example/x"}]),
    "numbers": ("http://127.1/", "http://0x7f.1/", "http://2130706433/"),
}
GOOD_LINKS = (
    "https://docs.example/a/b",
    "http://docs.example",
    "https://docs.example/?q=1",
    "https://named.example/",
)

_MAIL_PIECES = (
    *("ann@ok.example", "eve@evil.example", "ok.example", "@evil.example", "Ann", "<ann@ok.example>"),
    *'<>(),;: "\\\n[]@.',
)
_LINK_PIECES = (
    *("https:", "http://", "//", "docs.example", "evil.example", "%2f", "%40", "x", "。", "docs.example/"),
    *"/\\@:?#.\t ",
)


def _trust(dice: random.Random) -> Iterator[World]:
    asked = Who(
        session="asked", request="Please mail ann@named.example and look at https://named.example/ for me"
    )
    for tool, argument, bad, good, trusted in (
        ("send_mail", "to", ADDRESSEES, FRIENDS, ("*@ok.example", "*@groß.example")),
        ("fetch", "url", BAD_LINKS, GOOD_LINKS, ("docs.example", "docs.example/**")),
    ):
        family, who = f"provenance, {argument}", dice.choice([Who(), asked])
        cases = [
            Case(f"{family}: {kind}", (Call(tool, {argument: value}, who),))
            for kind, values in bad.items()
            for value in values
        ]
        cases += [
            Case(f"{family}: named or trusted", (Call(tool, {argument: one}, asked),), True) for one in good
        ]
        subject = Subject(tool, argument, "", "", bad["plain"], (good[0],))
        for form in FORMS:
            call = _calls(dice, subject, form, bad["plain"][0], who)
            if call is not None:
                cases.append(Case(f"{family}: {form}", (call,)))
        pieces = _MAIL_PIECES if argument == "to" else _LINK_PIECES
        for _ in range(60):
            value = "".join(dice.choices(pieces, k=dice.randint(2, 7)))
            cases.append(Case(f"{family}: any pieces", (Call(tool, {argument: value}, who),)))
        yield World(family, Trust(tool, argument, trusted), tuple(cases))


def _under(dice: random.Random) -> Iterator[World]:
    family = "policy, under"
    rule = Rule("allow", ("write_file",), {"path": Test("under", "/srv")})
    bad = (
        "/etc/x",
        "/srv/../etc/x",
        "/srvx/a",
        "/srv/a/../../etc",
        "//etc/x",
        "relative",
        "~/x",
        "/srv/%2e%2e/x/../../y",
    )
    good = ("/srv/a", "/srv/a/b.txt", "/srv/Ü/ß.md")
    cases = [Case(f"{family}: outside", (Call("write_file", {"path": one}),)) for one in bad]
    cases += [Case(f"{family}: inside", (Call("write_file", {"path": one}),), True) for one in good]
    yield World(family, RuleList("policy", (rule,), "deny"), tuple(cases))


def _routes(dice: random.Random) -> Iterator[World]:
    family = "router, when"
    for subject in SUBJECTS[:4]:
        rule = Rule("deny", (subject.tool,), {subject.path: Test(subject.kind, subject.given)})
        cases = []
        for form in ("plain", "path object", "enum", "text enum", "text of a class", "decimal"):
            call = _calls(dice, subject, form, subject.inside[0], Who())
            if call is not None:
                cases.append(Case(f"{family}: {form}", (call,)))
        yield World(family, Route(rule), tuple(cases))


FAMILIES: Mapping[str, Sequence[Callable[[random.Random], Iterator[World]]]] = {
    "denied": (_single("policy", "deny"),),
    "asked": (_single("policy", "ask"),),
    "allowed": (_single("policy", "allow"), _under),
    "approved": (_single("approval", "ask"), _standing),
    "unseen": (_two_rules,),
    "lineage": (_lineages,),
    "counted": (_counts,),
    "repeated": (_repeats,),
    "pooled": (_slots,),
    "ordered": (_order,),
    "trusted": (_trust,),
    "routed": (_routes,),
}
"""By name, what makes worlds of one kind of rule."""
