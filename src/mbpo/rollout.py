"""The imagined rollout: the only code that steps a model."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from mbpo.pytree import pytree
from mbpo.types import Transition

Step = Callable[
    [Float[Array, "B O"], Float[Array, "B A"], Key[Array, ""]],
    tuple[Float[Array, "B O"], Float[Array, " B"], Bool[Array, " B"]],
]
"""(obs, action, key) to (next_obs, reward, terminated)."""

Act = Callable[[Float[Array, "B O"], Key[Array, ""]], Float[Array, "B A"]]


@pytree
class Trajectory:
    """What was imagined. Rows keep their place: one that is over stays in the batch and is not `valid` any more."""

    transitions: Transition
    """Leading axes H, B."""
    valid: Bool[Array, "H B"]
    """The row was alive before this step, and the prediction is finite."""
    nonfinite: Bool[Array, "H B"]
    """The row was alive, and the prediction is not finite: the end of the row, and never to be learned from."""
    alive: Bool[Array, " B"]
    """The row goes on after the last step."""

    @property
    def last_obs(self) -> Float[Array, "B O"]:
        return self.transitions.next_obs[-1]


def unroll(
    step: Step,
    act: Act,
    obs: Float[Array, "B O"],
    horizon: int,
    key: Key[Array, ""],
    alive: Bool[Array, " B"] | None = None,
    begin: int | Int[Array, ""] = 0,
) -> Trajectory:
    """H steps of the model from every row of `obs`, with one policy call and one model call a step.

    A rollout may be made in pieces: the next piece starts at the last one's `last_obs` and `alive`, `begin` steps on,
    and draws what the whole rollout would have drawn.
    """
    everyone = jnp.ones(obs.shape[0], bool) if alive is None else alive

    def advance(
        carry: tuple[Float[Array, "B O"], Bool[Array, " B"]], h: Int[Array, ""]
    ) -> tuple[tuple[Float[Array, "B O"], Bool[Array, " B"]], tuple[Transition, Bool[Array, " B"], Bool[Array, " B"]]]:
        obs, alive = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, h))
        action = act(obs, act_key)
        next_obs, reward, terminated = step(finite_gradient(obs), finite_gradient(action), step_key)
        finite = jnp.isfinite(reward) & jnp.all(jnp.isfinite(next_obs), axis=-1)
        # A row that went astray stays where it was, so that no later arithmetic meets its infinities.
        next_obs = jnp.where(finite[:, None], next_obs, obs)
        reward = jnp.where(finite, reward, 0.0)
        terminated = terminated | ~finite
        transition = Transition(obs, action, reward, next_obs, terminated, jnp.zeros_like(terminated))
        return (next_obs, alive & ~terminated), (transition, alive & finite, alive & ~finite)

    steps = jnp.arange(horizon, dtype=jnp.int32) + begin
    (_, still), (transitions, valid, nonfinite) = jax.lax.scan(advance, (obs, everyone), steps)
    return Trajectory(transitions, valid, nonfinite, still)


@jax.custom_vjp
def finite_gradient(x: Float[Array, "B D"]) -> Float[Array, "B D"]:
    """x. On the way back, a row whose gradient is not finite sends none.

    Nothing is learned from a prediction that is not finite, so the gradient that comes to it is 0, but 0 · ∞ is NaN:
    one such row would spoil the gradient of a policy that all rows share.
    """
    return x


def _forward(x: Float[Array, "B D"]) -> tuple[Float[Array, "B D"], None]:
    return x, None


def _backward(_: None, gradient: Float[Array, "B D"]) -> tuple[Float[Array, "B D"]]:
    finite = jnp.all(jnp.isfinite(gradient), axis=-1, keepdims=True)
    return (jnp.where(finite, gradient, 0.0),)


finite_gradient.defvjp(_forward, _backward)
