#!/usr/bin/env python3
"""Make a server's users.acl, and the URL of each role, from the file `roles` beside this script.

    make-acl --to DIRECTORY --server redis://valkey:6379/0 --scheduler policy --scheduler cost-aware

A scheduler is NAME, or NAME:KIND where it runs a shipped one under another name (treasury:approval);
any other name is one of your own. Several that run in one process are one user: policy+treasury:approval
(scheduler-policy+treasury). In DIRECTORY come

    users.acl    for the server (`aclfile`): SHA-256 of the passwords, no password
    urls/ROLE    what that role's processes get as TOOLGATE_REDIS_URL (mode 0600)
    mounts/      what containers get of it, each its folder: passwords and access rules; closed to others
    env          the URLs without passwords as variables, for `docker compose --env-file`

Where --server names sentinels (redis+sentinel://s1,s2,s3/fleet, or rediss+sentinel), there come also

    sentinel.acl    for the sentinels; each server, primary or replica, gets users.acl
    nodes/USER      passwords by which servers and sentinels know each other (mode 0600)

Where it names nodes of a cluster (redis+cluster://n1,n2,n3), each gets users.acl, with a user `replica`.

Passwords are made once; made again it keeps those in urls/ and nodes/. Delete a role's file and make it again
for a new password. Then have the server load it: `ACL LOAD` as admin (`make up` does both). Needs Python 3.9,
nothing else.
"""

import argparse
import hashlib
import os
import re
import secrets
import sys
from pathlib import Path
from runpy import run_path
from urllib.parse import parse_qsl, urlencode, urlsplit

HERE = Path(__file__).resolve().parent
ROLES = HERE / "roles"
NODE_ROLES = HERE / "sentinel" / "roles"
if not (HERE / "role_file.py").exists():  # it is a link to a file outside `deploy`
    sys.exit(f"{__file__}: run it in a clone of Toolgate: here it lacks role_file.py")
role_file = run_path(str(HERE / "role_file.py"))
read_roles, rules_of = role_file["read_roles"], role_file["rules_of"]
DEFAULT = "user default reset off ~* &* +@all"
"""Off, and without a password: nobody is it. But the server reads its append-only file as this user, and
drops every step of a script, and every transaction, that it may not write."""
SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
EVERY_SENTINEL_USER = "+ping +auth +hello +client|setname +client|id"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PSEUDO = {"in-process", "ledger", "operator", "orchestrator", "unknown"}
"""Who is named like a scheduler in the record or in metrics, and is none."""
STORE = {
    *("answering", "budget", "budget-hooks", "budget-shadow", "buckets", "buckets-shadow", "config"),
    *("deferred", "exporter", "hold", "notices", "notify", "order", "pauses"),
    *("session-labels", "slots-shadow", "table", "tally", "tally-shadow", "turns"),
}
"""First words of keys in the shared store: a scheduler of that name would share them with their owner."""
KINDS = {"approval", "slots"}
"""First words of keys that are a shipped scheduler's own name: only that one may have it."""


def roles_of(sections, schedulers, hooks):
    """Each user with the rules for it, `@NS@` still in them."""

    def lines(*roles):
        return [rule.text for role in roles for rule in rules_of(sections, role)]

    yield "agent", lines("agent", *(["agent with hooks"] if hooks else []))
    for group in schedulers:
        names = [name for name, _ in group]
        own = named(lines("scheduler"), names)
        for kind in dict.fromkeys(kind for _, kind in group):
            own += named(lines(f"scheduler {kind}"), [name for name, of in group if of == kind])
        yield f"scheduler-{'+'.join(names)}", list(dict.fromkeys(own))
    plain = ("every user", "agent", "agent with hooks")
    for role in sections:
        if role not in plain and not role.startswith("scheduler"):
            yield role, lines(role)


