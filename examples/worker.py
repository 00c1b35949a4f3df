#!/usr/bin/env python3
"""A Tidemill worker in plain Python: the standard library and nothing else.

    tidemill serve --no-worker &
    python3 examples/worker.py http://127.0.0.1:7070

It claims one task at a time, runs its command, keeps the lease with heartbeats and reports how it ended. Set
TIDEMILL_API_KEY to a key of role worker if the server has keys. The calls are described at /docs of the server.

A lease ends whether or not this process notices: it may be stopped, or its machine asleep. So each command has a guard, a
process of its own that kills it when the lease is over and was not renewed.
"""

import errno
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

SERVER = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7070").rstrip("/")
WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
OUTPUT_MAX = 256 * 1024  # of a log that is sent
MARK = "@@tidemill "  # begins a line that is for the worker
# What a status, code or name of an error line means. Add those of your programs; `tidemill worker` knows many more.
CATEGORIES = {
    # No further attempt follows these.
    "400": "validation", "422": "validation", "ValidationError": "validation", "JSONDecodeError": "parse",
    "401": "auth", "403": "auth", "PermissionError": "auth",
    "404": "not-found", "FileNotFoundError": "not-found", "ModuleNotFoundError": "not-found", "ENOENT": "not-found",
    "TypeError": "programming", "ValueError": "programming", "KeyError": "programming",
    # These may pass.
    "408": "timeout", "TimeoutError": "timeout", "429": "rate-limit", "RateLimitError": "rate-limit",
    "500": "server-error", "502": "server-error", "503": "server-error", "504": "server-error",
    "ConnectionError": "network", "ConnectionResetError": "network", "ECONNREFUSED": "network", "ECONNRESET": "network",
}
ARTIFACTS_MAX, ARTIFACT_MAX = 1_000, 64 * 1024 * 1024  # files of a task that are kept, and the bytes of one
PAUSE_FIRST, PAUSE_MAX = 1, 60  # seconds without a claim, when this machine cannot run tasks
# A machine that has no room for another process, and not the task, has these errors.
MACHINE_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EROFS, errno.EIO}


class LeaseLost(Exception):
    """Another worker has the task, it was cancelled, or another outcome counts: stop it and report nothing."""


class Trouble(Exception):
    """This machine cannot run tasks now. The task was given back, and no attempt is counted."""


def now():
    """Seconds by a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Until when the task is surely ours. A part is left for killing the command before somebody else begins."""

    def __init__(self, asked_at, seconds):
        self.seconds = seconds - min(max(seconds / 10, 1), seconds / 3)
        self.until = asked_at + self.seconds

    def renewed(self, asked_at):
        """The server counts from when it got the call, which was later."""
        self.until = max(self.until, asked_at + self.seconds)

    def is_over(self):
        return now() >= self.until


