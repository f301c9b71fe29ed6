"""The imagined rollout against its limit: one step of all rollouts that MBPO makes after a fit."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from mbpo.algorithms.mbpo import MBPO, Dreamer, dream_step, never, pieces_of
from mbpo.algorithms.sac import draw
from mbpo.bench.products import Net, Product, Workload
from mbpo.bench.report import Line, Report
from mbpo.bench.synthetic import smooth_buffer
from mbpo.bench.timing import interleave
from mbpo.buffer import init_buffer
from mbpo.model import elite_members
from mbpo.types import EnvSpec, blank_transition


def measure(mbpo: MBPO, spec: EnvSpec, rounds: int, rows: int) -> Report:
    """Drawing the starts, and one step of policy and model from each, stored, against the products that it needs."""
    batch = mbpo.rollouts_per_step * mbpo.fit_every
    pieces = pieces_of(batch)
    limit = workload(mbpo, spec, batch // pieces)
    contestants = {"limit": limit.contestant(pieces), "draw + dream_step": one_step(mbpo, spec, batch, rows)}
    timings = interleave(contestants, rounds)
    return Report(
        bench="rollout",
        task=spec.name,
        title=(
            f"imagined rollout: one step of {batch:,} rows, {spec.obs_size} observations, {spec.action_size} actions, "
            f"{mbpo.model.elites} elites"
        ),
        unit="step of all rollouts",
        gflop=pieces * limit.flop / 1e9,
        lines=tuple(Line(name, timing) for name, timing in timings.items()),
    )


def one_step(mbpo: MBPO, spec: EnvSpec, batch: int, rows: int) -> Callable[[], object]:
    """A call of what MBPO does after a fit, for k = 1, from so many real transitions."""
    key = jax.random.key(0)
    real = smooth_buffer(spec, key, rows)
    ensemble = mbpo.model.init(spec, key)
    dreamer = Dreamer(elite_members(ensemble), ensemble, None, mbpo.sac.init_learner(spec, key).weights.actor)
    imagined = init_buffer(blank_transition(spec), batch)

    def step() -> None:
        nonlocal imagined
        starts, alive = draw(real, key, (batch,)), jnp.ones(batch, bool)
        terminal, begin, window = spec.terminal or never, jnp.int32(0), jnp.int32(batch)
        imagined, *_, tally = dream_step(terminal, dreamer, imagined, starts.obs, alive, begin, window, key)
        jax.block_until_ready((imagined, tally))

    return step


def workload(mbpo: MBPO, spec: EnvSpec, piece: int) -> Workload:
    """The products of one step of one piece of the rollouts.

    Those that only measure the disagreement between members, on a few rows, are not among them.
    """
    obs, action = spec.obs_size, spec.action_size
    actor = Net("actor", (obs, *mbpo.sac.hidden_sizes, 2 * action))
    sizes = (obs + action, *mbpo.model.hidden_sizes, 2 * (1 + obs))
    elites = [Net(f"elite{i}", sizes) for i in range(mbpo.model.elites)]
    inputs = {"obs": (piece, obs), "rows": (-(-piece // len(elites)), obs + action)}
    for net in (actor, *elites):
        inputs |= net.weights
    return Workload(inputs, tuple(products_of_step(actor, elites)))


def products_of_step(actor: Net, elites: list[Net]) -> Iterator[Product]:
    """The policy on every row, and each elite on its share."""
    yield from actor.forward("obs", "action")
    for elite in elites:
        yield from elite.forward("rows", elite.name)
