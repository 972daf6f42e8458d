"""Assembly of run.json from the ranks' parts.

A run over several hosts has a folder for each, with its own ranks.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from analyzers.json_documents import encoded
from analyzers.run import (
    EARLY_STEPS,
    MANIFEST,
    NOSYNC,
    Control,
    Controls,
    Manifest,
    Memory,
    Parallelism,
    control,
    joined_parallelism,
)
from tracer.config import EARLY_ACTIVE
from tracer.recording.rank_part import PART, RankPart, kept_rounds, read_parts, trained
from tracer.recording.strategies import ordered, strategy_name
from tracer.recording.windows import EARLY, FULL, ROUND

# Of a recording that ended before all its ranks had one whole round.
EARLY_ALONE = f"it is a full window of {EARLY_ACTIVE} early steps, without controls"


def assemble(folder: Path, name: str, transport: str | None) -> None:
    """Turn the ranks' parts into run.json, keep the most typical round's traces, remove the rest.

    `transport` is NCCL's, null where it is not known.

    Of a recording that was not completed the rounds are used that all its ranks have; where there is none, their early
    windows.
    """
    parts = read_parts(folder)
    rounds = _kept_rounds(parts)
    _keep_windows(folder, rounds)
    notes = [*parts[0].facts.notes, *_incomplete(parts), *_light_notes(parts), *_stack_notes(parts)]
    if _incomplete(parts) or parts[0].failed_nosync is not None:
        # The nosync windows that there are may be those of some ranks alone.
        shutil.rmtree(folder / NOSYNC, ignore_errors=True)
    manifest = _manifest(parts, name, transport, rounds, notes)
    (folder / MANIFEST).write_bytes((encoded(manifest.without_secrets()) + "\n").encode())
    for part in parts:
        (folder / PART.format(rank=part.rank)).unlink()


def _kept_rounds(parts: Sequence[RankPart]) -> dict[str, int]:
    """The rounds that were agreed on; of an incomplete recording the typical ones of those that all ranks have."""
    agreed = parts[0].kept_rounds
    if agreed is not None and all(part.kept_rounds == agreed for part in parts):
        return agreed
    return kept_rounds(parts, min(part.rounds for part in parts))


def _incomplete(parts: Sequence[RankPart]) -> list[str]:
    ended = [part for part in parts if part.kept_rounds is None]
    if not ended:
        return []
    first, rounds = ended[0], min(part.rounds for part in parts)
    what = f"its controls are of {rounds} of {first.plan.rounds} rounds" if rounds else EARLY_ALONE
    steps = trained(parts)
    after = f"at least {first.steps}" if steps is None else f"{steps}"
    return [f"the recording ended after {after} of {first.of_steps} steps: {what}"]


def _light_notes(parts: Sequence[RankPart]) -> list[str]:
    first = parts[0]
    failed = {number: why for number, why in sorted(first.failed_light.items()) if number <= first.rounds}
    if failed and len(failed) == first.rounds:
        return [f"there is no light window: {failed[1]}"]
    notes = []
    if first.why_not_cupti is not None:
        since = " from round 2 on" if failed else ""
        notes.append(f"light windows are Kineto's{since}, which stretch steps more: {first.why_not_cupti}")
    notes += [f"round {number} has no light window: {why}" for number, why in failed.items()]
    if first.failed_nosync is not None:
        notes.append(f"there is no window without gradient synchronization: {first.failed_nosync}")
    return notes


def _stack_notes(parts: Sequence[RankPart]) -> list[str]:
    without = next((part for part in parts if part.why_no_stacks is not None), None)
    if without is None:
        return []
    return [f"which Python functions rank {without.rank} was in is not recorded: {without.why_no_stacks}"]


def _keep_windows(folder: Path, rounds: Mapping[str, int]) -> None:
    """Move the chosen rounds' traces, without any the early ones, to where a run has them, and remove all others."""
    kept = {window: folder / ROUND.format(number=number) / window for window, number in rounds.items()}
    for window, source in (kept or {FULL: folder / EARLY}).items():
        if window == FULL:
            for file in source.iterdir():
                file.rename(folder / file.name)
        else:
            source.rename(folder / window)
    for unchosen in (folder / EARLY, *folder.glob(ROUND.format(number="*"))):
        shutil.rmtree(unchosen, ignore_errors=True)


def _manifest(
    parts: Sequence[RankPart], name: str, transport: str | None, rounds: Mapping[str, int], notes: Sequence[str]
) -> Manifest:
    first = parts[0]
    facts, parallelism = first.facts, _parallelism(parts)
    profiler = msgspec.to_builtins(first.plan) | {"light": first.light, "kept_rounds": dict(rounds)}
    return Manifest(
        id=first.recording,
        name=name,
        command=facts.command,
        versions=first.versions,
        hosts=list(dict.fromkeys(part.host for part in parts)),
        host_of_rank={str(part.rank): part.host for part in parts},
        devices=[device for part in parts for device in part.devices],
        environment=first.environment,
        transport=transport,
        world_size=first.world_size,
        backend=facts.backend,
        strategy=_strategy(parts, parallelism),
        parallelism=parallelism,
        model=facts.model,
        batch_per_gpu=facts.batch_per_gpu,
        bucket_cap_mb=facts.bucket_cap_mb,
        settings=facts.settings | ({"ddp": first.ddp} if first.ddp is not None else {}),
        training=first.training,
        profiler=profiler if rounds else profiler | {EARLY_STEPS: EARLY_ACTIVE},
        parameters=first.parameters,
        buckets=first.buckets,
        controls=_controls(parts) if rounds else Controls(),
        memory=Memory(first.memory_source, {str(part.rank): part.peak_bytes for part in parts}),
        device_states={str(part.rank): part.device_states for part in parts if part.device_states} or None,
        host_states={str(part.rank): part.host_states for part in parts if part.host_states is not None} or None,
        dataset=facts.dataset,
        epochs=first.epochs,
        notes=list(notes),
    )


def _parallelism(parts: Sequence[RankPart]) -> Parallelism | None:
    joined = joined_parallelism(part.parallelism for part in parts)
    return joined and msgspec.structs.replace(joined, strategies=ordered(joined.strategies))


def _strategy(parts: Sequence[RankPart], parallelism: Parallelism | None) -> str | None:
    """The strategies that any rank was found to use, where nobody has named one."""
    named = {part.facts.strategy for part in parts}
    if len(named) == 1 or parallelism is None:
        return parts[0].facts.strategy
    return strategy_name(parallelism.strategies, parts[0].world_size)


def _controls(parts: Sequence[RankPart]) -> Controls:
    numbers = parts[0].step_numbers
    measured: dict[str, Control] = {
        name: control({part.rank: part.steps_ns.get(name, []) for part in parts}, numbers.get(name, []))
        for name in parts[0].steps_ns
    }
    why = parts[0].why_no_nosync
    return Controls(**measured, reasons={"nosync": why} if why else {})
