"""Curves along an axis: sizes that grow by powers stand side by side."""

import re

import pytest

from benchhouse.report.scaling_chart import scaling_chart
from benchhouse.results.curves import CurveMetric, CurveStage, Scaling, ScalingCurve


def places(*sizes: float) -> tuple[list[float], str]:
    """Where the marks of the first panel are, and the whole drawing."""
    stages = [CurveStage(point=at, place=size, throughput=1.0 + at, n=3) for at, size in enumerate(sizes)]
    speed = CurveMetric(metric="bus_bandwidth", stat="value", unit="GB/s", direction="higher")
    curve = ScalingCurve(name="gloo", case=0, stages=stages)
    drawing = str(
        scaling_chart(Scaling(along="bytes", throughput=speed, resource=False, confidence=0.95, curves=[curve]))
    )
    return [float(x) for x in re.findall(r'<circle cx="([\d.]+)"[^>]*r="3.2"', drawing)], drawing


def test_a_wide_axis_is_logarithmic_and_says_so():
    (first, middle, last), drawing = places(1024, 65536, 4194304)
    assert middle == pytest.approx((first + last) / 2, abs=0.1) and "bytes (log scale)" in drawing
    (first, middle, last), drawing = places(1, 2, 4)
    assert middle - first == pytest.approx((last - middle) / 2, abs=0.1) and "log scale" not in drawing
