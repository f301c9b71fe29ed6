"""The sweeps over random worlds: every claim, what the printed Algorithm 1 does, and what the corrected one does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mbpo.theory import bounds, monotonic, tabular
from mbpo.theory.claims import CLAIMS, Claim
from mbpo.theory.tabular import PerWorld
from mbpo.theory.worlds import Exact, draw

# Rounding of linear solves at γ = 0.999, relative to the largest return r_max/(1−γ).
ROUNDING = 1e-10

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DISCOUNTS = (0.5, 0.9, 0.99)
TRANSITIONS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
EPOCHS = 10
# What is known of the model's error, and how it counts over time.
VARIANTS: tuple[tuple[monotonic.Knowledge, monotonic.OverTime], ...] = (
    ("exact", "mean"),
    ("exact", "largest"),
    ("confidence", "mean"),
)
ALLOWANCES = 21

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Tally:
    """What the sweep found about one claim."""

    claim: Claim
    worlds: int
    violations: int
    tightest: float
    """The least bound/gap over the worlds."""
    quantiles: tuple[float, ...]
    """bound/gap at QUANTILES, over the worlds with a gap at all."""

    @property
    def failed(self) -> bool:
        """Whether a claim that is said to hold was violated."""
        return self.claim.holds and self.violations > 0


@dataclass(frozen=True)
class Survey:
    """What the random worlds are like, in shares of them."""

    bracketed: float
    """ε_m, a largest value over infinitely many times, is known to 1e-9."""
    nearly_bracketed: float
    """It is known to 0.01."""
    silent: float
    """Theorem 4.1 exceeds 2 r_max/(1−γ), the most by which any two returns differ, and so says nothing."""
    silent_sharper: float
    """The sharper form does."""


@dataclass(frozen=True)
class PrintedSteps:
    """What maximising η̂ − C over all policies does in random worlds, for the printed and for the sharper C."""

    worlds: int
    gain_over_charge: float
    """The largest (η̂[π] − η̂[π_D]) / (C(ε_m, ε_π) − C(ε_m, 0)) over worlds and policies; at most ½."""
    moved: int
    """In how many worlds the printed objective has a maximiser other than π_D."""
    moved_sharper: int
    """The same with the sharper C."""
    certified_sharper: int
    """In how many the sharper objective beats the true return of π_D."""


@dataclass(frozen=True)
class Admissions:
    """Algorithm 1 with the penalty of Lemma B.3 over worlds of one discount and one amount of data an epoch."""

    discount: float
    transitions: int
    knowledge: monotonic.Knowledge
    over_time: monotonic.OverTime
    worlds: int
    first: float
    """The share of worlds that admit a step in the first epoch."""
    ever: float
    """The share that admit a step in any of the epochs."""
    closed: float | None
    """How much of the way from the first return to the optimal one those worlds go; None if there are none."""
    steps: int
    """Admitted steps in all worlds and epochs."""
    falls: int
    """Admitted steps after which the true return was lower."""


def check(worlds: int, seed: int, progress: Progress | None = None) -> list[Tally]:
    """A tally of every claim over `worlds` random worlds; `progress` hears how many are done."""
    ratios: list[list[PerWorld]] = [[] for _ in CLAIMS]
    violations = [0] * len(CLAIMS)
    done = 0
    for exact in exact_worlds(worlds, seed):
        for i, claim in enumerate(CLAIMS):
            gap, bound = compare(claim, exact)
            violations[i] += int(violated(gap, bound, exact).sum())
            ratios[i].append(ratio(gap, bound, exact))
        done += exact.discount.size
        if progress:
            progress(done)
    return [
        _tally(claim, found, np.concatenate(values))
        for claim, found, values in zip(CLAIMS, violations, ratios, strict=True)
    ]


def exact_worlds(worlds: int, seed: int) -> Iterator[Exact]:
    """The random worlds of a seed, with their exact quantities."""
    return (Exact(stack) for stack in draw(np.random.default_rng(seed), worlds))


def compare(claim: Claim, exact: Exact) -> tuple[PerWorld, PerWorld]:
    """The two sides of a claim, a number a world."""
    gap, bound = claim.sides(exact)
    return gap, np.broadcast_to(np.asarray(bound, dtype=np.float64), gap.shape)


def violated(gap: PerWorld, bound: PerWorld, exact: Exact) -> np.ndarray:
    """Where the gap exceeds its bound by more than rounding."""
    return gap > bound + ROUNDING / (1 - exact.discount)


def ratio(gap: PerWorld, bound: PerWorld, exact: Exact) -> PerWorld:
    """bound/gap, infinite where the gap is no more than rounding."""
    visible = gap > 1e3 * ROUNDING / (1 - exact.discount)
    return np.divide(bound, gap, out=np.full(gap.shape, np.inf), where=visible)


def survey(worlds: int, seed: int) -> Survey:
    """How well the largest errors are known in random worlds, and how often the bounds are silent."""
    rows: list[np.ndarray] = []
    for x in exact_worlds(worlds, seed):
        lower, upper = tabular.model_error(x.worlds.mdp, x.worlds.model, x.worlds.data_policy)
        printed = bounds.monotonic_gap(upper, x.policy_shift, *x.scale)
        sharper = bounds.sharp_monotonic_gap(x.mean_model_error, x.mean_policy_shift, *x.scale)
        most = 2 * x.worlds.max_reward / (1 - x.discount)
        rows.append(np.stack([upper - lower < 1e-9, upper - lower < 0.01, printed >= most, sharper >= most]))
    return Survey(*(float(share) for share in np.concatenate(rows, axis=1).mean(axis=1)))


def printed_steps(worlds: int, seed: int) -> PrintedSteps:
    """Whether η̂ − C leaves π_D when maximised over all policies, on a grid of ε_π from 0 to 1."""
    found = [_steps(exact) for exact in exact_worlds(worlds, seed)]
    share, moved, moved_sharper, certified = (np.concatenate(column) for column in zip(*found, strict=True))
    return PrintedSteps(
        share.size, float(share.max()), int(moved.sum()), int(moved_sharper.sum()), int(certified.sum())
    )


def _steps(x: Exact) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The largest gain/charge, and where the printed C moves, the sharper moves, and the sharper certifies."""
    model = replace(x.worlds.mdp, dynamics=x.worlds.model)
    tolerance = 1e3 * ROUNDING / (1 - x.discount)
    shares, printed, sharper = [np.zeros(x.discount.shape)], [], []
    for allowance in np.linspace(0, 1, ALLOWANCES)[1:]:
        policy = monotonic.best_policy_within(model, x.worlds.data_policy, np.full(x.discount.shape, allowance))
        shift = tabular.policy_shift(x.worlds.data_policy, policy)
        gain = tabular.policy_return(model, policy) - x.model_return_old
        charge = bounds.monotonic_gap(0.0, shift, *x.scale)
        shares.append(np.divide(gain, charge, out=np.zeros(gain.shape), where=gain > tolerance))
        printed.append(gain - charge)
        sharper.append(gain - bounds.sharp_monotonic_gap(0.0, shift, *x.scale))
    best = np.max(sharper, axis=0)
    surplus = x.model_return_old + best - bounds.sharp_monotonic_gap(x.model_error, 0.0, *x.scale)
    return (
        np.max(shares, axis=0),
        np.max(printed, axis=0) > tolerance,
        best > tolerance,
        (best > tolerance) & (surplus > x.return_old + tolerance),
    )