def named(lines, names):
    """Rules with all of these names in them: what lets a command is one rule that has all its keys."""

    def keys_of(key):
        return " ".join(key[0].replace("@NAME@", name) for name in names)

    return [re.sub(r"[^\s(]*@NAME@\S*", keys_of, line) for line in lines]


def schedulers_of(sections, given):
    """Of each --scheduler the (name, kind) of each that runs in its process."""
    kinds = {role.split(" ", 1)[1] for role in sections if role.startswith("scheduler ")}
    return [[scheduler_of(word, kinds) for word in each.split("+")] for each in given]


def scheduler_of(word, kinds):
    """(name, kind) of one."""
    name, _, kind = word.partition(":")
    kind = kind or (name if name in kinds else "own")
    if not NAME.fullmatch(name):
        raise SystemExit(f"--scheduler {word}: a name has 1 to 64 letters, digits, _ . and -")
    if kind not in kinds:
        raise SystemExit(f"--scheduler {word}: the kind must be one of {', '.join(sorted(kinds))}")
    if name in PSEUDO:
        raise SystemExit(f"--scheduler {word}: the record and the metrics mean somebody else by {name}")
    if name in STORE or (name in KINDS and name != kind):
        raise SystemExit(f"--scheduler {word}: {name} names keys of the shared store; take another name")
    return name, kind


def password_of(path):
    """The password in a URL that was made before, or in a file of its own, else a new one."""
    try:
        kept = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        kept = ""
    return (urlsplit(kept).password if "://" in kept else kept) or secrets.token_urlsafe(32)


def write(path, text, mode):
    """Write a file anew that was never open to others."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.write_text(text, encoding="utf-8")
    partial.chmod(mode)
    partial.replace(path)


def write_mounts(directory, folders):
    """Write what containers mount: a folder each, of {name: text}. Those of before are gone.

    A container's process is in the group that owns the files; the folder around them lets no other user in.
    """
    mounts = directory / "mounts"
    mounts.mkdir(mode=0o700, exist_ok=True)
    mounts.chmod(0o700)
    for folder, files in folders.items():
        place = mounts / folder
        place.mkdir(exist_ok=True)
        place.chmod(0o750)
        for old in place.iterdir():
            if old.name not in files:
                old.unlink()
        for name, text in files.items():
            write(place / name, text, 0o640)


def read_server(url):
    """The parts of --server."""
    parts = urlsplit(url)
    watched = parts.scheme.endswith("+sentinel")
    if (
        parts.scheme not in SCHEMES
        or not parts.netloc
        or "@" in parts.netloc
        or (watched and not parts.path[1:])
    ):
        raise SystemExit(
            "--server: must look like redis://host:6379/0, rediss://host:6380/0, "
            "redis+sentinel://host1,host2,host3/fleet (rediss+sentinel://) or redis+cluster://host1,host2 "
            "(rediss+cluster://), without a user"
        )
    return parts


def open_url_of(server, role):
    """The server's URL with the role's user in it, and no password."""
    query = dict(parse_qsl(server.query))
    if server.scheme.endswith("+sentinel"):
        query["sentinel_username"] = "client"
    return server._replace(netloc=f"{role}@{server.netloc}", query=urlencode(query, safe="/")).geturl()


def url_of(server, role, password, client):
    """The server's URL with the role's credentials in it, and for the sentinels the password of `client`."""
    if role == "health" and "+" in server.scheme:  # the probe of each server asks that one
        return f"{server.scheme.partition('+')[0]}://{role}:{password}@localhost:6379/0"
    if not client:
        return server._replace(netloc=f"{role}:{password}@{server.netloc}").geturl()
    query = dict(parse_qsl(server.query)) | {"sentinel_username": "client", "sentinel_password": client}
    there = f"{role}:{password}@{server.netloc}"
    return server._replace(netloc=there, query=urlencode(query, safe="/")).geturl()


def user_line(role, password, rules):
    """A line of an ACL file."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {role} reset on #{digest} -@all {rules}".rstrip()


