"""Model-Based Policy Optimization (Janner et al. 2019, Algorithm 2): short imagined rollouts from real states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from mbpo.algorithms.sac import IMAGINED, SAC, SACState, choose, draw
from mbpo.algorithms.sac import METRICS as SAC_METRICS
from mbpo.buffer import Buffer, init_buffer, insert
from mbpo.errors import RunError
from mbpo.limits import COUNT, FRACTION, check_settings, require
from mbpo.model import Ensemble, Model, disagreement, elite_members, imagine
from mbpo.model_fit import FitReport, fit, judge
from mbpo.nets import MLP
from mbpo.pytree import pytree, static
from mbpo.rollout import Trajectory, unroll
from mbpo.schedule import RolloutLength
from mbpo.termination import METRICS as TERMINATION_METRICS
from mbpo.termination import TerminationModel, TerminationNetworks, predicts_end
from mbpo.types import EnvSpec, Host, Metrics, Obs, Terminal, Transition, blank_transition

MODEL_METRICS = (
    "model/fresh_mse",
    "model/fresh_nll",
    "model/holdout_mse",
    "model/holdout_nll",
    "model/epochs",
    "model/updates",
    "model/disagreement",
    "model/nonfinite_fraction",
    "rollout/rollout_length",
    "rollout/mean_length",
    "rollout/terminated_fraction",
    "rollout/reward",
    "rollout/real_reward",
)


DISAGREEMENT_ROWS = 512
"""Rows of an imagined step on which the spread between members is measured."""

PIECE_ROWS = 2000
"""Rows of an imagined step that go through the networks at once."""


@pytree
class MBPOState:
    """`sac.buffer` holds the real transitions, `imagined` the model's."""

    sac: SACState
    ensemble: Ensemble
    termination: TerminationNetworks | None
    imagined: Buffer[Transition]
    terminal: Terminal = static()
    """The task's function; unused where `termination` is learned."""
    env_name: str = static()


