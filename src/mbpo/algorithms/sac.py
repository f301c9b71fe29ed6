"""Soft Actor-Critic with a learned temperature: the policy optimiser of MBPO, and a system to compare it with."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from mbpo.buffer import Buffer, init_buffer, insert_one, sample
from mbpo.distributions import TanhGaussian
from mbpo.limits import COUNT, FRACTION, NATURAL, POSITIVE, check_settings
from mbpo.losses import actor_loss, critic_loss, temperature_loss
from mbpo.nets import MLP, glorot_uniform, init_mlp, polyak
from mbpo.optimizer import adam, descend, init_optimizer
from mbpo.pytree import pytree
from mbpo.returns import td_target
from mbpo.types import EnvSpec, Host, Metrics, Obs, Transition, blank_transition

# Addresses below the key of an update. 0 and 1 are taken: `draw` splits the key itself in two, and splitting is
# folding in 0 and 1.
IMAGINED, NOISE = 2, 3

METRICS = ("actor_loss", "critic_loss", "entropy", "q", "temperature")


@pytree
class Weights:
    """What the gradient moves."""

    actor: MLP
    critics: tuple[MLP, MLP]
    log_temperature: Float[Array, ""]


@pytree
class Learner:
    """What an update changes: the weights, the critics' slow copy, and Adam's moments."""

    weights: Weights
    target_critics: tuple[MLP, MLP]
    optimizer: optax.OptState
    updates: Int[Array, ""]


@pytree
class SACState:
    learner: Learner
    buffer: Buffer[Transition]


@dataclass(frozen=True)
class SAC:
    """Soft Actor-Critic (Haarnoja et al. 2018) with twin critics and a learned temperature."""

    updates_per_step: int = 1
    """Gradient steps after every real step (G)."""
    target_entropy: float | None = None
    """The entropy that the temperature steers to, for actions in [−1, 1]; by default −(number of actions)."""
    random_steps: int = 1000
    """Uniformly random real steps before the policy acts and learns."""
    batch_size: int = 256
    """Rows in each gradient step."""
    discount: float = 0.99
    """γ."""
    learning_rate: float = 3e-4
    """Adam's step size for actor, critics and temperature."""
    polyak_rate: float = 0.005
    """How far the target critics move to the critics after every update (τ)."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    buffer_size: int = 1_000_000
    """Real transitions kept; the oldest go first."""

    def __post_init__(self) -> None:
        check_settings(
            self,
            updates_per_step=NATURAL,
            random_steps=NATURAL,
            batch_size=COUNT,
            discount=FRACTION,
            learning_rate=POSITIVE,
            polyak_rate=FRACTION,
            hidden_sizes=COUNT,
            buffer_size=COUNT,
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        return METRICS

    def init(self, spec: EnvSpec, steps: int, key: Key[Array, ""]) -> SACState:
        return SACState(
            self.init_learner(spec, key),
            init_buffer(blank_transition(spec), max(1, min(self.buffer_size, steps))),
        )

    def init_learner(self, spec: EnvSpec, key: Key[Array, ""]) -> Learner:
        """Fresh networks; the target critics start as copies."""
        actor_key, *critic_keys = jax.random.split(key, 3)
        initializers = [glorot_uniform] * (len(self.hidden_sizes) + 1)
        actor_sizes = (spec.obs_size, *self.hidden_sizes, 2 * spec.action_size)
        critic_sizes = (spec.obs_size + spec.action_size, *self.hidden_sizes, 1)
        first, second = (init_mlp(k, critic_sizes, initializers) for k in critic_keys)
        weights = Weights(init_mlp(actor_key, actor_sizes, initializers), (first, second), jnp.zeros(()))
        return Learner(
            weights,
            target_critics=jax.tree.map(jnp.copy, weights.critics),
            optimizer=init_optimizer(self._adam, weights),
            updates=jnp.int32(0),
        )

    def act(self, state: SACState, obs: Obs, key: Key[Array, ""], explore: bool) -> Float[Array, "*B A"]:
        return choose(state.learner.weights.actor, obs, key, explore)

    def prepare(self, state: SACState, step: int, key: Key[Array, ""], host: Host) -> SACState:
        return state

    def value(self, state: SACState, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
        return estimate(state.learner.weights, obs)

    def observe(self, state: SACState, transition: Transition, host: Host) -> SACState:
        return SACState(state.learner, store(state.buffer, transition))

    def update(self, state: SACState, step: int, key: Key[Array, ""], host: Host) -> tuple[SACState, Metrics]:
        if step <= self.random_steps or self.updates_per_step == 0:
            return state, {}
        with host.clock("policy"):
            batches = draw(state.buffer, key, (self.updates_per_step, self.batch_size))
            learner, metrics = self.improve(state.learner, batches, key)
            jax.block_until_ready(metrics)
        return SACState(learner, state.buffer), metrics

    def counts(self, state: SACState) -> tuple[int, int]:
        return int(state.learner.updates), 0

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def improve(self, learner: Learner, batches: Transition, key: Key[Array, ""]) -> tuple[Learner, Metrics]:
        """The learner after one update a batch (`batches` has leading axes G, B), and the mean metrics.

        The noise of all updates is drawn at once, outside the scan: it is cheaper there.
        """
        shape = (2, *batches.action.shape)
        noise = jax.random.normal(jax.random.fold_in(key, NOISE), shape)
        learner, metrics = jax.lax.scan(self._update_once, learner, (batches, noise[0], noise[1]))
        return learner, jax.tree.map(jnp.mean, metrics)

    def _update_once(
        self, learner: Learner, inputs: tuple[Transition, Float[Array, "B A"], Float[Array, "B A"]]
    ) -> tuple[Learner, Metrics]:
        """One step of critics, actor and temperature, all from the weights before it.

        Reference: the released code runs the three steps together on the values from before the update.
        """
        batch, noise, next_noise = inputs
        weights = learner.weights
        target = self.critic_target(learner, batch, next_noise)

        def critics_only(critics: tuple[MLP, MLP]) -> Float[Array, ""]:
            return critic_loss(values(critics, batch.obs, batch.action), target)

        def actor_only(actor: MLP) -> tuple[Float[Array, ""], tuple[Float[Array, " B"], Float[Array, " B"]]]:
            action, log_prob = policy(actor, batch.obs).sample(noise)
            value = jnp.minimum(*values(weights.critics, batch.obs, action))
            return actor_loss(log_prob, value, jnp.exp(weights.log_temperature)), (log_prob, value)

        def temperature_only(log_temperature: Float[Array, ""]) -> Float[Array, ""]:
            return temperature_loss(log_temperature, log_prob, self._target_entropy(batch.action.shape[-1]))

        loss_critic, critic_gradient = jax.value_and_grad(critics_only)(weights.critics)
        (loss_actor, (log_prob, value)), actor_gradient = jax.value_and_grad(actor_only, has_aux=True)(weights.actor)
        gradient = Weights(actor_gradient, critic_gradient, jax.grad(temperature_only)(weights.log_temperature))

        weights, optimizer = descend(self._adam, gradient, learner.optimizer, weights)
        metrics = {
            "actor_loss": loss_actor,
            "critic_loss": loss_critic,
            "entropy": -jnp.mean(log_prob),
            "q": jnp.mean(value),
            "temperature": jnp.exp(weights.log_temperature),
        }
        target_critics = polyak(learner.target_critics, weights.critics, self.polyak_rate)
        return Learner(weights, target_critics, optimizer, learner.updates + 1), metrics

    def critic_target(self, learner: Learner, batch: Transition, noise: Float[Array, "B A"]) -> Float[Array, " B"]:
        """r + γ (1 − terminated) (min Q̄(s′, a′) − α log π(a′|s′)), with a′ from the policy."""
        action, log_prob = policy(learner.weights.actor, batch.next_obs).sample(noise)
        value = jnp.minimum(*values(learner.target_critics, batch.next_obs, action))
        soft_value = value - jnp.exp(learner.weights.log_temperature) * log_prob
        return td_target(batch.reward, batch.terminated, soft_value, self.discount)

    def _target_entropy(self, action_size: int) -> float:
        return -float(action_size) if self.target_entropy is None else self.target_entropy

    @property
    def _adam(self) -> optax.GradientTransformation:
        """One Adam over all weights: element by element the same as one for each network."""
        return adam(self.learning_rate)


def policy(actor: MLP, obs: Float[Array, "*B O"]) -> TanhGaussian:
    """π(·|s): the actor gives mean and log-deviation, the latter clipped to [−20, 2]."""
    mean, log_std = jnp.split(actor(obs), 2, axis=-1)
    return TanhGaussian(mean, jnp.clip(log_std, -20.0, 2.0))


def values(
    critics: tuple[MLP, MLP], obs: Float[Array, "*B O"], action: Float[Array, "*B A"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Q₁(s, a) and Q₂(s, a). Two separate networks: on a CPU one batched product is slower than two."""
    x = jnp.concatenate([obs, action], axis=-1)
    first, second = critics
    return first(x)[..., 0], second(x)[..., 0]


@partial(jax.jit, static_argnames="explore")
def choose(actor: MLP, obs: Obs, key: Key[Array, ""], explore: bool) -> Float[Array, "*B A"]:
    """A sampled action, or tanh(mean)."""
    distribution = policy(actor, jnp.asarray(obs))
    if not explore:
        return distribution.mode()
    return distribution.sample(jax.random.normal(key, distribution.mean.shape))[0]


@jax.jit
def estimate(weights: Weights, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
    """min Q(s, a) for the deterministic action."""
    return jnp.minimum(*values(weights.critics, obs, policy(weights.actor, obs).mode()))


store = jax.jit(insert_one, donate_argnums=0)
draw = jax.jit(sample, static_argnums=2)
