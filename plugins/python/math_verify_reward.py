"""Mathematical answers by math-verify: 1 where the response means the same as the ground truth, else 0.

    pip install math-verify            # before 0.9: 'math-verify[antlr4_13_2]'

It takes LaTeX and plain expressions, so `\\frac{1}{2}`, `0.5` and `1/2` are the same answer. math-verify's own time-outs use
`signal.alarm`; they are off here, since rlpipe watches the time and names the response that takes too long
(`timeout` of the `command`). An answer that cannot be compared is an error, never a reward of 0.

    judge: { command: { run: [python3, ./math_verify_reward.py], timeout: 10s } }
"""

from rlpipe_plugin import Score, reward, run

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

EXTRACT = [LatexExtractionConfig(), ExprExtractionConfig()]


@reward(name="math_verify", version="1")
def math_verify(sample):
    if sample.ground_truth is None:
        raise ValueError("the row has no ground truth")
    gold = parse(_as_latex(sample.ground_truth), EXTRACT, parsing_timeout=None, raise_on_error=True)
    if not gold:
        raise ValueError("the ground truth %r is no mathematical answer" % sample.ground_truth)
    found = parse(sample.response, EXTRACT, parsing_timeout=None, raise_on_error=True)
    if not found:
        return Score(0.0)
    right = verify(gold, found, timeout_seconds=None, raise_on_error=True)
    return Score(1.0 if right else 0.0, parsed=found[-1])


def _as_latex(answer):
    """Ground truths come with and without dollars; LaTeX is only read within them."""
    return answer if "$" in answer or "\\boxed" in answer else "$%s$" % answer


run()
