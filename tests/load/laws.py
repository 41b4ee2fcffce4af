"""Laws of arrival that tests go through."""

from benchhouse.load.arrivals import Constant, Gamma, Poisson, Ramp, StepRates

ENDLESS = (
    Constant(),
    Poisson(),
    Gamma(shape=0.25),
    Gamma(shape=4),
    Ramp(to=900, over=10),
    Ramp(to=20, over=10, gaps="constant"),
    StepRates(rates=(100, 400, 50), each=3),
    StepRates(rates=(100, 400, 50), each=3, gaps="constant"),
)