def make_nodes(directory, every, newer, *, watched):
    """Lines of users.acl for who follows and watches the servers, and the passwords of all nodes by user.

    Writes a file for each password, and sentinel.acl where the servers are watched.
    """
    nodes = directory / "nodes"
    nodes.mkdir(mode=0o700, exist_ok=True)
    lines = {"server": [], "sentinel": [DEFAULT]}
    passwords = {}
    for section, rules in read_roles(NODE_ROLES.read_text(encoding="utf-8")).items():
        kind, _, role = section.partition(" ")
        if not watched and section != "server replica":
            continue
        name = f"{kind}-{role}" if role == "admin" else role
        passwords[name] = password_of(nodes / name)
        write(nodes / name, passwords[name], 0o600)
        base = every if kind == "server" else f"{EVERY_SENTINEL_USER} {newer}"
        lines[kind].append(user_line(role, passwords[name], " ".join([base, *(rule.text for rule in rules)])))
    if watched:
        write(directory / "sentinel.acl", "\n".join(lines["sentinel"]) + "\n", 0o644)
    return lines["server"], passwords


def main(arguments):
    """Make the files; what is wrong with an option ends the program with its name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--server", default="redis://127.0.0.1:6379/0", metavar="URL")
    parser.add_argument("--namespace", default="default", metavar="NAME")
    parser.add_argument("--scheduler", action="append", default=[], metavar="NAME[:KIND][+…]")
    parser.add_argument("--agent-hooks", action="store_true", help="agents mount hooks-scheduler-cost-aware")
    parser.add_argument(
        "--redis-7.0", dest="redis_7_0", action="store_true", help="for a server older than 7.2"
    )
    given = parser.parse_args(arguments)
    if not NAME.fullmatch(given.namespace):
        raise SystemExit("--namespace: a name has 1 to 64 letters, digits, _ . and -")
    server = read_server(given.server)
    sections = read_roles(ROLES.read_text(encoding="utf-8"))
    urls = given.to / "urls"
    urls.mkdir(mode=0o700, parents=True, exist_ok=True)
    users, env = [DEFAULT], []
    newer = "" if given.redis_7_0 else "+client|setinfo"
    every = " ".join([rule.text for rule in sections["every user"]] + [newer]).rstrip()
    nodes = {}
    if "+" in server.scheme:
        more, nodes = make_nodes(given.to, every, newer, watched=server.scheme.endswith("+sentinel"))
        users += more
    mounts = {"server": {"replica": nodes["replica"]} if nodes else {}}
    roles = list(roles_of(sections, schedulers_of(sections, given.scheduler), given.agent_hooks))
    for role, lines in roles:
        password = password_of(urls / role)
        own = " ".join(lines).replace("@NS@", given.namespace)
        users.append(user_line(role, password, f"{every} {own}"))
        url = url_of(server, role, password, nodes.get("client"))
        write(urls / role, url, 0o600)  # without a newline: it becomes a Secret as it is
        mounts[role] = {"server": password, **({"sentinels": nodes["client"]} if "client" in nodes else {})}
        env.append(f"TOOLGATE_URL_{re.sub('[^A-Z0-9]', '_', role.upper())}={open_url_of(server, role)}")
    text = "\n".join(users) + "\n"
    write(given.to / "users.acl", text, 0o644)
    mounts["server"] |= {"server.acl": text, "health": mounts["health"]["server"]}
    if "sentinel" in nodes:
        watching = (given.to / "sentinel.acl").read_text(encoding="utf-8")
        mounts["sentinel"] = {
            "sentinel.acl": watching,
            **{name: nodes[name] for name in ("sentinel", "peer")},
        }
        mounts["admin"]["sentinels"] = nodes["sentinel-admin"]
    write_mounts(given.to, mounts)
    write(given.to / "env", "\n".join(env) + "\n", 0o600)
    sys.stdout.write(f"{given.to}: users.acl for {len(users) - 1} users, their URLs in urls/ and env\n")


if __name__ == "__main__":
    main(sys.argv[1:])
