"""The hook of a coding agent, as a process: the event on stdin, the answer on stdout, nothing else there.

    python -I -S toolgate_hook.py claude --required policy --timeout 120 < event.json

It asks the user's resident sidecar (`toolgate serve` on a Unix socket of the user's), which it starts where
there is none: once, whoever comes at the same time, by a file lock that the sidecar inherits. Whatever goes
wrong here is a denial in the client's own form where anybody is required, and else lets the call go; it is
known from the arguments alone, whatever else is broken.

This file is run by path, by an interpreter without site-packages: it imports the standard library only, of
that only what loads fast, and nothing of Toolgate. `socket`, `json` and `subprocess` take longer to load than
a call may take, so `_socket` is used where all is well, and the others where it is not.
"""

import _socket
import os
import sys
import time

NEUTRAL = {"claude": "", "codex": "", "gemini": "", "cursor": '{"permission": "allow"}', "copilot": ""}
"""What lets a call go on as it would without a hook, by client."""
BEFORE = {
    "claude": ("PreToolUse",),
    "codex": ("PreToolUse",),
    "gemini": ("BeforeTool",),
    "cursor": (
        "preToolUse",
        "beforeShellExecution",
        "beforeMCPExecution",
        "beforeReadFile",
        "beforeTabFileRead",
    ),
    "copilot": ("preToolUse", "PreToolUse"),
}
"""Events that are asked about, by client."""
AFTER = {
    "claude": ("PostToolUse", "PostToolBatch"),
    "codex": ("PostToolUse",),
    "gemini": ("AfterTool",),
    "cursor": ("postToolUse",),
    "copilot": ("postToolUse", "PostToolUse"),
}
"""Events whose answer can keep a result from the LLM, by client; Cursor's only of MCP tools."""
PROMPT = {
    "claude": "UserPromptSubmit",
    "codex": "UserPromptSubmit",
    "gemini": "BeforeAgent",
    "cursor": "beforeSubmitPrompt",
}
"""Event of the user's words, by client."""
RESULTS, PROMPTS = "results", "prompts"
"""Words in the note of a sidecar on what required schedulers rule on."""
BUS = ("TOOLGATE_REDIS_URL", "TOOLGATE_NAMESPACE", "TOOLGATE_KEYS")
"""Say where the bus is, unless a configuration does: the settings of a project may set variables."""
FOLDERS = ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP")
"""Say where the bus of this user is, where no address is named; likewise."""
USAGE = """usage: toolgate-hook CLIENT [--required NAME]… [--timeout SECONDS] [--config FILE] [--agent NAME]

The event is read from stdin, the answer is written to stdout. CLIENT is one of claude, codex, gemini, cursor,
copilot. `toolgate hook install CLIENT` writes this into the client's settings.
"""
SHOW = ("claude", "codex", "gemini")
"""Clients that show their user the `systemMessage` of an answer, and not the LLM."""
MAX_EVENT = 32 << 20
MAX_TOKENS = 1 << 20
"""So many texts and brackets of an event are read where nobody could be asked."""
MAX_TEXT = 1024
"""So long may a name in an event be."""
MAX_ANSWER = 4 << 20
TIMEOUT_S = 120.0
START_S = 60.0
"""So long a sidecar may take to start."""
IDLE_S = 600
MAX_PATH = 100
_CONNECT_S = 2.0
TELL_S = 600.0
MAX_BREAKS = 3
"""So often an event is sent that ends whoever reads it."""
_POLL_S = 0.01


class HookFault(Exception):  # noqa: N818 - it is answered, not raised to anybody
    """Why no answer could be had, in words."""


class SidecarBusy(HookFault):
    """It is ending, or has too much to do; a moment later it, or the next, may answer."""


class HookOptions:
    """What the settings entry says."""

    def __init__(self, words: list[str]) -> None:
        self.client, self.required = "", []  # type: str, list[str]
        self.timeout, self.config, self.agent = TIMEOUT_S, "", ""
        rest = iter(words)
        for word in rest:
            name, joined, value = word.partition("=")
            if not word.startswith("-"):
                if self.client:
                    raise HookFault(f"one client, not {self.client} and {word}")
                self.client = word
                continue
            if name not in ("--required", "--timeout", "--config", "--agent"):
                raise HookFault(f"there is no option {name}")
            value = value if joined else next(rest, "")
            if not value:
                raise HookFault(f"{name} needs a value")
            if name == "--required":
                self.required.append(value)
            elif name == "--timeout":
                self.timeout = _seconds(value)
            else:
                setattr(self, name[2:], value)
        if self.client not in BEFORE:
            raise HookFault(f"CLIENT is one of {', '.join(BEFORE)}")

    @property
    def deadline_s(self) -> float:
        """How long after its start this process answers, at the latest: before the client gives up."""
        return max(self.timeout - 3.0, self.timeout * 0.8)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86_400:
        raise HookFault("--timeout is the client's own, from 1 to 86400 seconds")
    return value


