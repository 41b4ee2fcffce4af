"""Says how long it took."""

import time

began = time.perf_counter()
total = sum(number * number for number in range(100_000))
print(f"hello, the sum is {total}")
print(f"elapsed: {(time.perf_counter() - began) * 1000:.3f}")