def admissions(
    worlds: int,
    seed: int,
    knowledge: monotonic.Knowledge = "exact",
    over_time: monotonic.OverTime = "mean",
) -> list[Admissions]:
    """Algorithm 1 in random worlds of 4 states and 2 actions, spread over discounts and amounts of data."""
    share = -(-worlds // (len(DISCOUNTS) * len(TRANSITIONS)))
    found: list[Admissions] = []
    for discount in DISCOUNTS:
        for transitions in TRANSITIONS:
            rng = np.random.default_rng([seed, round(1000 * discount), transitions])
            mdp = tabular.random_mdp(rng, 4, 2, np.full(share, discount), concentration=0.5)
            run = list(monotonic.improve(rng, mdp, transitions, EPOCHS, 1.0, knowledge, over_time))
            admitted = np.stack([epoch.admitted for epoch in run])
            fell = np.stack([epoch.after < epoch.before for epoch in run])
            found.append(
                Admissions(
                    discount,
                    transitions,
                    knowledge,
                    over_time,
                    share,
                    first=float(admitted[0].mean()),
                    ever=float(admitted.any(0).mean()),
                    closed=_closed(mdp, run),
                    steps=int(admitted.sum()),
                    falls=int((admitted & fell).sum()),
                )
            )
    return found


def _closed(mdp: tabular.FiniteMDP, run: list[monotonic.Epoch]) -> float | None:
    moved = np.stack([epoch.admitted for epoch in run]).any(0)
    optimal = tabular.policy_return(mdp, tabular.optimal_policy(mdp))
    first, last = run[0].before, run[-1].after
    return float(((last - first)[moved] / (optimal - first)[moved]).mean()) if moved.any() else None


def _tally(claim: Claim, violations: int, ratios: PerWorld) -> Tally:
    finite = ratios[np.isfinite(ratios)]
    if not finite.size:
        return Tally(claim, ratios.size, violations, np.inf, (np.inf,) * len(QUANTILES))
    quantiles = tuple(float(value) for value in np.quantile(finite, QUANTILES))
    return Tally(claim, ratios.size, violations, float(finite.min()), quantiles)