# ---------------------------------------------------------------- answers without a sidecar


def answer_fault(client: str, event: bytes, reason: str, *, denies: bool) -> str:
    """What the client is told where nobody could be asked, or the event could not be read."""
    import json

    fields, is_whole = read_outline(event)
    name = name_event(client, fields, is_whole)
    kind = kind_of(client, name)
    if kind == "other":
        return ""
    if kind == "prompt":
        return answer_prompt(client, reason, denies=denies)
    if kind == "after":
        return withhold_result(client, fields, name, reason) if denies else ""
    if not denies:
        return NEUTRAL[client]
    if not kind:
        return json.dumps(stop_all(client, reason))
    words = f"Toolgate could not rule on this call, so it was not run: {reason}."
    return json.dumps(deny_call(client, words))


def deny_call(client: str, words: str) -> "dict[str, object]":
    """What keeps a call from running."""
    denial = {"permissionDecision": "deny", "permissionDecisionReason": words}
    if client in ("claude", "codex"):
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denial}}
    if client == "gemini":
        return {"decision": "deny", "reason": words}
    if client == "cursor":
        told = {"user_message": words, "agent_message": words, "userMessage": words, "agentMessage": words}
        return {"permission": "deny", **told}
    return {**denial}


def stop_all(client: str, reason: str) -> "dict[str, object]":
    """What keeps a call from running, a result from the LLM, and a prompt from being sent: whichever it is.

    Claude Code takes no answer that names another event, so there the turn ends.
    """
    words = f"Toolgate could not rule on this call, so it was not run, or its result is withheld: {reason}."
    if client == "claude":
        return {"decision": "block", "reason": words, "continue": False, "stopReason": words}
    if client == "codex":
        return {"decision": "block", "reason": words}
    if client == "cursor":
        return {**deny_call(client, words), **give_words(client, words), "continue": False}
    return {**deny_call(client, words), **give_words(client, words)}


def give_words(client: str, words: str) -> "dict[str, object]":
    """What gives the LLM these words in place of a result; not for Claude Code."""
    if client == "codex":
        return {"decision": "block", "reason": words}
    if client == "gemini":
        return {"decision": "deny", "reason": words}
    if client == "copilot":
        return {"modifiedResult": {"resultType": "success", "textResultForLlm": words}}
    return {"updated_mcp_tool_output": {"content": [{"type": "text", "text": words}]}}


def withhold_result(client: str, fields: "dict[str, object]", name: str, reason: str) -> str:
    """What keeps a result from the LLM; empty where the client can do nothing."""
    import json

    tool = tool_of(fields)
    words = f"The tool ran, but its result is withheld: Toolgate could not rule on it: {reason}."
    if client == "cursor" and tool and not tool.startswith("MCP:"):
        return ""
    if client != "claude":
        return json.dumps(give_words(client, words))
    own = fields.get("tool_response")
    output: object
    if name != "PostToolUse":
        output = None
    elif isinstance(own, str):
        output = words
    elif tool.startswith("mcp__"):
        blocks = [{"type": "text", "text": words}]
        output = {"content": blocks} if isinstance(own, dict) and "content" in own else blocks
    elif tool == "Bash":
        output = {"stdout": words, "stderr": "", "interrupted": False, "isImage": False}
    else:
        output = None  # its form is not known here
    if output is None:  # the LLM is not asked again
        return json.dumps({"continue": False, "stopReason": words})
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "updatedToolOutput": output}})


def answer_prompt(client: str, reason: str, *, denies: bool) -> str:
    """What the client is told of the user's words where nobody could be asked."""
    import json

    if not denies:
        return json.dumps({"continue": True}) if client == "cursor" else ""
    words = f"Toolgate could not rule on this prompt, so it was not sent: {reason}."
    if client == "gemini":
        return json.dumps({"decision": "deny", "reason": words})
    if client == "cursor":
        return json.dumps({"continue": False, "user_message": words, "userMessage": words})
    return json.dumps({"decision": "block", "reason": words})


