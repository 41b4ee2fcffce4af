"""What a trainer may import beside `benchhouse_client`: how many FLOPs a step takes, counted by torch.

One file for Python 3.8 and newer, to be copied where it is needed. Nothing is imported until it is used.
"""

__all__ = ["count_flops"]


def count_flops(step: "object", *arguments: "object") -> int:
    """Call `step(*arguments)` once, under torch's FLOP counter: the FLOPs of all products that it computed.

    A whole step (forward and backward) gives the record's `flops`, or `hardware_flops` where activations are computed
    again. The model's own FLOPs are then three times those of a forward pass counted alone. Attention is computed by
    plain products meanwhile: the counter has no formula for the kernel that CPUs use, and would leave it out without
    a word. All of attention is counted, as if it was not causal. Count on the model before `torch.compile`.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step(*arguments)  # type: ignore[operator]
    return counter.get_total_flops()
