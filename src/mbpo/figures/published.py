"""A handful of published returns of MBPO, to hold our own curves against.

Read from the curves that the authors of Janner et al. (2019), "When to Trust Your Model: Model-Based Policy
Optimization", published with their code. Their environments were Gym v2 on MuJoCo 1.50, ours are Gymnasium v5, so
agreement can be no closer than that.
"""

from dataclasses import dataclass

SOURCE = "Janner et al. 2019: mean ± std of 5 trials"


@dataclass(frozen=True)
class Mark:
    """One published return. Steps are real environment steps, warm-up included."""

    step: int
    mean: int
    std: int


PUBLISHED = {
    "Hopper": (
        Mark(20_000, 530, 222),
        Mark(30_000, 697, 174),
        Mark(40_000, 897, 344),
        Mark(50_000, 1702, 799),
        Mark(75_000, 3034, 642),
        Mark(100_000, 3315, 334),
        Mark(125_000, 3280, 455),
    ),
    "HalfCheetah": (Mark(10_000, 1720, 380), Mark(20_000, 4236, 587), Mark(30_000, 5777, 987), Mark(50_000, 7963, 589)),
}