def must_deny(options: "HookOptions", event: bytes) -> bool:
    """Whether a fault denies: a call if anybody is required, a result or prompt if they rule on such."""
    if not options.required:
        return False
    word = {"after": RESULTS, "prompt": PROMPTS}.get(find_kind(options.client, event)[0])
    if not word:
        return True
    try:
        with open(f"{find_place(options)}.points", "rb") as note:
            return word in note.read(256).decode("ascii", "replace").split()
    except FileNotFoundError:
        return False
    except (HookFault, OSError):
        return True


def tell_user(client: str, event: bytes, reason: str) -> str:
    """The neutral answer, with a word for the user: in the client where it can show one, else on stderr.

    Each call has a process of its own, so that it is said again only after ten minutes.
    """
    if find_kind(client, event)[0] not in ("before", "") or not is_news():
        return answer_fault(client, event, reason, denies=False)
    words = f"tool calls run without rulings: Toolgate could not be asked, and nobody is required: {reason}"
    if client not in SHOW:
        sys.stderr.write(f"{words}\n")
        return NEUTRAL[client]
    import json

    return json.dumps({"systemMessage": words})


def is_news() -> bool:
    """Whether no hook of this user has told that in the last minutes."""
    try:
        path = f"{find_directory()}/told"
        try:
            if time.time() - os.stat(path).st_mtime < TELL_S:
                return False
        except OSError:
            pass
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
        os.utime(path)
    except (HookFault, OSError):
        pass
    return True


# ---------------------------------------------------------------- what an event is, read or not


def find_kind(client: str, event: bytes) -> "tuple[str, str]":
    """What an event is, and the tool that it names: `before` or `after` a call, a `prompt`, or `other`.

    Empty for one of which that cannot be told.
    """
    fields, is_whole = read_outline(event)
    return kind_of(client, name_event(client, fields, is_whole)), tool_of(fields)


def kind_of(client: str, name: str) -> str:
    """What an event of this name is; one that looks as if it came before a call does."""
    plain = name.lower()
    if name in BEFORE[client] or (plain.startswith(("pre", "before")) and "tool" in plain):
        return "before"
    if name in AFTER[client]:
        return "after"
    if name and name == PROMPT.get(client):
        return "prompt"
    return "other" if name else ""


def name_event(client: str, fields: "dict[str, object]", is_whole: bool) -> str:
    """The name of an event; empty if it cannot be told. Without a name, the fields of Copilot's say it."""
    for key in ("hook_event_name", "hookEventName"):
        if key in fields:
            name = fields[key]
            return name if isinstance(name, str) else ""
    if client != "copilot":
        return ""
    if "toolResult" in fields or "tool_result" in fields:
        return "postToolUse"
    if not is_whole or not ("toolName" in fields or "tool_name" in fields):
        return ""
    return "postToolUseFailure" if isinstance(fields.get("error"), str) else "preToolUse"


def tool_of(fields: "dict[str, object]") -> str:
    """The tool that an event names; empty if it cannot be told."""
    tool = fields.get("tool_name", fields.get("toolName"))
    return tool if isinstance(tool, str) else ""


def read_outline(event: bytes) -> "tuple[dict[str, object], bool]":
    """The fields of an event, and whether it was read to its end: also of one that is no JSON.

    Only quotes and brackets are looked at, as an event may be too deep, break off, or hold what cannot be
    read. A text has its value, a list is empty, an object has its names alone, and anything else is None, as
    is a field that is given twice: clients may read either.
    """
    import re

    tokens = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)(\s*+:)?|[\[{]++|[\]}]++', re.DOTALL)
    fields: dict[str, object] = {}
    depth, field, inner = 0, "", None  # type: int, str, dict[str, object] | None
    is_awaited = False
    for count, found in enumerate(tokens.finditer(event)):
        token, mark = found[0], found[0][:1]
        if count == MAX_TOKENS or (depth == 0 and token != b"{"):
            return fields, False
        if mark in b"]}":
            depth -= len(token)
        elif mark in b"[{":
            if is_awaited:
                inner = {} if mark == b"{" else None
                fields[field] = [] if inner is None else inner
            depth += len(token)
            is_awaited = False
        elif depth == 1:
            inner = None
            if found[2] is not None:
                field = read_text(found[1])
                is_awaited = field not in fields
                fields[field] = None
            elif is_awaited:
                fields[field], is_awaited = read_text(found[1]), False
        elif depth == 2 and inner is not None and found[2] is not None:
            inner[read_text(found[1])] = None
    return fields, depth == 0


def read_text(token: bytes) -> str:
    """A text as JSON has it; empty if it is long, or cannot be read."""
    import json

    try:
        text = json.loads(token.decode("utf-8", "replace"), strict=False) if len(token) <= MAX_TEXT else ""
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""


