"""Proximal Policy Optimization: on-policy and model-free, a system to compare with."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from mbpo.distributions import DiagonalGaussian
from mbpo.errors import UsageError
from mbpo.losses import clipped_policy_loss, clipped_value_loss
from mbpo.nets import MLP, init_mlp, orthogonal
from mbpo.normalizer import RunningMoments, init_moments
from mbpo.optimizer import descend, init_optimizer
from mbpo.pytree import pytree
from mbpo.returns import advantages
from mbpo.schedule import ramp
from mbpo.types import EnvSpec, Host, Metrics, Transition, blank_transition

METRICS = ("approximate_kl", "clip_fraction", "entropy", "explained_variance", "policy_loss", "value_loss")


@pytree
class Weights:
    """Policy and value have networks of their own; the log-deviation is one free vector."""

    actor: MLP
    log_std: Float[Array, " A"]
    critic: MLP


@pytree
class Moments:
    """The running scales of observations and of the discounted return, which rewards are divided by."""

    obs: RunningMoments
    returns: RunningMoments
    discounted_return: Float[Array, ""]
    """Of the episode so far, γ to the newest reward's 0; 0 between episodes."""


@pytree
class Rollout:
    """The steps since the last update, scaled as the policy saw them; `starts` marks a row that does not follow
    on the one before."""

    rows: Transition
    starts: Bool[Array, " H"]
    length: Int[Array, ""]


@pytree
class PPOState:
    weights: Weights
    optimizer: optax.OptState
    moments: Moments
    rollout: Rollout
    last_next_obs: Float[Array, " O"]
    updates: Int[Array, ""]


