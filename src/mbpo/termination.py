"""Learned termination: where does an episode end, when nobody wrote it down?

A few small networks on (obs, action, next_obs). Ends are rare, so every batch is half ends; the odds that the networks
learn there are put back to those of the data before anything is decided. Ends are also simple: they depend on a height
or an angle, hardly ever on all there is to see, so an input costs something and the networks find out which they need
(docs/decisions/006-sparse-termination.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from mbpo.addresses import host_generator
from mbpo.buffer import Buffer, take
from mbpo.limits import COUNT, NOT_NEGATIVE, POSITIVE, PROPER_FRACTION, check_settings, require
from mbpo.nets import MLP, glorot_uniform, init_mlp
from mbpo.optimizer import adam, descend, init_optimizer
from mbpo.pytree import pytree
from mbpo.types import EnvSpec, Transition

METRICS = (
    "termination/updates",
    "termination/ends",
    "termination/holdout_nll",
    "termination/missed_fraction",
    "termination/false_fraction",
)

SCALE_ROWS = 4096
JUDGED_ROWS = 2048


@pytree
class Scale:
    """Mean and deviation of the inputs."""

    mean: Float[Array, " I"]
    std: Float[Array, " I"]


@pytree
class TerminationNetworks:
    """`log_odds` of an end in all real transitions: +∞ where all of them ended. `seen` is false until two ended, and
    then no end is predicted."""

    members: tuple[MLP, ...]
    optimizer: optax.OptState
    scale: Scale
    log_odds: Float[Array, ""]
    seen: Bool[Array, ""]


@dataclass(frozen=True)
class TerminationModel:
    """The networks that learn termination, and how they are fitted."""

    members: int = 3
    """Networks; their probabilities are averaged."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    input_sparsity: float = 0.01
    """Price of an input: weight of the group lasso, Σ over inputs of the norm of what leads from it."""
    learning_rate: float = 3e-3
    """Adam's step size."""
    batch_size: int = 256
    """Rows in a gradient step, half of them ends; an even number."""
    round_updates: int = 100
    """Gradient steps between two looks at the holdout rows."""
    max_rounds: int = 20
    """A fit has at most so many rounds."""
    patience: int = 6
    """A fit ends after so many rounds in a row without a better holdout likelihood."""
    holdout_fraction: float = 0.2
    """Share of the ends, and of the other rows, that judge and are not trained on."""

    def __post_init__(self) -> None:
        check_settings(
            self,
            members=COUNT,
            hidden_sizes=COUNT,
            input_sparsity=NOT_NEGATIVE,
            learning_rate=POSITIVE,
            batch_size=COUNT,
            round_updates=COUNT,
            max_rounds=COUNT,
            patience=COUNT,
            holdout_fraction=PROPER_FRACTION,
        )
        require(
            self.batch_size % 2 == 0,
            f"batch_size of TerminationModel is {self.batch_size}, and half of it are ends",
            "make it even",
        )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TerminationNetworks:
        """Networks that have seen no end."""
        inputs = 2 * spec.obs_size + spec.action_size
        sizes = (inputs, *self.hidden_sizes, 1)
        members = tuple(
            init_mlp(k, sizes, [glorot_uniform] * (len(sizes) - 1)) for k in jax.random.split(key, self.members)
        )
        return TerminationNetworks(
            members,
            init_optimizer(adam(self.learning_rate), members),
            Scale(jnp.zeros(inputs), jnp.ones(inputs)),
            log_odds=jnp.float32(0.0),
            seen=jnp.bool_(False),
        )

    def fit(
        self, networks: TerminationNetworks, buffer: Buffer[Transition], key: Key[Array, ""]
    ) -> tuple[TerminationNetworks, Mapping[str, int | float | None]]:
        """The networks after one fit to the rows alive in the buffer, and what their holdout rows say of them.

        Which rows are held out depends on what is in them, and changes little from fit to fit: the weights carry over,
        and rows that they were trained on once could not judge them.

        With fewer than two ends, or than two other rows, there is nothing to tell apart: either no end is predicted
        from then on, or always one.
        """
        rng = host_generator(key)
        ended = ends_by_age(buffer)
        order = np.argsort(np.asarray(digests(buffer))[: len(ended)], kind="stable").astype(np.int32)
        ends, others = order[ended[order]], order[~ended[order]]
        untaught = dict.fromkeys(METRICS) | {"termination/updates": 0, "termination/ends": len(ends)}
        if len(ends) < 2:
            return networks, untaught
        if len(others) < 2:
            return replace(networks, log_odds=jnp.float32(jnp.inf), seen=jnp.bool_(True)), untaught
        log_odds = jnp.float32(np.log(len(ends) / len(others)))
        held_ends, held_others = (max(1, int(self.holdout_fraction * len(rows))) for rows in (ends, others))
        holdout = ends[:held_ends], others[:held_others]
        ends, others = ends[held_ends:], others[held_others:]

        both = np.concatenate([rng.choice(of, SCALE_ROWS // 2) for of in (ends, others)])
        scale = input_scale(buffer, jnp.asarray(both))
        learner = TerminationNetworks(networks.members, networks.optimizer, scale, log_odds, jnp.bool_(True))
        best, verdict, idle, rounds = learner, None, 0, 0
        while rounds < self.max_rounds and idle < self.patience:
            shape = (self.round_updates, self.members, self.batch_size // 2)
            ages = np.concatenate([rng.choice(ends, shape), rng.choice(others, shape)], axis=-1)
            learner = train_round(self, learner, buffer, jnp.asarray(ages))
            rounds += 1
            now = judge(learner, buffer, *holdout)
            if verdict is None or now["termination/holdout_nll"] < verdict["termination/holdout_nll"]:
                best, verdict, idle = learner, now, 0
            else:
                idle += 1
        assert verdict is not None
        counts = {"termination/updates": rounds * self.round_updates, "termination/ends": int(ended.sum())}
        return best, counts | verdict


def predicts_end(
    networks: TerminationNetworks,
    obs: Float[Array, "*B O"],
    action: Float[Array, "*B A"],
    next_obs: Float[Array, "*B O"],
) -> Bool[Array, "*B"]:
    """True where an end is likelier than not; nowhere if none was ever seen."""
    return networks.seen & (end_probability(networks, obs, action, next_obs) > 0.5)


def end_probability(
    networks: TerminationNetworks,
    obs: Float[Array, "*B O"],
    action: Float[Array, "*B A"],
    next_obs: Float[Array, "*B O"],
) -> Float[Array, "*B"]:
    """P(terminated | obs, action, next_obs) at the odds of the data, averaged over members."""
    x = inputs(networks.scale, obs, action, next_obs)
    odds = jnp.stack([member(x)[..., 0] for member in networks.members]) + networks.log_odds
    return jnp.mean(jax.nn.sigmoid(odds), axis=0)


def inputs(
    scale: Scale, obs: Float[Array, "*B O"], action: Float[Array, "*B A"], next_obs: Float[Array, "*B O"]
) -> Float[Array, "*B I"]:
    """(obs, action, next_obs) at mean 0 and deviation 1."""
    x = jnp.concatenate([obs, action, next_obs], axis=-1)
    mean, std = (jnp.broadcast_to(row, x.shape) for row in (scale.mean, scale.std))
    return (x - mean) / std


def ends_by_age(buffer: Buffer[Transition]) -> np.ndarray:
    """For every row alive, the newest first: did the episode end there?"""
    ages = np.arange(int(buffer.size))
    place = (int(buffer.head) - 1 - ages) % buffer.capacity
    return np.asarray(buffer.storage.terminated)[place]


@jax.jit
def digests(buffer: Buffer[Transition]) -> UInt32[Array, " N"]:
    """A number for every row by age, spread over all 32 bits, that depends on the row's inputs alone."""
    rows = take(buffer, jnp.arange(buffer.capacity))
    bits = jax.lax.bitcast_convert_type(jnp.concatenate([rows.obs, rows.action, rows.next_obs], axis=-1), jnp.uint32)
    odd = 2 * jnp.arange(bits.shape[-1], dtype=jnp.uint32) + jnp.uint32(0x9E3779B1)
    mixed = jnp.sum(bits * odd[None, :], axis=-1, dtype=jnp.uint32)
    mixed = (mixed ^ (mixed >> jnp.uint32(16))) * jnp.uint32(0x45D9F3B)
    return mixed ^ (mixed >> jnp.uint32(16))


@jax.jit
def input_scale(buffer: Buffer[Transition], ages: Int[Array, " B"]) -> Scale:
    """Mean and deviation of the inputs over these rows; a deviation below 1e-12 counts as 1."""
    rows = take(buffer, ages)
    x = jnp.concatenate([rows.obs, rows.action, rows.next_obs], axis=-1)
    # Counted from one of the rows, so that a column that never changes has a deviation of exactly 0 in float32.
    origin = x[0]
    x = x - origin[None, :]
    std = jnp.std(x, axis=0)
    return Scale(origin + jnp.mean(x, axis=0), jnp.where(std < 1e-12, 1.0, std))


@partial(jax.jit, static_argnums=0)
def train_round(
    model: TerminationModel,
    networks: TerminationNetworks,
    buffer: Buffer[Transition],
    ages: Int[Array, "C M B"],
) -> TerminationNetworks:
    """The networks after one gradient step a row of `ages`; in each batch the first half are ends."""

    def step(
        carry: tuple[tuple[MLP, ...], optax.OptState], ages: Int[Array, "M B"]
    ) -> tuple[tuple[tuple[MLP, ...], optax.OptState], None]:
        members, optimizer = carry
        gradient = jax.grad(termination_loss, argnums=1)(model, members, networks.scale, take(buffer, ages))
        return descend(adam(model.learning_rate), gradient, optimizer, members), None

    (members, optimizer), _ = jax.lax.scan(step, (networks.members, networks.optimizer), ages)
    return TerminationNetworks(members, optimizer, networks.scale, networks.log_odds, networks.seen)


def termination_loss(
    model: TerminationModel, members: tuple[MLP, ...], scale: Scale, rows: Transition
) -> Float[Array, ""]:
    """The balanced loss, and the price of the inputs that the members look at."""
    return balanced_loss(members, scale, rows) + model.input_sparsity * input_price(members)


def input_price(members: tuple[MLP, ...]) -> Float[Array, ""]:
    """Σ over members and inputs of ‖weights from that input‖, which pulls those of a useless one to 0 together."""
    # The small number keeps the gradient finite at 0.
    norms = [jnp.sqrt(jnp.sum(jnp.square(member.layers[0].weight), axis=1) + 1e-12) for member in members]
    return jnp.sum(jnp.stack(norms))


def balanced_loss(members: tuple[MLP, ...], scale: Scale, rows: Transition) -> Float[Array, ""]:
    """Σ over members of the mean −log P on rows of their own (M, B), the first half ends and the second not."""
    x = inputs(scale, rows.obs, rows.action, rows.next_obs)
    is_end = jnp.arange(x.shape[1]) < x.shape[1] // 2
    odds = [member(x[m])[:, 0] for m, member in enumerate(members)]
    return jnp.sum(jnp.stack([jnp.mean(jax.nn.softplus(jnp.where(is_end, -o, o))) for o in odds]))


def judge(
    networks: TerminationNetworks, buffer: Buffer[Transition], ends: np.ndarray, others: np.ndarray
) -> dict[str, float]:
    """How the networks do on the holdout rows: ends missed, false ends, and the likelihood at the odds of the data."""
    end_nll, found = judge_rows(networks, buffer, *padded(ends))
    other_nll, false = judge_rows(networks, buffer, *padded(others))
    share = 1.0 / (1.0 + float(np.exp(-networks.log_odds)))
    return {
        "termination/holdout_nll": share * float(end_nll[0]) + (1.0 - share) * float(other_nll[1]),
        "termination/missed_fraction": 1.0 - float(found),
        "termination/false_fraction": float(false),
    }


def padded(ages: np.ndarray) -> tuple[Int[Array, " B"], Int[Array, ""]]:
    """At most `JUDGED_ROWS` ages in an array of that size, and how many they are."""
    index = np.zeros(JUDGED_ROWS, np.int32)
    count = min(len(ages), JUDGED_ROWS)
    index[:count] = ages[:count]
    return jnp.asarray(index), jnp.int32(count)


@jax.jit
def judge_rows(
    networks: TerminationNetworks, buffer: Buffer[Transition], ages: Int[Array, " B"], count: Int[Array, ""]
) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    """Over the first `count` rows: mean −log P(end) and −log P(no end), and the share predicted to end."""
    rows = take(buffer, ages)
    counts = jnp.arange(ages.shape[0]) < count
    probability = end_probability(networks, rows.obs, rows.action, rows.next_obs)
    nll = -jnp.log(jnp.clip(jnp.stack([probability, 1.0 - probability]), 1e-7, 1.0))
    total = count.astype(jnp.float32)
    ends = jnp.sum(jnp.where(counts, probability > 0.5, False)).astype(jnp.float32)
    return jnp.sum(jnp.where(counts[None, :], nll, 0.0), axis=-1) / total, ends / total