# ---------------------------------------------------------------- the sidecar


def find_directory() -> str:
    """The user's own directory for sockets, made if need be; raises HookFault where it is not safe."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        fits = (
            os.path.isabs(runtime) and len(runtime) < MAX_PATH - 40 and os.stat(runtime).st_uid == os.getuid()
        )
    except OSError:
        fits = False
    base = runtime if fits else "/tmp"  # noqa: S108 - the owner is checked below
    path = f"{base}/toolgate-hook" if fits else f"{base}/toolgate-hook-{os.getuid()}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise HookFault(f"{path} cannot be made: {error.strerror}") from None
    found = os.lstat(path)
    if found.st_mode & 0o170077 != 0o040000 or found.st_uid != os.getuid():
        raise HookFault(f"{path} is not a directory of yours that is closed to others (mode 0700): remove it")
    return path


def find_place(options: HookOptions) -> str:
    """Where the sidecar for these options is, without an ending: another version, or another text of the
    configuration, is another place, so that an upgrade or a change counts from the next call on."""
    import zlib

    told = [sys.executable, *options.required]
    if not options.config:
        told += [f"{name}={os.environ.get(name, '')}" for name in BUS]
    for file in (__file__, options.config):
        if file:
            try:
                seen = os.stat(file)
            except OSError as error:
                raise HookFault(f"{file} cannot be read: {error.strerror}") from None
            told.append(f"{os.path.abspath(file)} {seen.st_mtime_ns} {seen.st_size}")
    text = "\n".join(told).encode("utf-8", "surrogateescape")
    return f"{find_directory()}/{zlib.crc32(text):08x}{zlib.adler32(text):08x}"


def connect(path: str, until: float) -> "_socket.socket | None":
    """A connection to the sidecar; None where none listens."""
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        channel.settimeout(max(0.05, min(_CONNECT_S, until - time.monotonic())))
        channel.connect(path)
    except OSError:
        channel.close()
        return None
    return channel


def reach(place: str, options: HookOptions, until: float) -> "_socket.socket":
    """A connection to the sidecar, which is started where there is none; raises HookFault."""
    path = f"{place}.sock"
    channel = connect(path, until)
    if channel is not None:
        return channel
    import fcntl

    until = min(until, time.monotonic() + START_S)
    lock = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    child, tries = None, 0
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass  # a sidecar is there, or starts, or is just leaving
            else:
                if tries == 2 or (child is not None and child.poll() is not None):
                    raise HookFault(f"its sidecar does not start: {read_log(place)}")
                tries += 1
                child = start_sidecar(place, lock, options)
                os.close(lock)  # the sidecar has it now; a further try needs another
                lock = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            channel = connect(path, until)
            if channel is not None:
                return channel
            if time.monotonic() > until:
                raise HookFault("its sidecar did not start in time")
            time.sleep(_POLL_S)
    finally:
        os.close(lock)


def start_sidecar(place: str, lock: int, options: HookOptions):  # type: ignore[no-untyped-def]  # loads late
    """Start the sidecar, away from our terminal and process group; it holds the lock while it lives."""
    import subprocess

    idle = os.environ.get("TOOLGATE_HOOK_IDLE_S", str(IDLE_S))
    command = [sys.executable, "-P", "-m", "toolgate_bus", "serve", "--socket", f"{place}.sock"]
    command += ["--idle-exit", idle, "--keep-open", str(lock)]
    command += ["--config", os.path.abspath(options.config)] if options.config else []
    for name in options.required:
        command += ["--required", name]
    plain = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    if options.config:  # it alone says where the bus is
        plain = {name: plain[name] for name in plain if name not in BUS + FOLDERS} | find_folders()
    log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
            cwd="/",
            env=plain,
        )
    finally:
        os.close(log)


def find_folders() -> "dict[str, str]":
    """Return the variables for the folder of the user's own bus, as the system has it for each user."""
    runtime = f"/run/user/{os.getuid()}"
    try:
        if os.stat(runtime).st_uid == os.getuid():
            return {"XDG_RUNTIME_DIR": runtime}
    except OSError:
        pass
    if sys.platform == "darwin":
        own = os.confstr(65537)  # _CS_DARWIN_USER_TEMP_DIR
        return {"TMPDIR": own} if own else {}
    return {}


def read_log(place: str) -> str:
    """The last error that a sidecar told, from its beginning; else the last that it said."""
    try:
        with open(f"{place}.log", "rb") as file:
            said = file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        said = ""
    begin = said.rfind("Error: ")
    words = " ".join(said[max(begin, 0) :].split())
    return (words[-300:] if begin < 0 else words[:300]) or f"see {place}.log"


