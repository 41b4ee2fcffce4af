"""The load engine in its two kinds: compiled, and in Python."""

from contextlib import contextmanager

import pytest

from benchhouse.drivers import openai
from benchhouse.experiments.serving import steadiness
from benchhouse.load import answers, answers_python, framing

KINDS = ["python", "compiled"]


@contextmanager
def engine(kind):
    """Answers are read by the compiled part, or by Python."""
    chosen = answers_python
    if kind == "compiled":
        chosen = pytest.importorskip("benchhouse.load._answers", exc_type=ImportError)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_chosen", chosen)
        patch.setattr(answers, "_compiled", None if kind == "python" else chosen)
        patch.setattr(framing, "whole_chunks", chosen.whole_chunks)
        patch.setattr(openai, "alike", chosen.alike)
        patch.setattr(steadiness, "bins", chosen.bins)
        yield
