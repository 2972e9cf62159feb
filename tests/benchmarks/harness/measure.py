"""Rounds in which every subject of a group is timed once."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from harness.model import Claim, Group, Outcome, Settings, Subject, clock

# A first call pays for caches, page faults and lazy imports.
WARM_UP_ROUNDS = 1
MOST_REPEATS = 1_000_000


def samples_of(group: Group, settings: Settings) -> dict[str, list[float]]:
    """Seconds for one call of each subject, one sample a round.

    The order of the subjects changes from round to round, so that none always follows the same
    neighbour. The garbage collector rests meanwhile.
    """
    if group.collect is not None:
        return {name: list(values) for name, values in group.collect().items()}
    names = list(group.subjects)
    repeats = {name: _repeats(group.subjects[name], settings) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for number in range(WARM_UP_ROUNDS + settings.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                sample = _sample(group.subjects[name], repeats[name])
                if number >= WARM_UP_ROUNDS:
                    samples[name].append(sample)
    finally:
        gc.enable()
    return samples


def outcome_of(claim: Claim, group: Group, samples: Mapping[str, Sequence[float]]) -> Outcome:
    """The claim's ratio in each round."""
    ours, peer = samples[claim.subject], samples[claim.peer]
    if claim.ours_by or claim.peer_by:
        ours = [(claim.ours_by or median)(ours)]
        peer = [(claim.peer_by or median)(peer)]
    pairs = zip(ours, peer, strict=True)
    if claim.ratio == "speed":
        return Outcome(claim, group.name, [theirs / own for own, theirs in pairs])
    return Outcome(claim, group.name, [own / theirs for own, theirs in pairs])


def spread(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _repeats(subject: Subject, settings: Settings) -> int:
    """How often a sample calls the subject; 1 if the subject measures its own time."""
    if isinstance(subject.run(), float):
        return 1
    repeats = 1
    while repeats < MOST_REPEATS:
        elapsed = _timed(subject, repeats)
        if elapsed >= settings.sample_seconds:
            break
        # Aim a little beyond, and grow at least twofold while the clock shows too little.
        wanted = settings.sample_seconds / max(elapsed, 1e-9) * 1.1
        repeats = min(max(2 * repeats, int(repeats * min(wanted, 100))), MOST_REPEATS)
    return repeats


def _sample(subject: Subject, repeats: int) -> float:
    # Once untimed: a neighbour has just filled the caches with its own data.
    result = subject.run()
    if isinstance(result, float):
        return result
    return _timed(subject, repeats) / repeats


def _timed(subject: Subject, repeats: int) -> float:
    now, run = clock(subject.wall), subject.run
    start = now()
    for _ in range(repeats):
        run()
    return now() - start
