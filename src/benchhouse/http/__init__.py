"""Questions to servers beside a load: one HTTP client with its limits, and the metrics that servers expose as text.

Addresses go in; answers, samples and named reasons why there is no answer come out.
"""