@dataclass(frozen=True)
class MBPO:
    """Model-Based Policy Optimization: SAC on short rollouts of a learned ensemble, branched from real states."""

    sac: SAC = SAC(updates_per_step=20)
    """The policy optimiser."""
    model: Model = Model()
    """The dynamics ensemble and its fit."""
    rollout_length: RolloutLength = RolloutLength()
    """Steps of an imagined rollout (k) over the epochs of a run."""
    rollouts_per_step: int = 400
    """Imagined rollouts for every real step (M)."""
    epoch_steps: int = 1000
    """Real steps in an epoch (E), counted from the end of the random steps."""
    fit_every: int = 250
    """Real steps between two fits of the model, each followed by all the rollouts of those steps."""
    retained_epochs: int = 1
    """Imagined transitions are kept for so many epochs."""
    real_fraction: float = 0.05
    """Share of real transitions in every batch; at 1 there is no model, and this is SAC."""
    termination: Literal["task", "learned"] = "task"
    """Where imagined rollouts end: by the task's function (learned where it has none), or always learned."""
    termination_networks: TerminationModel = TerminationModel()
    """The networks that learn termination."""
    termination_mismatch: Literal["stop", "warn"] = "stop"
    """What to do when the task's function contradicts the environment on a real transition."""

    def __post_init__(self) -> None:
        check_settings(
            self,
            rollouts_per_step=COUNT,
            epoch_steps=COUNT,
            fit_every=COUNT,
            retained_epochs=COUNT,
            real_fraction=FRACTION,
        )
        if self._has_model:
            self._check_schedule()

    def _check_schedule(self) -> None:
        """What a model needs: rows to be fitted to and judged by, and room for what it imagines."""
        kept = self.retained_epochs * self.epoch_steps
        require(
            self.fit_every <= kept,
            f"fit_every of MBPO is {self.fit_every}, and imagined transitions are kept for {kept} real steps",
            "fit more often, or retain more epochs",
        )
        require(
            self.fit_every <= self.sac.buffer_size,
            f"fit_every of MBPO is {self.fit_every}, and {self.sac.buffer_size} real transitions are kept",
            "enlarge sac.buffer_size",
        )
        rows = min(self.sac.random_steps, self.sac.buffer_size)
        require(
            int(self.model.holdout_fraction * rows) >= 1,
            f"random_steps of MBPO's SAC is {self.sac.random_steps}, too few to fit the model to and to judge it by",
            "take more random_steps",
        )

    @property
    def random_steps(self) -> int:
        return self.sac.random_steps

    @property
    def discount(self) -> float:
        return self.sac.discount

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*SAC_METRICS, *MODEL_METRICS, *TERMINATION_METRICS)

    # --- the state ------------------------------------------------------------------------------------------------

    def init(self, spec: EnvSpec, steps: int, key: Key[Array, ""]) -> MBPOState:
        learned = self.termination == "learned" or spec.terminal is None
        # Addresses 0 to 2 of the key are those of the actor and the critics.
        model_key, termination_key = (jax.random.fold_in(key, address) for address in (3, 4))
        return MBPOState(
            self.sac.init(spec, steps, key),
            self.model.init(spec, model_key),
            self.termination_networks.init(spec, termination_key) if learned else None,
            init_buffer(blank_transition(spec), self.imagined_capacity(steps)),
            spec.terminal or never,
            spec.name,
        )

    def imagined_capacity(self, steps: int) -> int:
        """The rows that the imagined buffer needs in a run of so many steps."""
        if not self._has_model:
            return 1
        longest = max(self.rollout_length.at(epoch) for epoch in range(self._epoch(max(steps - 1, 0)) + 1))
        return self._window(longest)

    def _window(self, rollout_length: int) -> int:
        """The imagined transitions that are kept: those of the last `retained_epochs`, at the present length."""
        return self.retained_epochs * rollout_length * self.rollouts_per_step * self.epoch_steps

    def _epoch(self, step: int) -> int:
        return max(step - self.random_steps, 0) // self.epoch_steps

    @property
    def _has_model(self) -> bool:
        return self.real_fraction < 1.0

    # --- acting and observing -------------------------------------------------------------------------------------

    def act(self, state: MBPOState, obs: Obs, key: Key[Array, ""], explore: bool) -> Float[Array, "*B A"]:
        return self.sac.act(state.sac, obs, key, explore)

    def value(self, state: MBPOState, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
        return self.sac.value(state.sac, obs)

    def observe(self, state: MBPOState, transition: Transition, host: Host) -> MBPOState:
        if state.termination is None and bool(contradicts(state.terminal, transition)):
            self._report_mismatch(state.env_name, transition, host)
        return replace(state, sac=self.sac.observe(state.sac, transition, host))

    def _report_mismatch(self, env_name: str, transition: Transition, host: Host) -> None:
        said = bool(transition.terminated)
        problem = (
            f"{env_name} {'ended' if said else 'did not end'} the episode and the task's termination function "
            f"says it {'goes on' if said else 'ends'}, for obs {transition.obs.tolist()}, "
            f"action {transition.action.tolist()}, next_obs {transition.next_obs.tolist()}"
        )
        if self.termination_mismatch == "stop":
            raise TerminationMismatchError(
                f"{problem}; correct the function given to register_task, learn it with "
                "--mbpo.termination learned, or go on regardless with --mbpo.termination-mismatch warn."
            )
        host.message(f"Termination mismatch: {problem}.")

    # --- Algorithm 2: the model -----------------------------------------------------------------------------------

    def prepare(self, state: MBPOState, step: int, key: Key[Array, ""], host: Host) -> MBPOState:
        """Every `fit_every` steps: fit the model to all real transitions, then imagine from states among them.

        Reference: the release does this four times an epoch, where the paper's Algorithm 2 fits once an epoch and
        imagines at every step.
        """
        since_random = step - self.random_steps
        if not self._has_model or since_random < 0 or since_random % self.fit_every != 0:
            return state
        fit_key, termination_key, rollout_key = jax.random.split(key, 3)
        with host.clock("model"):
            row = self._fresh_errors(state)
            ensemble, report = fit(self.model, state.ensemble, state.sac.buffer, fit_key, host.interrupted)
            termination, learned = self._fit_termination(state, termination_key)
        with host.clock("rollout"):
            k = self.rollout_length.at(self._epoch(step))
            state = replace(state, ensemble=ensemble, termination=termination)
            state, imagined = self._imagine(state, k, rollout_key)
        host.record("fits", {**row, **fit_row(report), **learned, **imagined})
        return state

    def _fresh_errors(self, state: MBPOState) -> dict[str, float | None]:
        """The elites' errors on the real steps since the last fit, which they have not been trained on."""
        if int(state.ensemble.fits) == 0:
            return {"model/fresh_mse": None, "model/fresh_nll": None}
        ensemble, newest = state.ensemble, np.arange(self.fit_every, dtype=np.int32)
        mse, nll = judge(ensemble.networks, ensemble.scale, state.sac.buffer, newest)
        elites = np.asarray(ensemble.elites)
        return {"model/fresh_mse": float(mse[elites].mean()), "model/fresh_nll": float(nll[elites].mean())}

    def _fit_termination(
        self, state: MBPOState, key: Key[Array, ""]
    ) -> tuple[TerminationNetworks | None, Mapping[str, int | float | None]]:
        if state.termination is None:
            return None, {}
        return self.termination_networks.fit(state.termination, state.sac.buffer, key)

    # --- Algorithm 2: the imagined rollouts -------------------------------------------------------------------------

    def _imagine(self, state: MBPOState, k: int, key: Key[Array, ""]) -> tuple[MBPOState, dict[str, int | float]]:
        """The state with the rollouts of the next `fit_every` steps in its buffer, and what they were like.

        One step of all rollouts at a time: so that nothing is compiled when k grows, and memory does not.
        """
        batch = self.rollouts_per_step * self.fit_every
        start_key, step_key = jax.random.split(key)
        starts = draw(state.sac.buffer, start_key, (batch,))
        dreamer = Dreamer(
            elite_members(state.ensemble), state.ensemble, state.termination, state.sac.learner.weights.actor
        )
        imagined, obs, alive = state.imagined, starts.obs, jnp.ones(batch, bool)
        tallies: list[Tally] = []
        for h in range(k):
            imagined, obs, alive, tally = dream_step(
                state.terminal, dreamer, imagined, obs, alive, jnp.int32(h), jnp.int32(self._window(k)), step_key
            )
            tallies.append(tally)
        summary = summarize(jax.device_get(tallies), k, batch) | {"rollout/real_reward": float(jnp.mean(starts.reward))}
        return replace(state, imagined=imagined), summary

    # --- Algorithm 2: the policy ------------------------------------------------------------------------------------

    def update(self, state: MBPOState, step: int, key: Key[Array, ""], host: Host) -> tuple[MBPOState, Metrics]:
        """G updates of SAC, each on a batch of which `real_fraction` is real."""
        if not self._has_model:
            sac, metrics = self.sac.update(state.sac, step, key, host)
            return replace(state, sac=sac), metrics
        if step <= self.random_steps or self.sac.updates_per_step == 0:
            return state, {}
        with host.clock("policy"):
            batches = self.mixed_batches(state, key)
            learner, metrics = self.sac.improve(state.sac.learner, batches, key)
            jax.block_until_ready(metrics)
        return replace(state, sac=SACState(learner, state.sac.buffer)), metrics

    def mixed_batches(self, state: MBPOState, key: Key[Array, ""]) -> Transition:
        """G batches (G, B), the real rows first in each."""
        updates, rows = self.sac.updates_per_step, self.sac.batch_size
        real = int(self.real_fraction * rows)
        imagined = draw(state.imagined, jax.random.fold_in(key, IMAGINED), (updates, rows - real))
        if real == 0:
            return imagined
        return mix(draw(state.sac.buffer, key, (updates, real)), imagined)

    def counts(self, state: MBPOState) -> tuple[int, int]:
        return int(state.sac.learner.updates), int(state.ensemble.updates)


class TerminationMismatchError(RunError):
    """The task's termination function contradicts the environment."""


@partial(jax.jit, static_argnums=0)
def contradicts(terminal: Terminal, transition: Transition) -> Bool[Array, ""]:
    """True where function and environment disagree, and no change of the observation by a millionth settles it.

    The function sees float32 and the environment may decide in float64: at a threshold they may differ.
    """
    moved = jnp.stack([transition.next_obs * scale for scale in (1.0, 1.0 - 1e-6, 1.0 + 1e-6)])
    obs, action = (jnp.broadcast_to(leaf, (3, *leaf.shape)) for leaf in (transition.obs, transition.action))
    return jnp.all(terminal(obs, action, moved) != transition.terminated)


def never(obs: Float[Array, "*B O"], action: Float[Array, "*B A"], next_obs: Float[Array, "*B O"]) -> Bool[Array, "*B"]:
    """The termination function of a task without an end."""
    return jnp.zeros(next_obs.shape[:-1], bool)


@pytree
class Dreamer:
    """All that an imagined step reads."""

    elites: tuple[MLP, ...]
    ensemble: Ensemble
    termination: TerminationNetworks | None
    actor: MLP


@pytree
class Tally:
    """What one step of all rollouts was like, as sums over the rows alive."""

    alive: Int[Array, ""]
    valid: Int[Array, ""]
    terminated: Int[Array, ""]
    nonfinite: Int[Array, ""]
    reward: Float[Array, ""]
    disagreement: Float[Array, ""]


@partial(jax.jit, static_argnums=0, donate_argnums=(2, 3, 4))
def dream_step(
    terminal: Terminal,
    dreamer: Dreamer,
    imagined: Buffer[Transition],
    obs: Float[Array, "B O"],
    alive: Bool[Array, " B"],
    begin: Int[Array, ""],
    window: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Buffer[Transition], Float[Array, "B O"], Bool[Array, " B"], Tally]:
    """One imagined step of all rollouts, stored: the buffer, and where the rollouts are now.

    The rows go through the networks in pieces that fit a processor's cache: twice as fast as all at once.
    """
    pieces = pieces_of(obs.shape[0])

    def one_piece(
        inputs: tuple[Float[Array, "P O"], Bool[Array, " P"], Key[Array, ""]],
    ) -> Trajectory:
        return dream_piece(terminal, dreamer, *inputs, begin)

    split = jax.tree.map(lambda leaf: leaf.reshape(pieces, -1, *leaf.shape[1:]), (obs, alive))
    trajectory = jax.lax.map(one_piece, (*split, jax.random.split(key, pieces)))
    rows, valid, nonfinite = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[3:]),
        (trajectory.transitions, trajectory.valid, trajectory.nonfinite),
    )
    few = jax.tree.map(lambda leaf: leaf[:DISAGREEMENT_ROWS], rows)
    ensemble = dreamer.ensemble
    tally = Tally(
        alive=jnp.sum(alive),
        valid=jnp.sum(valid),
        terminated=jnp.sum(valid & rows.terminated),
        nonfinite=jnp.sum(nonfinite),
        reward=jnp.sum(jnp.where(valid, rows.reward, 0.0)),
        disagreement=disagreement(dreamer.elites, ensemble.networks, ensemble.scale, few.obs, few.action),
    )
    return insert(imagined, rows, valid, window), rows.next_obs, trajectory.alive.reshape(-1), tally


