"""How far the times of `serving.load` can be off, by a client that is stopped and by one that is idle."""

import pytest
from laboratory import stopped
from mocks.llm import MockLLM
from services.quiet_moment import in_a_quiet_moment

from benchhouse.experiments.serving.load import serve

PROMPTS = {"distinct": 3000, "prompt_tokens": 16, "output_tokens": 12}
PAUSE_S = 0.3


def target(server):
    return {"url": server.url, "model": "mock"}


@pytest.mark.timeout(120)
def test_a_load_process_that_was_stopped_makes_those_figures_invalid_that_it_can_have_changed(play):
    """Eight requests of about 0.5 s are in flight, out of step: of some 45 a pause of 0.3 s hits at most 16."""
    prompts = PROMPTS | {"output_tokens": 100}
    workload = {"concurrency": 8, "duration": 3, "warmup": 0.5, "prompts": prompts, "error_limit": "20ms"}
    with (
        MockLLM(ttft_ms=30, ttft_exp=1, itl_ms=5) as server,
        stopped(lambda: server.stats()["requests"] >= 30, PAUSE_S),
    ):
        ctx = play(serve, target(server), workload)

    assert ctx.beyond["itl"]  # which ones depends on how long the server's own gaps are
    assert 20 < max(ctx.errors["itl"].values()) < 3 * PAUSE_S * 1e3
    assert "INVALID" in ctx.warnings["figures_invalid"]
    assert "p50" not in ctx.beyond["itl"] | ctx.beyond["e2e"]
    assert ctx.errors["e2e"]["p50"] < 20
    assert set(ctx.values["output_tokens"]) == {100} and ctx.histograms["e2e"].n > 20
    assert ctx.invalidities == {}


def test_tokens_that_come_in_one_burst_are_no_doubt_of_an_idle_client(play):
    workload = {"concurrency": 1, "duration": 1, "warmup": 0.2, "prompts": PROMPTS, "error_limit": "5ms"}
    for options in ({"coalesce": 1}, {"coalesce": 0}, {"merge": 4}):

        def measure(options=options):
            with MockLLM(ttft_ms=30, itl_ms=0, **options) as server:
                ctx = play(serve, target(server), workload)
            for name in ("ttft", "itl", "e2e"):  # of percentiles beyond the median a busy machine may be in doubt
                assert "p50" not in ctx.beyond[name], ctx.warnings
                assert ctx.errors[name]["p50"] < 5, ctx.errors[name]
            assert ctx.histograms["ttft"].quantile(0.5) / 1e6 == pytest.approx(30, abs=5)

        in_a_quiet_moment(measure)
