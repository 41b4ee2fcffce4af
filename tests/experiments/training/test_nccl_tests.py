"""nccl-tests' tables, as its programs printed them elsewhere (names of nodes changed, one size kept), and a fake
program that prints one: there is no GPU where these tests run."""

import stat
import sys

import pytest

from benchhouse.experiments.training import nccl_tests
from benchhouse.experiments.training.collectives import collectives
from benchhouse.schema.experiment import ExperimentFailed

HEADER = """\
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
"""
GH200 = f"""\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 134217728 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 \
validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 204199 on      node1 device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  1 Group  0 Pid 204200 on      node1 device  1 [0019:01:00] NVIDIA GH200 120GB
#  Rank  2 Group  0 Pid 204201 on      node1 device  2 [0029:01:00] NVIDIA GH200 120GB
#  Rank  3 Group  0 Pid 204202 on      node1 device  3 [0039:01:00] NVIDIA GH200 120GB
#  Rank  4 Group  0 Pid 155254 on      node2 device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  5 Group  0 Pid 155255 on      node2 device  1 [0019:01:00] NVIDIA GH200 120GB
#  Rank  6 Group  0 Pid 155256 on      node2 device  2 [0029:01:00] NVIDIA GH200 120GB
#  Rank  7 Group  0 Pid 155257 on      node2 device  3 [0039:01:00] NVIDIA GH200 120GB
#
{HEADER}\
   134217728      33554432     float     sum      -1   1916.4   70.04  122.57      0   1907.8   70.35  123.11      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 19.7866
#
# Collective test concluded: all_reduce_perf
"""
ALL_TO_ALL = f"""\
{HEADER}\
 8589934592     268435456     float    none      -1    20837  412.23  360.71      0    20817  412.64  361.06    N/A
# Out of bounds values : 0 OK
"""
BROADCAST = f"""\
0fed:530158:530324 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
NCCL version 2.21.5+cuda12.4
0fed:530158:530324 [0] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512
{HEADER}\
     1048576        262144     float    none       0   1419.4    0.74    0.74      0   1429.4    0.73    0.73      0
# Out of bounds values : 0 OK
"""
OLD = """\
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
    16777216       4194304     float     sum    751.9   22.31   41.84  5e-07    749.7   22.38   41.96  5e-07
# Out of bounds values : 0 OK
"""
UNCHECKED = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
    33554432       8388608   float     sum   1464.2   22.92   45.65    N/A   1458.1   23.01   45.84    N/A
"""
LABELLED = """\
[1,0]<stdout>:#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw  #wrong
[1,0]<stdout>:           8             2     float     sum      -1    12.90    0.00    0.00      0    12.87    0.00    0.00      0
"""  # noqa: E501 - as it was printed
WRONG = GH200.replace("122.57      0", "122.57     16").replace("values : 0 OK", "values : 1 FAILED")


def test_tables_of_all_versions_are_read():
    for text, operation, ranks, size, us, wrong in [
        (GH200, "all_reduce", 8, 134217728, 1916.4, 0),
        (ALL_TO_ALL, "all_to_all", 8, 8589934592, 20837, 0),
        (BROADCAST, "broadcast", 2, 1048576, 1419.4, 0),
        (OLD, "all_reduce", 16, 16777216, 751.9, 0),
        (UNCHECKED, "all_reduce", 256, 33554432, 1464.2, None),
        (LABELLED, "all_reduce", 16, 8, 12.90, 0),
        (WRONG, "all_reduce", 8, 134217728, 1916.4, 16),
    ]:
        measured = nccl_tests.read(text.splitlines(), operation, ranks)
        assert (measured.bytes, measured.wrong) == (size, wrong)
        assert measured.seconds == pytest.approx([us / 1e6])


def test_another_table_is_refused():
    for text, ranks, says in [
        ("Segmentation fault", 8, "it printed no table"),
        (GH200, 4, r"8 ranks took part, workload\.ranks is 4"),
        (GH200.replace("Rank  1", "Rank  0"), 8, "built without MPI=1"),
        (OLD, 8, "do not follow from its time"),
        (OLD + OLD, 16, "2 rows in its table, not one"),
        (OLD.replace("751.9", "nan"), 16, "a row that can't be read \\(no time\\)"),
    ]:
        with pytest.raises(ValueError, match=says):
            nccl_tests.read(text.splitlines(), "all_reduce", ranks)


@pytest.fixture
def fake_nccl_tests(tmp_path):
    """`all_reduce_perf` of a fake nccl-tests, in a folder."""

    def write(text, exit_code=0):
        path = tmp_path / "all_reduce_perf"
        keeps = f"open({str(tmp_path / 'argv')!r}, 'w').write(' '.join(sys.argv[1:]))"
        path.write_text(f"#!{sys.executable}\nimport sys\n{keeps}\nprint({text!r})\nsys.exit({exit_code})\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"engine": "nccl-tests", "folder": str(tmp_path)}

    return write


WORKLOAD = {"operation": "all_reduce", "bytes": "128MiB", "ranks": 8}


def test_its_figures_are_reported_as_ours_are(play, fake_nccl_tests, tmp_path):
    ctx = play(collectives, fake_nccl_tests(GH200), WORKLOAD)
    assert (tmp_path / "argv").read_text() == "-b 134217728 -e 134217728 -d float -g 8 -w 5 -n 200 -c 1 -a 3"
    assert ctx.values["latency"] == pytest.approx([1916.4])
    assert ctx.values["bus_bandwidth"] == pytest.approx([122.57], rel=1e-4)
    assert ctx.values["algorithm_bandwidth"] == pytest.approx([70.04], rel=1e-4)
    assert ctx.facts["nodes"] == ["node1", "node2"] and ctx.facts["device"] == "NVIDIA GH200 120GB"


def test_wrong_results_of_it_make_the_trial_invalid(play, fake_nccl_tests):
    ctx = play(collectives, fake_nccl_tests(WRONG, exit_code=1), WORKLOAD)
    assert ctx.invalidities["wrong_result"] == "all_reduce of 128.0 MiB: 16 elements came out wrong"


def test_a_program_that_fails_is_told_with_its_last_lines(play, fake_nccl_tests):
    with pytest.raises(ExperimentFailed, match=r"no_result: all_reduce_perf: it printed no table \(it ended with 2\)"):
        play(collectives, fake_nccl_tests("Test CUDA failure common.cu:891 'no CUDA-capable device'", 2), WORKLOAD)
    with pytest.raises(ExperimentFailed, match="command_not_found: no program 'all_gather_perf'"):
        play(collectives, {"engine": "nccl-tests"}, WORKLOAD | {"operation": "all_gather"})
