"""A judge that misbehaves as it is told: by `config` when it starts, by the words of a response when it judges.

The reward is the length of the response. Each message's responses are noted in `config.folder`, and so is each start.
"""

import json
import os
import signal
import subprocess
import sys
import time


def note(name, text):
    with open(os.path.join(config["folder"], name), "a") as file:
        file.write(text + "\n")


def say(message):
    print(json.dumps(message), flush=True)


def hang():
    while True:
        time.sleep(1000)


config = json.loads(sys.stdin.readline())["config"]
note("starts", str(os.getpid()))
mode = config.get("start")
if mode == "hang":
    hang()
if mode == "die":
    sys.exit("no module named reward")
if mode == "text":
    print("loading the model", flush=True)
if mode == "idle_text":
    say({"type": "ready"})
    print("are you there?", flush=True)
    hang()
if mode == "leave":
    say({"type": "ready"})
    sys.exit(0)
say({"type": "ready", "name": "faulty", "version": "1"})
for line in sys.stdin:
    message = json.loads(line)
    responses = [sample["response"] for sample in message["samples"]]
    note("messages", json.dumps(responses))
    words = {word for response in responses for word in response.split()}
    if "once" in words and not os.path.exists(os.path.join(config["folder"], "once")):
        note("once", "")
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hang" in words:
        hang()
    if "die" in words:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "exit" in words:
        sys.exit("cannot go on")
    if "text" in words:
        print("a stray line", flush=True)
    if "closed" in words:
        os.close(1)
        hang()
    if "endless" in words:
        while True:
            sys.stdout.write("x" * 65536)
    if "flood" in words:
        for number in range(40000):
            sys.stderr.write("line %d of a flood, which is a long one, so that there is much of it\n" % number)
        sys.stderr.flush()
    if "child" in words:
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        note("child", str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    scores = [{"reward": float(len(response)), "parts": {"words": len(response.split())}} for response in responses]
    for index, response in enumerate(responses):
        if "null" in response:
            scores[index] = {"reward": None}
        if "raise" in response:
            scores[index] = {"error": "ValueError: no"}
        if "wrong" in response:
            scores[index] = {"reward": "x"}
        if "nan" in response:
            scores[index] = {"reward": float("nan")}
    if "short" in words:
        scores = scores[:1]
    if "long" in words:
        scores = scores + scores
    say({"type": "scores", "id": message["id"] + ("id" in words), "scores": scores})
note("ends", str(os.getpid()))