@dataclass(frozen=True)
class PPO:
    """Proximal Policy Optimization (Schulman et al. 2017), as OpenAI baselines' ppo2 runs it on MuJoCo.

    Deviation: a time limit is bootstrapped with the value of the last observation, not taken for a terminal state.
    """

    steps_per_update: int = 2048
    """Real steps between two updates."""
    passes: int = 10
    """Passes over those steps in each update."""
    batch_size: int = 64
    """Rows in each gradient step."""
    anneal_steps: int = 1_000_000
    """The real step at which the learning rate reaches 0: part of the result, whatever the length of the run."""
    learning_rate: float = 3e-4
    """Adam's step size at the start."""
    discount: float = 0.99
    """γ."""
    trace_decay: float = 0.95
    """λ of the generalised advantage estimates."""
    clip: float = 0.2
    """How far the probability ratio, and the value, may move before their losses are cut off."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus."""
    max_gradient_norm: float = 0.5
    """The gradient of all weights together is cut to this norm."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of policy and value (tanh)."""

    @property
    def random_steps(self) -> int:
        return 0

    @property
    def metric_names(self) -> tuple[str, ...]:
        return METRICS

    def init(self, spec: EnvSpec, steps: int, key: Key[Array, ""]) -> PPOState:
        if self.steps_per_update % self.batch_size != 0:
            raise UsageError(
                f"PPO's steps_per_update is {self.steps_per_update} and its batch_size {self.batch_size}; "
                "take a batch_size that divides it."
            )
        actor_key, critic_key = jax.random.split(key)
        hidden = [orthogonal(2.0**0.5)] * len(self.hidden_sizes)
        weights = Weights(
            init_mlp(actor_key, (spec.obs_size, *self.hidden_sizes, spec.action_size), [*hidden, orthogonal(0.01)]),
            jnp.zeros(spec.action_size),
            init_mlp(critic_key, (spec.obs_size, *self.hidden_sizes, 1), [*hidden, orthogonal(1.0)]),
        )
        rows = jax.tree.map(
            lambda leaf: jnp.zeros((self.steps_per_update, *leaf.shape), leaf.dtype), blank_transition(spec)
        )
        return PPOState(
            weights,
            init_optimizer(self._adam, weights),
            Moments(init_moments((spec.obs_size,)), init_moments(()), jnp.zeros(())),
            Rollout(rows, jnp.zeros(self.steps_per_update, bool), jnp.int32(0)),
            last_next_obs=jnp.full(spec.obs_size, jnp.nan, jnp.float32),
            updates=jnp.int32(0),
        )

    def act(
        self, state: PPOState, obs: Float[Array, "*B O"], key: Key[Array, ""], explore: bool
    ) -> Float[Array, "*B A"]:
        return choose(state.weights, state.moments.obs, obs, key, explore)

    def prepare(self, state: PPOState, step: int, key: Key[Array, ""], host: Host) -> PPOState:
        return state

    def value(self, state: PPOState, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
        return estimate(state.weights, state.moments, obs)

    def observe(self, state: PPOState, transition: Transition, host: Host) -> PPOState:
        return self._record(state, transition)

    def update(self, state: PPOState, step: int, key: Key[Array, ""], host: Host) -> tuple[PPOState, Metrics]:
        if step % self.steps_per_update != 0:
            return state, {}
        with host.clock("policy"):
            # Reference: the rate is annealed from one batch to the next, beginning at its full value.
            begun = step - self.steps_per_update
            rate = ramp(begun, start=0, end=self.anneal_steps, low=self.learning_rate, high=0.0)
            state, metrics = self._improve(state, jnp.float32(rate), key)
            jax.block_until_ready(metrics)
        return state, metrics

    def counts(self, state: PPOState) -> tuple[int, int]:
        return int(state.updates), 0

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _record(self, state: PPOState, transition: Transition) -> PPOState:
        """The state with one more row, scaled by the moments of its moment.

        A row starts an episode where its observation is not the one that the row before arrived at. This also sees
        the episodes that ended without a mark, because their last transition was corrupt and dropped.
        """
        starts = jnp.any(transition.obs != state.last_next_obs)
        over = transition.terminated | transition.truncated
        before = state.moments.obs
        seen = jax.tree.map(lambda new, old: jnp.where(starts, new, old), before.add(transition.obs), before)
        after = seen.add(transition.next_obs)

        running = jnp.where(starts, 0.0, self.discount * state.moments.discounted_return) + transition.reward
        returns = state.moments.returns.add(running)
        row = Transition(
            scale_obs(before, transition.obs),
            transition.action,
            jnp.clip(returns.scale(transition.reward), -10.0, 10.0),
            scale_obs(after, transition.next_obs),
            transition.terminated,
            transition.truncated,
        )
        rollout = state.rollout
        rows = jax.tree.map(lambda leaf, new: leaf.at[rollout.length].set(new), rollout.rows, row)
        return PPOState(
            state.weights,
            state.optimizer,
            Moments(after, returns, jnp.where(over, 0.0, running)),
            Rollout(rows, rollout.starts.at[rollout.length].set(starts), rollout.length + 1),
            transition.next_obs,
            state.updates,
        )

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _improve(
        self, state: PPOState, learning_rate: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PPOState, Metrics]:
        """The state after all passes over the rollout, which is then empty."""
        rows, weights = state.rollout.rows, state.weights
        value, next_value = weights.critic(rows.obs, jnp.tanh)[:, 0], weights.critic(rows.next_obs, jnp.tanh)[:, 0]
        follows = jnp.append(~state.rollout.starts[1:], False)
        advantage = advantages(
            rows.reward,
            value,
            next_value,
            rows.terminated,
            ends=rows.terminated | rows.truncated | ~follows,
            discount=self.discount,
            trace_decay=self.trace_decay,
        )
        batch = Batch(rows.obs, rows.action, policy(weights, rows.obs).log_prob(rows.action), value, advantage)

        def step(
            carry: tuple[Weights, optax.OptState], index: Int[Array, " B"]
        ) -> tuple[tuple[Weights, optax.OptState], Metrics]:
            weights, optimizer = carry
            minibatch = jax.tree.map(lambda leaf: leaf[index], batch)
            gradient, metrics = jax.grad(self.loss, has_aux=True)(weights, minibatch)
            direction, optimizer = descend(self._adam, gradient, optimizer, jax.tree.map(jnp.zeros_like, weights))
            weights = jax.tree.map(lambda w, d: w + learning_rate * d, weights, direction)
            return (weights, optimizer), metrics

        order = jax.vmap(lambda k: jax.random.permutation(k, self.steps_per_update))(
            jax.random.split(key, self.passes)
        ).reshape(-1, self.batch_size)
        (weights, optimizer), metrics = jax.lax.scan(step, (weights, state.optimizer), order)
        metrics = jax.tree.map(jnp.mean, metrics) | {
            # Where all returns are alike there is nothing to explain, and nothing to divide by.
            "explained_variance": 1.0 - jnp.var(advantage) / jnp.maximum(jnp.var(advantage + value), 1e-8)
        }
        rollout = Rollout(rows, state.rollout.starts, jnp.int32(0))
        updates = state.updates + order.shape[0]
        return PPOState(weights, optimizer, state.moments, rollout, state.last_next_obs, updates), metrics

    def loss(self, weights: Weights, batch: "Batch") -> tuple[Float[Array, ""], Metrics]:
        """L_policy + w_V L_value − w_H H, with the advantages of the minibatch at mean 0 and deviation 1."""
        distribution = policy(weights, batch.obs)
        log_prob = distribution.log_prob(batch.action)
        advantage = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
        loss_policy = clipped_policy_loss(log_prob, batch.log_prob, advantage, self.clip)
        loss_value = clipped_value_loss(
            weights.critic(batch.obs, jnp.tanh)[:, 0], batch.value, batch.advantage + batch.value, self.clip
        )
        entropy = jnp.mean(distribution.entropy())
        log_ratio = log_prob - batch.log_prob
        ratio = jnp.exp(log_ratio)
        return loss_policy + self.value_weight * loss_value - self.entropy_weight * entropy, {
            "approximate_kl": jnp.mean(ratio - 1.0 - log_ratio),
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1.0) > self.clip, dtype=jnp.float32),
            "entropy": entropy,
            "policy_loss": loss_policy,
            "value_loss": loss_value,
        }

    @property
    def _adam(self) -> optax.GradientTransformation:
        """The direction of a step; its length is the annealed learning rate."""
        return optax.chain(
            optax.clip_by_global_norm(self.max_gradient_norm), optax.scale_by_adam(eps=1e-5), optax.scale(-1.0)
        )