def pieces_of(rows: int) -> int:
    """Into how many equal pieces so many rows are cut: about `PIECE_ROWS` each."""
    return next(pieces for pieces in range(max(1, rows // PIECE_ROWS), 0, -1) if rows % pieces == 0)


def dream_piece(
    terminal: Terminal,
    dreamer: Dreamer,
    obs: Float[Array, "P O"],
    alive: Bool[Array, " P"],
    key: Key[Array, ""],
    begin: Int[Array, ""],
) -> Trajectory:
    """One step of some of the rollouts."""
    ensemble = dreamer.ensemble

    def step(
        obs: Float[Array, "P O"], action: Float[Array, "P A"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "P O"], Float[Array, " P"], Bool[Array, " P"]]:
        next_obs, reward = imagine(dreamer.elites, ensemble.networks, ensemble.scale, obs, action, key)
        if dreamer.termination is None:
            return next_obs, reward, terminal(obs, action, next_obs)
        return next_obs, reward, predicts_end(dreamer.termination, obs, action, next_obs)

    def act(obs: Float[Array, "P O"], key: Key[Array, ""]) -> Float[Array, "P A"]:
        return choose(dreamer.actor, obs, key, explore=True)

    return unroll(step, act, obs, 1, key, alive, begin)


def summarize(tallies: list[Tally], k: int, rollouts: int) -> dict[str, int | float]:
    """The columns of the rollouts in `fits.jsonl`."""
    alive, valid, terminated, nonfinite, reward = (
        float(sum(getattr(tally, name) for tally in tallies))
        for name in ("alive", "valid", "terminated", "nonfinite", "reward")
    )
    return {
        "model/disagreement": float(tallies[0].disagreement),
        "model/nonfinite_fraction": nonfinite / alive,
        "rollout/rollout_length": k,
        "rollout/mean_length": alive / rollouts,
        "rollout/terminated_fraction": terminated / max(valid, 1.0),
        "rollout/reward": reward / max(valid, 1.0),
    }


def fit_row(report: FitReport) -> dict[str, Any]:
    """The columns of the fit in `fits.jsonl`; errors are means over the elites."""
    elites = list(report.elites)
    return {
        "model/rows": report.rows,
        "model/epochs": report.epochs,
        "model/updates": report.updates,
        "model/holdout_mse": float(np.mean(np.take(report.holdout_mse, elites))),
        "model/holdout_nll": float(np.mean(np.take(report.holdout_nll, elites))),
        "model/elites": elites,
    }


@jax.jit
def mix(real: Transition, imagined: Transition) -> Transition:
    """Each batch of one behind the same batch of the other."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), real, imagined)
