"""The learned world: an ensemble of networks, each a Gaussian over reward and change of observation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from mbpo.distributions import HALF_LOG_TWO_PI
from mbpo.limits import COUNT, FRACTION, NATURAL, NOT_NEGATIVE, POSITIVE, PROPER_FRACTION, check_settings, require
from mbpo.nets import MLP, init_mlp, truncated_normal, turning_product
from mbpo.optimizer import adam, init_optimizer
from mbpo.pytree import pytree
from mbpo.types import EnvSpec, Transition


@pytree
class Gaussian:
    """Mean and log-variance of (reward, next_obs − obs), the targets of the networks."""

    mean: Float[Array, "*B D"]
    log_var: Float[Array, "*B D"]


@pytree
class Networks:
    """What the gradient moves. The bounds of the log-variance are one row, shared by all members.

    The members are separate trees, not one with a leading axis: on a CPU seven products are faster than one batched.
    """

    members: tuple[MLP, ...]
    max_log_var: Float[Array, " D"]
    min_log_var: Float[Array, " D"]


@pytree
class InputScale:
    """Mean and deviation of (obs, action) over the training rows of the last fit."""

    mean: Float[Array, " I"]
    std: Float[Array, " I"]


@pytree
class Ensemble:
    """The model between two fits."""

    networks: Networks
    scale: InputScale
    optimizer: optax.OptState
    elites: Int[Array, " L"]
    updates: Int[Array, ""]
    fits: Int[Array, ""]


@dataclass(frozen=True)
class Model:
    """The dynamics model and how it is fitted.

    Reference: architecture, decay, early stop and elites are those of the released code.
    """

    members: int = 7
    """Networks in the ensemble (the paper's B)."""
    elites: int = 5
    """Members that imagine: those with the lowest holdout error."""
    hidden_sizes: tuple[int, ...] = (200, 200, 200, 200)
    """Widths of the hidden layers."""
    weight_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Decay of each layer's weights, the output layer last."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 256
    """Rows of each member in a gradient step."""
    holdout_fraction: float = 0.2
    """Share of the rows that judge the members and are not trained on."""
    max_holdout: int = 5000
    """At most so many of them."""
    improvement: float = 0.01
    """A member's holdout error must fall by this share to count as an improvement."""
    patience: int = 5
    """A fit ends after more than this many epochs in a row without any member's improvement."""
    max_updates_per_fit: int | None = None
    """A budget of gradient steps for one fit; none in the paper."""
    max_updates_first_fit: int | None = None
    """A budget for the first fit, which starts from nothing; by default that of every fit."""

    def __post_init__(self) -> None:
        check_settings(
            self,
            members=COUNT,
            elites=COUNT,
            hidden_sizes=COUNT,
            weight_decay=NOT_NEGATIVE,
            learning_rate=POSITIVE,
            batch_size=COUNT,
            holdout_fraction=PROPER_FRACTION,
            max_holdout=COUNT,
            improvement=FRACTION,
            patience=NATURAL,
            max_updates_per_fit=COUNT,
            max_updates_first_fit=COUNT,
        )
        require(
            self.elites <= self.members,
            f"elites of Model is {self.elites}, and there are {self.members} members",
            "take fewer elites or more members",
        )
        layers = len(self.hidden_sizes) + 1
        require(
            len(self.weight_decay) == layers,
            f"weight_decay of Model has {len(self.weight_decay)} entries, and its networks {layers} layers",
            "give one for each hidden layer and one for the output",
        )

    def budget(self, fits: int) -> int | float:
        """The gradient steps that a fit may take, after so many fits before it."""
        budget = self.max_updates_per_fit
        if fits == 0 and self.max_updates_first_fit is not None:
            budget = self.max_updates_first_fit
        return math.inf if budget is None else budget

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Ensemble:
        """An ensemble before its first fit."""
        inputs, outputs = spec.obs_size + spec.action_size, 1 + spec.obs_size
        sizes = (inputs, *self.hidden_sizes, 2 * outputs)
        initializers = [truncated_normal] * (len(sizes) - 1)
        networks = Networks(
            tuple(init_mlp(k, sizes, initializers) for k in jax.random.split(key, self.members)),
            max_log_var=jnp.full(outputs, 0.5, jnp.float32),
            min_log_var=jnp.full(outputs, -10.0, jnp.float32),
        )
        return Ensemble(
            networks,
            InputScale(jnp.zeros(inputs), jnp.ones(inputs)),
            init_optimizer(adam(self.learning_rate), networks),
            elites=jnp.arange(self.elites, dtype=jnp.int32),
            updates=jnp.int32(0),
            fits=jnp.int32(0),
        )


def target(rows: Transition) -> Float[Array, "*B D"]:
    """(reward, next_obs − obs): what the networks predict, not normalised."""
    return jnp.concatenate([rows.reward[..., None], rows.next_obs - rows.obs], axis=-1)


def predict(
    member: MLP,
    networks: Networks,
    scale: InputScale,
    obs: Float[Array, "B O"],
    action: Float[Array, "B A"],
) -> Gaussian:
    """One member's Gaussian, its log-variance softly clamped between the two bounds."""
    x = jnp.concatenate([obs, action], axis=-1)
    x = (x - scale.mean[None, :]) / scale.std[None, :]
    mean, raw = jnp.split(member(x, jax.nn.silu, turning_product), 2, axis=-1)
    high, low = networks.max_log_var[None, :], networks.min_log_var[None, :]
    log_var = high - softplus(high - raw)
    return Gaussian(mean, low + softplus(log_var - low))


def softplus(x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """log(1 + eˣ).

    By `log`, where `jax.nn.softplus` takes `log1p`: the processor computes several at a time, and of the digits of a
    result near 0, which this loses, none survives being added to a bound. A tenth of a gradient step on one core.
    """
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


def likelihood_loss(prediction: Gaussian, y: Float[Array, "B D"], weight: Float[Array, " B"]) -> Float[Array, ""]:
    """Mean over rows and dimensions of (μ − y)² e^(−log σ²) + log σ²; rows count by their weight.

    Reference: twice the negative log-likelihood, without its constant.
    """
    error = jnp.square(prediction.mean - y) * jnp.exp(-prediction.log_var) + prediction.log_var
    return jnp.sum(jnp.mean(error, axis=-1) * weight) / jnp.sum(weight)


def regularizer(networks: Networks, weight_decay: Sequence[float]) -> Float[Array, ""]:
    """Σ decay · ½‖W‖² over all layers of all members + 0.01 Σ max − 0.01 Σ min of the log-variance bounds."""
    total = 0.01 * (jnp.sum(networks.max_log_var) - jnp.sum(networks.min_log_var))
    for member in networks.members:
        for layer, decay in zip(member.layers, weight_decay, strict=True):
            total += 0.5 * decay * jnp.sum(jnp.square(layer.weight))
    return total


def imagine(
    elites: tuple[MLP, ...],
    networks: Networks,
    scale: InputScale,
    obs: Float[Array, "B O"],
    action: Float[Array, "B A"],
    key: Key[Array, ""],
) -> tuple[Float[Array, "B O"], Float[Array, " B"]]:
    """A sampled next observation and reward for every row, each from one elite chosen at random.

    Deviation: the release draws an elite for every row by itself and computes all of them. Here the rows are
    permuted and cut into equal groups, one an elite, so that each computes only its own.
    """
    rows, group = obs.shape[0], -(-obs.shape[0] // len(elites))
    order_key, noise_key = jax.random.split(key)
    order = jax.random.permutation(order_key, rows)
    groups = jnp.resize(order, (len(elites), group))
    predictions = [
        predict(member, networks, scale, obs[index], action[index])
        for member, index in zip(elites, groups, strict=True)
    ]
    grouped = jax.tree.map(lambda *parts: jnp.concatenate(parts)[:rows], *predictions)
    place = jnp.zeros(rows, jnp.int32).at[order].set(jnp.arange(rows, dtype=jnp.int32))
    prediction = jax.tree.map(lambda leaf: leaf[place], grouped)
    noise = jax.random.normal(noise_key, prediction.mean.shape)
    outcome = prediction.mean + jnp.exp(0.5 * prediction.log_var) * noise
    return obs + outcome[:, 1:], outcome[:, 0]


def elite_members(ensemble: Ensemble) -> tuple[MLP, ...]:
    """The elites' networks. Reads their indices: call it once a fit, not in compiled code."""
    return tuple(ensemble.networks.members[i] for i in ensemble.elites.tolist())


def disagreement(
    elites: tuple[MLP, ...],
    networks: Networks,
    scale: InputScale,
    obs: Float[Array, "B O"],
    action: Float[Array, "B A"],
) -> Float[Array, ""]:
    """The spread between members: the deviation of their means, averaged over rows and dimensions."""
    means = jnp.stack([predict(member, networks, scale, obs, action).mean for member in elites])
    return jnp.mean(jnp.std(means, axis=0))


def member_errors(networks: Networks, scale: InputScale, rows: Transition) -> Float[Array, "2 E B"]:
    """For each member and row, averaged over dimensions: the squared error, and the negative log-likelihood."""
    y = target(rows)
    square, nll = [], []
    for member in networks.members:
        prediction = predict(member, networks, scale, rows.obs, rows.action)
        error = jnp.square(prediction.mean - y)
        density = 0.5 * (error * jnp.exp(-prediction.log_var) + prediction.log_var) + HALF_LOG_TWO_PI
        square.append(jnp.mean(error, axis=-1))
        nll.append(jnp.mean(density, axis=-1))
    return jnp.stack([jnp.stack(square), jnp.stack(nll)])