@pytree
class Batch:
    """What a gradient step needs of a row: under the old weights its log-probability and value."""

    obs: Float[Array, "B O"]
    action: Float[Array, "B A"]
    log_prob: Float[Array, " B"]
    value: Float[Array, " B"]
    advantage: Float[Array, " B"]


def scale_obs(moments: RunningMoments, obs: Float[Array, "*B O"]) -> Float[Array, "*B O"]:
    """The observation at mean 0 and deviation 1, cut at ±10."""
    return jnp.clip(moments.normalize(obs), -10.0, 10.0)


def policy(weights: Weights, scaled_obs: Float[Array, "*B O"]) -> DiagonalGaussian:
    """π(·|s) over raw actions, of which the environment sees the part inside [−1, 1]."""
    mean = weights.actor(scaled_obs, jnp.tanh)
    return DiagonalGaussian(mean, jnp.broadcast_to(weights.log_std, mean.shape))


@partial(jax.jit, static_argnames="explore")
def choose(
    weights: Weights, moments: RunningMoments, obs: Float[Array, "*B O"], key: Key[Array, ""], explore: bool
) -> Float[Array, "*B A"]:
    """A sampled action, or the mean."""
    distribution = policy(weights, scale_obs(moments, obs))
    if not explore:
        return distribution.mean
    return distribution.sample(jax.random.normal(key, distribution.mean.shape))


@jax.jit
def estimate(weights: Weights, moments: Moments, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
    """V(s) in units of the task's own rewards."""
    value = weights.critic(scale_obs(moments.obs, obs), jnp.tanh)[:, 0]
    return value * jnp.sqrt(moments.returns.variance)
