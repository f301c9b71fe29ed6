"""Fitting the ensemble to all real transitions, with the early stop that the paper's release uses.

Which rows go into which step is drawn on the host (a few random permutations an epoch); everything else is compiled
once, for fixed shapes, whatever the number of rows. The host looks at the results between epochs only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from mbpo.addresses import host_generator
from mbpo.buffer import Buffer, take
from mbpo.compiler import NO_YNNPACK, options_for_one
from mbpo.model import (
    Ensemble,
    InputScale,
    Model,
    Networks,
    likelihood_loss,
    member_errors,
    predict,
    regularizer,
    target,
)
from mbpo.nets import MLP
from mbpo.optimizer import adam, descend
from mbpo.pytree import pytree
from mbpo.types import Interrupted, Transition

CHUNK = 32
"""Gradient steps in one call of compiled code: an epoch is as many calls as its rows need."""

BLOCK = 1024
"""Rows judged at once."""


@dataclass(frozen=True)
class FitReport:
    """One fit as numbers: a row of `fits.jsonl`."""

    rows: int
    holdout_rows: int
    epochs: int
    updates: int
    holdout_mse: tuple[float, ...]
    holdout_nll: tuple[float, ...]
    elites: tuple[int, ...]


def fit(
    model: Model,
    ensemble: Ensemble,
    buffer: Buffer[Transition],
    key: Key[Array, ""],
    interrupted: Callable[[], bool] = lambda: False,
) -> tuple[Ensemble, FitReport]:
    """The ensemble after one fit to the rows alive in the buffer.

    Raises `Interrupted` at the end of an epoch when asked to stop; `ensemble` is as it was then.
    """
    rng = host_generator(key)
    train, holdout = split(rng, int(buffer.size), model)
    bootstrap = train[rng.integers(len(train), size=(model.members, len(train)))]
    scale = input_scale(buffer, padded_mask(train, buffer.capacity))
    learner = FitLearner(*jax.tree.map(jnp.copy, (ensemble.networks, ensemble.optimizer)))
    best = jax.tree.map(jnp.copy, learner.networks.members)
    stop = EarlyStop(model)
    updates, budget = 0, model.budget(int(ensemble.fits))

    while not stop.finished and updates < budget:
        order = rng.permuted(bootstrap, axis=1)
        learner, done = train_epoch(model, learner, scale, buffer, order, budget - updates)
        updates += done
        improved = stop.judge(judge(learner.networks, scale, buffer, holdout)[0])
        best = keep_best(best, learner.networks.members, jnp.asarray(improved))
        if interrupted():
            raise Interrupted

    networks = Networks(best, learner.networks.max_log_var, learner.networks.min_log_var)
    mse, nll = judge(networks, scale, buffer, holdout)
    elites = np.argsort(mse, kind="stable")[: model.elites]
    report = FitReport(
        rows=len(train) + len(holdout),
        holdout_rows=len(holdout),
        epochs=stop.epochs,
        updates=updates,
        holdout_mse=tuple(mse.tolist()),
        holdout_nll=tuple(nll.tolist()),
        elites=tuple(elites.tolist()),
    )
    fitted = Ensemble(
        networks,
        scale,
        learner.optimizer,
        elites=jnp.asarray(elites, jnp.int32),
        updates=ensemble.updates + updates,
        fits=ensemble.fits + 1,
    )
    return fitted, report


def split(rng: np.random.Generator, rows: int, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """The ages of the training rows and of the holdout rows, at least one: a fresh random split of two or more."""
    held_out = min(max(1, int(model.holdout_fraction * rows)), model.max_holdout)
    order = rng.permutation(rows).astype(np.int32)
    return order[held_out:], order[:held_out]


@dataclass
class EarlyStop:
    """Decides between epochs when a fit has converged.

    A member improves when its holdout error falls more than `improvement` below that of its last snapshot; the fit
    ends at the epoch that makes more than `patience` in a row without any improvement.
    """

    model: Model
    epochs: int = 0
    idle: int = 0
    best: np.ndarray | None = None

    def judge(self, error: np.ndarray) -> np.ndarray:
        """Which members improved in the epoch that gave these errors. The first epoch is always one."""
        best = np.full_like(error, np.inf) if self.best is None else self.best
        improved = np.isfinite(error) & (error < best * (1.0 - self.model.improvement))
        self.best = np.where(improved, error, best)
        self.epochs += 1
        self.idle = 0 if improved.any() else self.idle + 1
        return improved

    @property
    def finished(self) -> bool:
        return self.idle > self.model.patience


@pytree
class FitLearner:
    """What a gradient step of the ensemble changes."""

    networks: Networks
    optimizer: optax.OptState


def train_epoch(
    model: Model,
    learner: FitLearner,
    scale: InputScale,
    buffer: Buffer[Transition],
    order: np.ndarray,
    max_updates: int | float,
) -> tuple[FitLearner, int]:
    """The learner after one pass over each member's rows in its own order (E, N), and the number of steps."""
    members, rows = order.shape
    steps = -(-rows // model.batch_size)
    padded = np.zeros((members, -(-steps // CHUNK) * CHUNK * model.batch_size), np.int32)
    padded[:, :rows] = order
    batches = padded.reshape(members, -1, model.batch_size).swapaxes(0, 1)
    steps = int(min(steps, max_updates))
    for begin in range(0, steps, CHUNK):
        ages = jnp.asarray(batches[begin : begin + CHUNK])
        here, left = min(CHUNK, steps - begin), rows - begin * model.batch_size
        learner = train_chunk(model, learner, scale, buffer, ages, jnp.int32(here), jnp.int32(left))
    return learner, steps


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=options_for_one(NO_YNNPACK))
def train_chunk(
    model: Model,
    learner: FitLearner,
    scale: InputScale,
    buffer: Buffer[Transition],
    ages: Int[Array, "C E B"],
    steps: Int[Array, ""],
    rows: Int[Array, ""],
) -> FitLearner:
    """The learner after the first `steps` of the C minibatches; of their rows, the first `rows` count."""

    def step(i: Int[Array, ""], learner: FitLearner) -> FitLearner:
        minibatch = take(buffer, ages[i])
        weight = (jnp.arange(model.batch_size) + i * model.batch_size < rows).astype(jnp.float32)
        gradient = jax.grad(fit_loss, argnums=1)(model, learner.networks, scale, minibatch, weight)
        optimizer = adam(model.learning_rate)
        return FitLearner(*descend(optimizer, gradient, learner.optimizer, learner.networks))

    return jax.lax.fori_loop(0, steps, step, learner)


def fit_loss(
    model: Model, networks: Networks, scale: InputScale, rows: Transition, weight: Float[Array, " B"]
) -> Float[Array, ""]:
    """Σ over members of the likelihood loss on their own rows (E, B), and the regulariser."""
    y = target(rows)
    losses = [
        likelihood_loss(predict(member, networks, scale, rows.obs[e], rows.action[e]), y[e], weight)
        for e, member in enumerate(networks.members)
    ]
    return jnp.sum(jnp.stack(losses)) + regularizer(networks, model.weight_decay)


def judge(
    networks: Networks, scale: InputScale, buffer: Buffer[Transition], ages: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each member's mean squared error and negative log-likelihood on the rows of these ages. Waits for the device."""
    totals = np.zeros((2, len(networks.members)), np.float32)
    for begin in range(0, len(ages), BLOCK):
        block = ages[begin : begin + BLOCK]
        index = np.zeros(BLOCK, np.int32)
        index[: len(block)] = block
        totals += np.asarray(block_errors(networks, scale, buffer, jnp.asarray(index), jnp.int32(len(block))))
    mse, nll = totals / np.float32(len(ages))
    return mse, nll


@jax.jit
def block_errors(
    networks: Networks, scale: InputScale, buffer: Buffer[Transition], ages: Int[Array, " B"], count: Int[Array, ""]
) -> Float[Array, "2 E"]:
    """The squared errors and negative log-likelihoods of `member_errors`, summed over the first `count` rows."""
    per_row = member_errors(networks, scale, take(buffer, ages))
    return jnp.sum(jnp.where(jnp.arange(ages.shape[0])[None, None, :] < count, per_row, 0.0), axis=-1)


def padded_mask(ages: np.ndarray, capacity: int) -> Bool[Array, " N"]:
    """True at the ages given."""
    mask = np.zeros(capacity, bool)
    mask[ages] = True
    return jnp.asarray(mask)


@jax.jit
def input_scale(buffer: Buffer[Transition], mask: Bool[Array, " N"]) -> InputScale:
    """Mean and deviation of the inputs over the rows whose age is marked; a deviation below 1e-12 counts as 1.

    Summed block after block, where a block without marks adds exactly 0: so the bits do not depend on the capacity,
    which is another one when a run is resumed to a later end.
    """
    blocks = -(-buffer.capacity // BLOCK)
    ages = jnp.arange(blocks * BLOCK).reshape(blocks, BLOCK)
    weights = jnp.pad(mask, (0, blocks * BLOCK - buffer.capacity)).astype(jnp.float32).reshape(blocks, BLOCK)

    def inputs(age: Int[Array, "*B"]) -> Float[Array, "*B I"]:
        rows = take(buffer, age)
        return jnp.concatenate([rows.obs, rows.action], axis=-1)

    # Counted from one of the rows, so that a column that never changes has a deviation of exactly 0 in float32.
    origin = inputs(jnp.argmax(mask))

    def average(of: Callable[[Float[Array, "B I"]], Float[Array, "B I"]]) -> Float[Array, " I"]:
        def add(
            total: Float[Array, " I"], block: tuple[Int[Array, " B"], Float[Array, " B"]]
        ) -> tuple[Float[Array, " I"], None]:
            age, weight = block
            return total + jnp.sum(of(inputs(age) - origin[None, :]) * weight[:, None], axis=0), None

        return jax.lax.scan(add, jnp.zeros_like(origin), (ages, weights))[0] / jnp.sum(weights)

    mean = average(lambda x: x)
    std = jnp.sqrt(average(lambda x: jnp.square(x - mean[None, :])))
    return InputScale(origin + mean, jnp.where(std < 1e-12, 1.0, std))


@partial(jax.jit, donate_argnums=0)
def keep_best(best: tuple[MLP, ...], members: tuple[MLP, ...], improved: Bool[Array, " E"]) -> tuple[MLP, ...]:
    """Snapshots: the member where it improved, its last snapshot elsewhere."""
    return tuple(
        jax.tree.map(lambda old, new, better=improved[e]: jnp.where(better, new, old), kept, member)
        for e, (kept, member) in enumerate(zip(best, members, strict=True))
    )
