"""The policy update against its limit."""

from collections.abc import Iterator, Sequence

import jax

from mbpo.algorithms.sac import SAC, draw
from mbpo.bench.peers import Peer
from mbpo.bench.products import Net, Product, Workload
from mbpo.bench.report import Line, Report
from mbpo.bench.synthetic import smooth_buffer
from mbpo.bench.timing import interleave
from mbpo.types import EnvSpec


def measure(sac: SAC, spec: EnvSpec, rounds: int, rows: int, peers: Sequence[Peer] = ()) -> Report:
    """`SAC.improve`, and the same with drawing its batches from a buffer, against the products that it needs."""
    key = jax.random.key(0)
    buffer, learner = smooth_buffer(spec, key, rows), sac.init_learner(spec, key)
    updates = sac.updates_per_step
    batches = draw(buffer, key, (updates, sac.batch_size))

    def improve() -> None:
        nonlocal learner
        learner, metrics = sac.improve(learner, batches, key)
        jax.block_until_ready(metrics)

    def draw_and_improve() -> None:
        nonlocal learner
        learner, metrics = sac.improve(learner, draw(buffer, key, (updates, sac.batch_size)), key)
        jax.block_until_ready(metrics)

    limit = workload(sac, spec)
    ours = {"limit": limit.contestant(updates), "improve": improve, "draw + improve": draw_and_improve}
    timings = interleave(ours | {peer.name: peer for peer in peers}, rounds)
    advantages = {peer.name: timings[peer.name].best / timings["draw + improve"].best for peer in peers}
    return Report(
        bench="policy",
        task=spec.name,
        title=f"policy update: {describe(sac, spec)}",
        unit="update",
        gflop=limit.flop / 1e9,
        lines=tuple(Line(name, timing.per(updates)) for name, timing in timings.items()),
        facts={f"times {name}": advantage for name, advantage in advantages.items()},
        peers={peer.name: peer.versions for peer in peers},
        notes=tuple(f"draw + improve is {times:.2f}x as fast as {name}" for name, times in advantages.items()),
    )


def describe(sac: SAC, spec: EnvSpec) -> str:
    widths = " x ".join(map(str, sac.hidden_sizes))
    return (
        f"{spec.obs_size} observations, {spec.action_size} actions, batch {sac.batch_size}, {widths} hidden, "
        f"G = {sac.updates_per_step}"
    )


def workload(sac: SAC, spec: EnvSpec) -> Workload:
    """The products of one update."""
    obs, action, batch = spec.obs_size, spec.action_size, sac.batch_size
    actor = Net("actor", (obs, *sac.hidden_sizes, 2 * action))
    critics = [Net(f"critic{i}", (obs + action, *sac.hidden_sizes, 1)) for i in (1, 2)]
    targets = [Net(f"target{i}", net.sizes) for i, net in enumerate(critics, 1)]
    inputs = {
        "obs": (batch, obs),
        "next_obs": (batch, obs),
        "row": (batch, obs + action),
        "next_row": (batch, obs + action),
        "new_row": (batch, obs + action),
    }
    for net in (actor, *critics, *targets):
        inputs |= net.weights
    return Workload(inputs, tuple(products_of_update(actor, critics, targets)))


def products_of_update(actor: Net, critics: list[Net], targets: list[Net]) -> Iterator[Product]:
    """The target at (s′, a′), the critics at (s, a) and back to their weights, the actor through them and back."""
    yield from actor.forward("next_obs", "next_action")
    for target in targets:
        yield from target.forward("next_row", target.name)
    for critic in critics:
        yield from critic.forward("row", critic.name)
    for critic in critics:
        yield from critic.backward("row", critic.name)
    yield from actor.forward("obs", "new_action")
    for critic in critics:
        yield from critic.forward("new_row", f"{critic.name}_new")
    for critic in critics:
        yield from critic.backward("new_row", f"{critic.name}_new", to_weights=False, to_input=True)
    yield from actor.backward("obs", "new_action")
