#!/usr/bin/env python3
"""A Tidemill worker in plain Python: the standard library and nothing else.

    tidemill serve --no-worker &
    python3 examples/worker.py http://127.0.0.1:7070

It claims one task at a time, runs its command, keeps the lease with heartbeats and reports how it ended. Set
TIDEMILL_API_KEY to a key of role worker if the server has keys. The calls are described at /docs of the server.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

SERVER = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7070").rstrip("/")
WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
OUTPUT_MAX = 256 * 1024  # of a log that is sent


class LeaseLost(Exception):
    """Another worker has the task, it was cancelled, or another outcome counts: stop it and report nothing."""


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


def keep_lease(task, child, every, lost, done):
    """Heartbeats until the task is done. Whoever loses the lease kills the child."""
    while not done.wait(every):
        try:
            if call("/v1/worker/heartbeat", hold(task) | {"pid": child.pid})["cancel"]:
                raise LeaseLost()
        except LeaseLost:
            lost.set()
            kill(child)
            return
        except (ConnectionError, urllib.error.URLError, TimeoutError) as error:
            print(f"no heartbeat: {error}", file=sys.stderr)


def kill(child):
    """The child and all it started: it leads a process group of its own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(task, lease_ms):
    """Runs a task to its end and reports it."""
    command = task["execution"].get("command")
    if task["execution"]["runner"] != "command" or not command:
        report = {"status": "failed", "error": "this worker runs commands only", "errorCategory": "validation"}
        insist("/v1/worker/finish", hold(task) | {"outcome": report})
        return
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if task["execution"].get("definition"):
        argv += (["sh"] if isinstance(command, str) else []) + [task["requestId"]]
        # Every user of the machine can see arguments; some definitions keep the input out of them.
        argv += [json.dumps(task["input"])] if task["execution"].get("inputArg", True) else []
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "artifacts"))
        input_file = os.path.join(directory, "input.json")
        with open(input_file, "w", encoding="utf-8") as file:
            json.dump(task["input"], file)
        passed = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = passed | task["execution"].get("env", {}) | {
            "INPUT_FILE": input_file,
            "TIDEMILL_OUTPUT_DIR": directory,
            "TIDEMILL_REQUEST_ID": task["requestId"],
            "TIDEMILL_TASK_ID": task["taskId"],
            "TIDEMILL_ATTEMPT": str(task["attempt"]),
            "TIDEMILL_FENCE": str(task["fence"]),
        }
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, text=True, errors="replace",
            )
        except OSError as error:
            report = {"status": "failed", "error": str(error), "errorCategory": "not-found"}
            insist("/v1/worker/finish", hold(task) | {"outcome": report})
            return
        lost, done = threading.Event(), threading.Event()
        beat = threading.Thread(target=keep_lease, args=(task, child, lease_ms / 1000 / 2.5, lost, done))
        beat.start()
        try:
            call("/v1/worker/begin", hold(task) | {"pid": child.pid})
        except (LeaseLost, ConnectionError, urllib.error.URLError, TimeoutError):
            pass  # only for the history; heartbeats tell whether the lease is lost
        timeout_ms = task.get("timeoutMs") or 200_000
        timed_out = False
        try:
            output, _ = child.communicate(timeout=timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            timed_out = True
            kill(child)
            output, _ = child.communicate()
        done.set()
        beat.join()
        elapsed_ms = int((time.monotonic() - started) * 1000)
        if lost.is_set():
            raise LeaseLost()
        if timed_out:
            report = {"status": "timeout", "timeoutMs": timeout_ms, "elapsedMs": elapsed_ms, "signal": "SIGKILL"}
        elif child.returncode == 0:
            report = {"status": "completed", "output": result_of(output, directory), "durationMs": elapsed_ms}
        else:
            last = "\n".join(output.strip().splitlines()[-5:])
            error = f"exit status {child.returncode}: {last}"
            report = {"status": "failed", "error": error, "errorCategory": "unknown"}
        store_log(task, output)
        insist("/v1/worker/finish", hold(task) | {"outcome": report})
        print(f"{task['requestId']} {report['status']} after {elapsed_ms} ms", file=sys.stderr)


def result_of(output, directory):
    """artifacts/task-result.json, else a last line that is a JSON object, else nothing."""
    try:
        with open(os.path.join(directory, "artifacts", "task-result.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        pass
    lines = output.strip().splitlines()
    try:
        result = json.loads(lines[-1]) if lines else {}
        return result if isinstance(result, dict) else {}
    except ValueError:
        return {}


def store_log(task, output):
    """Best effort: a task is not run again because its log cannot be kept."""
    path = f"/v1/worker/blobs/{task['requestId']}/{task['fence']}/logs/output.log?tenantId={task['tenantId']}"
    headers = {"Content-Type": "application/octet-stream"}
    if key := os.environ.get("TIDEMILL_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    body = output.encode()[-OUTPUT_MAX:]
    try:
        with urllib.request.urlopen(urllib.request.Request(SERVER + path, body, headers, method="PUT"), timeout=30):
            pass
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"the log was not stored: {error}", file=sys.stderr)


def main():
    # In order: the task that runs is finished first.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    print(f"working for {SERVER} as {WORKER_ID}", file=sys.stderr, flush=True)
    claim_id = uuid.uuid4().hex
    while not stop.is_set():
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
        for task in claimed["tasks"]:
            try:
                run(task, claimed["leaseMs"])
            except LeaseLost:
                print(f"{task['requestId']} was taken away", file=sys.stderr)


if __name__ == "__main__":
    main()