def call(path, body, timeout=60):
    """One call of the API. Answers are JSON; so are errors, and their `code` says what to do."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("TIDEMILL_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read() or b"{}")
        if problem.get("code") in ("LEASE_LOST", "OUTCOME_DIFFERS", "CLAIM_USED"):
            raise LeaseLost() from error
        if error.code in (401, 403):
            sys.exit(f"the server refuses this worker: {problem.get('detail')}")
        if error.code < 500 and error.code != 429:
            raise RuntimeError(f"{path}: {problem.get('detail')} ({problem.get('code')})") from error
        raise ConnectionError(problem.get("detail")) from error


def insist(path, body):
    """What must arrive is sent until it has: every call may be repeated."""
    wait = 0.2
    while True:
        try:
            return call(path, body)
        except (ConnectionError, urllib.error.URLError, TimeoutError) as error:
            print(f"{error}; trying again", file=sys.stderr)
            time.sleep(wait)
            wait = min(wait * 2, 5)


def hold(task):
    """The part of every call that says which task, and that it is ours."""
    return {key: task[key] for key in ("tenantId", "requestId", "fence")} | {"workerId": WORKER_ID}


def keep_lease(task, child, every, lease, lost, done):
    """Heartbeats until the task is done. Whoever loses the lease kills the child."""
    while not done.wait(every):
        asked_at = now()
        try:
            if call("/v1/worker/heartbeat", hold(task) | {"pid": child.pid}, timeout=max(every, 1))["cancel"]:
                raise LeaseLost()
            lease.renewed(asked_at)
            tell(child, lease)
        except LeaseLost:
            lost.set()
            if child.poll() is None:
                kill(child)
            return
        except (ConnectionError, urllib.error.URLError, TimeoutError) as error:
            print(f"no heartbeat: {error}", file=sys.stderr)


def tell(child, lease):
    """Lets the guard know until when the lease lasts."""
    try:
        os.write(child.stdin.fileno(), f"{lease.until}\n".encode())
    except BrokenPipeError:
        pass  # it has ended


def kill(child):
    """The guard, the command and all it started: the guard leads a process group of its own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def guard(until, argv):
    """Runs a command as long as the lease lasts. Standard input tells when it was renewed, and closes with the worker."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    try:
        if now() >= until:
            os.killpg(0, signal.SIGKILL)
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(126 if error.errno in (errno.EACCES, errno.ENOEXEC) else 127)
    while child.poll() is None:
        # Not for longer: this timer stands still while the machine sleeps.
        ready, _, _ = select.select([sys.stdin, ended], [], [], min(max(until - now(), 0), 1))
        if ended in ready:
            os.read(ended, 4096)
        if sys.stdin in ready:
            line = os.read(0, 65536).decode().split()
            if not line:
                os.killpg(0, signal.SIGKILL)
            until = float(line[-1])
        if now() >= until and child.poll() is None:
            os.killpg(0, signal.SIGKILL)
    sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


def give_back(task, error):
    """No attempt is counted for what is wrong with this machine."""
    insist("/v1/worker/release", hold(task) | {"reason": f"the worker cannot start tasks: {error}"})
    raise Trouble(str(error)) from error


def run(task, lease):
    """Runs a task to its end and reports it."""
    command = task["execution"].get("command")
    if task["execution"]["runner"] != "command" or not command:
        report = {"status": "failed", "error": "this worker runs commands only", "errorCategory": "not-found"}
        insist("/v1/worker/finish", hold(task) | {"outcome": report})
        return
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if task["execution"].get("definition"):
        argv += (["sh"] if isinstance(command, str) else []) + [task["requestId"]]
        # Every user of the machine can see arguments; some definitions keep the input out of them.
        argv += [json.dumps(task["input"])] if task["execution"].get("inputArg", True) else []
    try:
        place = tempfile.TemporaryDirectory()
    except OSError as error:
        give_back(task, error)
    with place as directory:
        try:
            os.mkdir(os.path.join(directory, "artifacts"))
            input_file = os.path.join(directory, "input.json")
            with open(input_file, "w", encoding="utf-8") as file:
                json.dump(task["input"], file)
            inputs = os.path.join(directory, "inputs")
            problem = fetch_inputs(task, inputs)
        except OSError as error:
            give_back(task, error)
        if problem:
            report = {"status": "failed", "error": problem, "errorCategory": "not-found"}
            insist("/v1/worker/finish", hold(task) | {"outcome": report})
            return
        passed = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = passed | task["execution"].get("env", {}) | {
            "INPUT_FILE": input_file,
            "TIDEMILL_OUTPUT_DIR": directory,
            "TIDEMILL_INPUTS": inputs,
            "TIDEMILL_REQUEST_ID": task["requestId"],
            "TIDEMILL_TASK_ID": task["taskId"],
            "TIDEMILL_ATTEMPT": str(task["attempt"]),
            "TIDEMILL_FENCE": str(task["fence"]),
        }
        if lease.is_over():
            raise LeaseLost()  # the answer to the claim was long under way
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--guard", str(lease.until), *argv], env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, text=True, errors="replace",
            )
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                give_back(task, error)
            report = {"status": "failed", "error": str(error), "errorCategory": "validation"}
            insist("/v1/worker/finish", hold(task) | {"outcome": report})
            return
        lost, done = threading.Event(), threading.Event()
        beat = threading.Thread(target=keep_lease, args=(task, child, lease.seconds / 3, lease, lost, done))
        beat.start()
        try:
            call("/v1/worker/begin", hold(task) | {"pid": child.pid})
        except (LeaseLost, ConnectionError, urllib.error.URLError, TimeoutError):
            pass  # only for the history; heartbeats tell whether the lease is lost
        timeout_ms = task.get("timeoutMs") or 200_000
        timed_out = False
        try:
            output = read(child, timeout_ms / 1000)
        except subprocess.TimeoutExpired as late:
            timed_out, output = True, late.output
        output, said = told(output)
        elapsed_ms = int((time.monotonic() - started) * 1000)
        # Under the lease that is kept meanwhile.
        artifacts = store_artifacts(task, directory) if child.returncode == 0 and not timed_out else []
        store_log(task, output)
        done.set()
        beat.join()
        child.stdin.close()
        if lost.is_set() or (child.returncode == -signal.SIGKILL and lease.is_over() and not timed_out):
            raise LeaseLost()
        if timed_out:
            report = {"status": "timeout", "timeoutMs": timeout_ms, "elapsedMs": elapsed_ms, "signal": "SIGKILL"}
        elif child.returncode == 0:
            try:
                report = {"status": "completed", "output": result_of(said.get("result"), output, directory),
                          "durationMs": elapsed_ms, "artifacts": artifacts}
            except (OSError, ValueError) as error:
                report = {"status": "failed", "error": f"the result cannot be used: {error}", "errorCategory": "validation"}
        else:
            report = failure_of(said.get("error"), child.returncode, output)
        insist("/v1/worker/finish", hold(task) | {"outcome": report})
        print(f"{task['requestId']} {report['status']} after {elapsed_ms} ms", file=sys.stderr)


def read(child, seconds):
    """All that the command prints, until it ends. Its guard is told of renewals meanwhile, so standard input stays open."""
    parts = []
    reader = threading.Thread(target=lambda: parts.append(child.stdout.read()))
    reader.start()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired as late:
        kill(child)
        child.wait()
        reader.join()
        late.output = "".join(parts)
        raise
    reader.join()
    return "".join(parts)


def told(output):
    """What the command printed without its lines for the worker, and the last of these by kind."""
    lines, said = [], {}
    for line in output.splitlines(keepends=True):
        try:
            record = json.loads(line[len(MARK):]) if line.startswith(MARK) else None
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            said[record["kind"]] = record
        else:
            lines.append(line)
    return "".join(lines), said


def result_of(said, output, directory):
    """The result line, else artifacts/task-result.json, else a last line that is a JSON object, else nothing."""
    said = said or {}
    if "output" in said:
        return said["output"]
    top, name = os.path.realpath(directory), str(said.get("outputFile", "artifacts/task-result.json"))
    path = os.path.realpath(os.path.join(top, name))
    if os.path.commonpath([top, path]) != top:
        raise ValueError(f"{name} is not in the output directory")
    if "outputFile" in said or os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    lines = output.strip().splitlines()
    try:
        result = json.loads(lines[-1]) if lines else {}
        return result if isinstance(result, dict) else {}
    except ValueError:
        return {}


def failure_of(said, status, output):
    """The error line says what went wrong, and whether it is worth another attempt. Without one nobody knows."""
    if not said:
        last = "\n".join(output.strip().splitlines()[-5:])
        return {"status": "failed", "error": f"exit status {status}: {last}", "errorCategory": "unknown"}
    words = [str(said[key]) for key in ("name", "message") if said.get(key)] or [f"status {said.get('status')}"]
    code = f"{said['code']}, " if said.get("code") else ""
    known = [CATEGORIES[sign] for sign in (str(said.get(key)) for key in ("status", "code", "name")) if sign in CATEGORIES]
    report = {"status": "failed", "error": f"{': '.join(words)} ({code}exit status {status})",
              "errorCategory": known[0] if known else "unknown"}
    if said.get("code"):
        report["errorCode"] = str(said["code"])[:256]
    if isinstance(said.get("retryAfterMs"), int):
        report["retryAfterMs"] = min(max(said["retryAfterMs"], 0), 604_800_000)
    return report


def file_call(method, path, body=None):
    """A call about a file of a task, whose bytes are sent or answered as they are."""
    headers = {"Content-Type": "application/octet-stream"}
    if key := os.environ.get("TIDEMILL_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    with urllib.request.urlopen(urllib.request.Request(SERVER + path, body, headers, method=method), timeout=60) as answer:
        return answer.read()


def fetch_inputs(task, inputs):
    """Puts what the task's dependencies left into inputs/{taskId}/..., each file checked by its hash. Says what is wrong."""
    for parent, files in task["input"].get("dependencyArtifacts", {}).items():
        for file in files:
            name = f"artifact {file['path']!r} of task {parent}"
            path = os.path.join(inputs, parent, file["path"])
            if os.path.commonpath([inputs, os.path.realpath(path)]) != inputs:
                return f"{name} has a path that leads out of its directory"
            query = f"?tenantId={task['tenantId']}"
            url = f"/v1/worker/inputs/{task['requestId']}/{task['fence']}/{parent}/{urllib.parse.quote(file['path'])}{query}"
            try:
                content = file_call("GET", url)
            except urllib.error.HTTPError as error:
                return f"{name} cannot be had: {json.loads(error.read() or b'{}').get('detail')}"
            if hashlib.sha256(content).hexdigest() != file["sha256"]:
                return f"{name} is not what its task left"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as copy:
                copy.write(content)
            os.chmod(path, 0o400)
    return None