def ask(options: HookOptions, event: bytes, until: float) -> bytes:
    """The sidecar's answer, as it is to be written; raises HookFault."""
    place, breaks = find_place(options), 0
    while True:
        channel = reach(place, options, until)
        try:
            return exchange(channel, options, event, until)
        except OSError as error:  # it ended under us: nothing has run, so the next one is asked
            breaks += 1
            if breaks == MAX_BREAKS or time.monotonic() > until - 1:
                raise HookFault(f"its sidecar broke off ({error.strerror or 'timed out'})") from None
            time.sleep(10 * _POLL_S)  # one that is killed takes connections for a moment more
        except SidecarBusy:
            if time.monotonic() > until - 1:
                raise
            time.sleep(10 * _POLL_S)
        finally:
            channel.close()


def exchange(channel: "_socket.socket", options: HookOptions, event: bytes, until: float) -> bytes:
    """One request and its answer; raises OSError where the connection breaks, HookFault for a bad answer."""
    left = until - time.monotonic()
    lines = [
        f"POST /hooks/{options.client} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(event)}",
        f"Toolgate-Timeout: {max(0.05, left - 0.5):.3f}",
        "Connection: close",
    ]
    if options.agent:
        lines.append(f"Toolgate-Agent: {options.agent.encode('ascii', 'replace').decode()}")
    channel.settimeout(max(0.05, left))
    channel.sendall("\r\n".join([*lines, "", ""]).encode() + event)
    said = bytearray()
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise HookFault("no ruling came in time")
        channel.settimeout(left)
        try:
            part = channel.recv(65536)
        except TimeoutError:
            continue
        if not part:
            break
        said += part
        if len(said) > MAX_ANSWER:
            raise HookFault("its sidecar's answer is too long")
    return read_answer(bytes(said))


def read_answer(said: bytes) -> bytes:
    """The body of a whole HTTP response; raises HookFault for any other, OSError for none."""
    head, whole, body = said.partition(b"\r\n\r\n")
    if not whole:
        raise ConnectionResetError(104, "nothing was answered")
    first, *lines = head.split(b"\r\n")
    fields = dict(line.lower().split(b":", 1) for line in lines if b":" in line)
    if fields.get(b"content-length", b"-").strip() != b"%d" % len(body):
        raise ConnectionResetError(104, "only a part was answered")
    words = first.split(b" ", 2)
    if words[1:2] == [b"503"]:
        raise SidecarBusy("its sidecar has too much to do")
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
        raise HookFault(f"its sidecar answered {first[:60].decode('ascii', 'replace')}")
    if body and not (body[:1] == b"{" and body.rstrip()[-1:] == b"}"):
        raise HookFault("its sidecar's answer is none")
    return body


# ---------------------------------------------------------------- the process


def read_event(event: bytearray, until: float) -> None:
    """Add all of stdin to the event; raises HookFault where it does not end, or is too long."""
    import select

    while True:
        if not select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
            raise HookFault("the event did not come whole")
        part = os.read(0, 1 << 20)
        if not part:
            return
        event += part
        if len(event) > MAX_EVENT:
            raise HookFault(f"the event has more than {MAX_EVENT >> 20} MiB")


def write(text: bytes) -> None:
    """All of it, to stdout."""
    while text:
        text = text[os.write(1, text) :]


def main(words: "list[str] | None" = None) -> int:
    """The process; gives its exit code: 0 answered, 2 a wrong call, which clients take for a denial."""
    until = time.monotonic()
    try:
        options = HookOptions(sys.argv[1:] if words is None else words)
    except HookFault as fault:
        sys.stderr.write(f"toolgate-hook: {fault}\n{USAGE}")
        return 2
    until += options.deadline_s
    read = bytearray()
    try:
        read_event(read, until)
        answer = ask(options, bytes(read), until)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client is answered in its own form
        event = bytes(read)  # as much as came
        reason = str(error) if isinstance(error, HookFault) else f"{type(error).__name__}: {error}"
        if options.required:
            denies = must_deny(options, event)
            answer = answer_fault(options.client, event, reason, denies=denies).encode()
        else:
            answer = tell_user(options.client, event, reason).encode()
    try:
        write(answer)
    except OSError:
        return 2 if options.required else 1
    return 0


if __name__ == "__main__":
    try:
        status = main()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - not even a signal may leave words on stdout, or another code
        status = 2 if any(word.startswith("--required") for word in sys.argv) else 1
    os._exit(status)  # nothing is left to clean up, and taking the interpreter down takes as long as a call
