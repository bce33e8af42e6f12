"""Tests of the helper and the samples, each as a process of its own: `python3 -m unittest discover plugins/python`."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Judge:
    """A script, asked as rlpipe asks it."""

    def __init__(self, *command, config=None):
        environment = dict(os.environ, PYTHONPATH=HERE, RLPIPE_PLUGIN="1")
        self.process = subprocess.Popen(
            [sys.executable, *command], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.ready = self.ask({"type": "start", "protocol": 1, "node": "scored", "config": config or {}, "seed": 1})

    def ask(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def scores(self, *samples):
        answer = self.ask({"type": "score", "id": 5, "samples": list(samples)})
        assert (answer["type"], answer["id"]) == ("scores", 5), answer
        return answer["scores"]

    def end(self):
        """Closes its input; what it wrote beside its messages, and to standard error."""
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return output, errors


def sample(response, **fields):
    return dict({"response": response, "prompt": [], "columns": {}}, **fields)


class Tests(unittest.TestCase):
    def script(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "script.py")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_length(self):
        judge = Judge(os.path.join(HERE, "length_reward.py"), config={"characters": 4})
        self.assertEqual(judge.ready["config_schema"]["required"], ["characters"])
        rewards = [score["reward"] for score in judge.scores(*map(sample, ["abcd", "ab", "", "x" * 9]))]
        self.assertEqual(rewards, [1.0, 0.5, 0.0, 0.0])
        self.assertEqual(judge.end()[0], "")

    def test_i10_errors_of_one_sample_are_its_own_and_prints_are_harmless(self):
        judge = Judge(self.script("""
import os, sys
from rlpipe_plugin import reward, run
print("loading")
@reward
def odd(sample):
    print("judging", sample.response)
    os.system("echo from a child")
    sys.__stdout__.write("")
    return {"none": None, "nan": float("nan"), "text": "1", "true": True}.get(sample.response) or 1 / len(sample.response)
run()
"""))
        first, none, nan, text, true, empty = judge.scores(*map(sample, ["ab", "none", "nan", "text", "true", ""]))
        self.assertEqual(first, {"reward": 0.5, "parsed": None, "parts": {}})
        self.assertEqual((none["reward"], true["reward"]), (0.25, 1.0))
        self.assertEqual(nan, {"error": "ValueError: the reward is nan; return None to abstain"})
        self.assertTrue(text["error"].startswith("TypeError"))
        self.assertEqual(empty, {"error": "ZeroDivisionError: division by zero"})
        output, errors = judge.end()
        self.assertEqual(output, "")
        for part in ["loading", "judging ab", "from a child", "Traceback", "ZeroDivisionError"]:
            self.assertIn(part, errors)

    def test_messages_are_read_by_nobody_else(self):
        judge = Judge(self.script("""
import subprocess, sys
from rlpipe_plugin import reward, run
@reward
def greedy(sample):
    child = subprocess.run(["cat"], stdout=subprocess.PIPE, timeout=60).stdout
    try:
        typed = input()
    except EOFError:
        typed = ""
    return len(child) + len(typed) + len(sys.stdin.read())
run()
"""))
        # The second question waits already while the first is judged.
        question = json.dumps({"type": "score", "id": 5, "samples": [sample("a")]}) + "\n"
        judge.process.stdin.write(question * 2)
        judge.process.stdin.flush()
        for _ in range(2):
            answer = json.loads(judge.process.stdout.readline())
            self.assertEqual(answer["scores"], [{"reward": 0.0, "parsed": None, "parts": {}}])
        self.assertEqual(judge.end()[0], "")

    def test_lone_surrogates_are_replaced(self):
        judge = Judge(self.script("""
from rlpipe_plugin import Score, reward, run
@reward
def half(sample):
    if sample.response == "raise":
        raise ValueError("no \\ud800")
    return Score(1.0, parsed="a\\udfff", parts={"p\\ud800": 2})
run()
"""))
        parsed, error = judge.scores(sample("a"), sample("raise"))
        self.assertEqual(parsed, {"reward": 1.0, "parsed": "a?", "parts": {"p?": 2.0}})
        self.assertEqual(error, {"error": "ValueError: no ?"})
        judge.end()

    def test_none_abstains_and_batches_come_whole(self):
        judge = Judge(self.script("""
from rlpipe_plugin import Score, reward, run
@reward(batch=True, reads=["level"])
def by_level(samples):
    if any(sample.response == "raise" for sample in samples):
        raise RuntimeError("no")
    return [None if not s.response else Score(s.columns["level"], parts={"step": s.step}) for s in samples][:2]
run()
"""))
        self.assertEqual(judge.ready["reads"], ["level"])
        fields = {"columns": {"level": 3}, "step": 7, "total_steps": 9}
        scores = judge.scores(sample("a", **fields), sample("", **fields))
        self.assertEqual(scores[0], {"reward": 3.0, "parsed": None, "parts": {"step": 7.0}})
        self.assertIsNone(scores[1]["reward"])
        self.assertEqual(judge.scores(sample("raise")), [{"error": "RuntimeError: no"}])
        self.assertEqual(len(judge.scores(*[sample("a", **fields)] * 3)), 2, "rlpipe names the counts")
        judge.end()

    def test_verl(self):
        path = self.script("""
def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0):
    if data_source == "plain":
        return float(solution_str == ground_truth)
    return {"score": extra_info["index"] + bonus, "acc": True, "pred": "p", "note": "text"}
""")
        judge = Judge(os.path.join(HERE, "verl_reward.py"), "--function", path + ":compute_score", config={"bonus": 2})
        self.assertEqual(judge.ready["name"], "compute_score")
        plain = sample("7", data_source="plain", ground_truth="7")
        rich = sample("7", data_source="rich", columns={"extra_info": {"index": 5}})
        first, second = judge.scores(plain, rich)
        self.assertEqual(first["reward"], 1.0)
        self.assertEqual(second, {"reward": 7.0, "parsed": "p", "parts": {"acc": 1.0}})
        judge.end()

    @unittest.skipUnless(importlib.util.find_spec("math_verify"), "math-verify is not installed")
    def test_i11_math_verify(self):
        judge = Judge(os.path.join(HERE, "math_verify_reward.py"))
        cases = [("so \\boxed{\\frac{1}{2}}", "0.5", 1.0), ("1/2", "\\frac{1}{2}", 1.0), ("I think 3", "4", 0.0),
                 ("no idea", "4", 0.0), ("$x^2+2x+1$", "(x+1)^2", 1.0), ("$1,234$", "1234", 1.0)]
        scores = judge.scores(*[sample(response, ground_truth=truth) for response, truth, _ in cases])
        self.assertEqual([score["reward"] for score in scores], [reward for _, _, reward in cases])
        self.assertIsNone(scores[3]["parsed"])
        self.assertIn("no ground truth", judge.scores(sample("1", ground_truth=None))[0]["error"])
        judge.end()


if __name__ == "__main__":
    unittest.main()