def store_artifacts(task, directory):
    """Keeps the files in artifacts/ and gives their names: the tasks that depend on this one are given them."""
    top, kept = os.path.join(directory, "artifacts"), []
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > ARTIFACT_MAX:
                continue
            inner = os.path.relpath(path, top)
            with open(path, "rb") as file:
                content = file.read()
            url = f"/v1/worker/blobs/{task['requestId']}/{task['fence']}/artifacts/{urllib.parse.quote(inner)}"
            try:
                file_call("PUT", f"{url}?tenantId={task['tenantId']}", content)
            except (urllib.error.URLError, TimeoutError) as error:
                print(f"{inner} was not stored: {error}", file=sys.stderr)
                continue
            kept.append({"path": inner, "sizeBytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
            if len(kept) == ARTIFACTS_MAX:
                return kept
    return kept


def store_log(task, output):
    """Best effort: a task is not run again because its log cannot be kept."""
    path = f"/v1/worker/blobs/{task['requestId']}/{task['fence']}/logs/output.log?tenantId={task['tenantId']}"
    try:
        file_call("PUT", path, output.encode()[-OUTPUT_MAX:])
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"the log was not stored: {error}", file=sys.stderr)


def main():
    # In order: the task that runs is finished first.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    print(f"working for {SERVER} as {WORKER_ID}", file=sys.stderr, flush=True)
    claim_id, pause = uuid.uuid4().hex, PAUSE_FIRST
    while not stop.is_set():
        sent_at = now()
        try:
            # Asking again under the same name gives the same tasks, so a lost answer loses nothing.
            claimed = call("/v1/worker/claim", {"workerId": WORKER_ID, "claimId": claim_id, "slots": 1, "waitMs": 2_000})
        except (ConnectionError, urllib.error.URLError, TimeoutError) as error:
            print(f"{error}; trying again", file=sys.stderr)
            stop.wait(1)
            continue
        except LeaseLost:
            # The answer was lost, and others have what it took: the next claim has another name.
            claimed = {"tasks": []}
        claim_id = uuid.uuid4().hex
        # The lease began this long after the server got the claim.
        asked_at = sent_at + min(claimed.get("claimedAfterMs", 0) / 1000, now() - sent_at)
        for task in claimed["tasks"]:
            try:
                run(task, Lease(asked_at, claimed["leaseMs"] / 1000))
                pause = PAUSE_FIRST
            except LeaseLost:
                print(f"{task['requestId']} was taken away", file=sys.stderr)
            except Trouble as error:
                print(f"cannot start tasks: {error}; claiming again in {pause} s", file=sys.stderr)
                stop.wait(pause)
                pause = min(pause * 2, PAUSE_MAX)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--guard"]:
        guard(float(sys.argv[2]), sys.argv[3:])
    main()
