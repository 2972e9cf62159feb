"""Words that several reports share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

HEADLINES: Final = {
    "outputs_differ": "inputs equal, outputs differ",
    "unexplained_input": "an input differs, nothing recorded before explains it",
    "unpaired": "a call on one side only",
    "incompatible": "outputs cannot be set side by side",
}
"""One line per kind of origin."""

ARGUMENT_HEADLINE: Final = "a different argument"
"""For an input that is no tensor: its two values say it all."""

CIRCUMSTANCE_HEADLINES: Final = {
    "random_stream": "the random stream differs, not an operation",
    "data_order": "the data come in another order, not an operation",
    "data_content": "the data differ, not an operation",
}
"""One line per circumstance that an origin can show."""

CIRCUMSTANCES_BEFORE: Final = "Before the first difference: the runs differ in what may explain it."
CIRCUMSTANCES_ONLY: Final = "The runs differ in their circumstances; no recorded value differs."
CIRCUMSTANCES_LATER: Final = "After the first difference, and perhaps because of it:"
OTHER_UNPAIRED: Final = "Other calls on one side only (no divergence by themselves)"
NOT_REPEATABLE: Final = "Not repeatable: equal runs of the baseline differ here as well"
DEVICE_TIME: Final = "Time on the device by callsite"
ALL_NOT_REPEATABLE: Final = (
    "No difference beyond what equal runs of the baseline show: every origin is at a place that is "
    "not repeatable. A difference behind these places may be hidden; make the baseline repeatable "
    "first."
)


def headline(origin: Mapping[str, Any]) -> str:
    """What an origin is, in one line."""
    shown = CIRCUMSTANCE_HEADLINES.get(origin.get("circumstance") or "")
    if shown is None and origin["kind"] == "unexplained_input":
        slots = [slot["slot"] for slot in origin["slots"]]
        shown = ARGUMENT_HEADLINE if slots and slots[0].startswith("value.") else None
    return shown or HEADLINES.get(origin["kind"], str(origin["kind"]))


def activity_cell(entry: Mapping[str, Any] | None) -> str:
    """Device activity of a callsite on one side, in one line."""
    if entry is None:
        return "absent"
    direct, backward = entry["direct"], entry["backward"]
    kernels = direct["kernels"] + backward["kernels"]
    if not entry["calls"]:
        return "none"
    text = (
        f"{(direct['device_ns'] + backward['device_ns']) / 1e6:.3f} ms, "
        f"{kernels / entry['calls']:.1f} kernels a call"
    )
    if backward["device_ns"]:
        text += f" ({backward['device_ns'] / 1e6:.3f} ms of backward)"
    return text


def activity_of_nobody(entry: Mapping[str, Any]) -> str:
    """Device activity that no recorded call caused, in one line."""
    why = {
        "tracer": "of the recorder itself",
        "outside_calls": "launched outside of every recorded call",
        "no_launch": "whose launch is not known",
    }[entry["reason"]]
    return (
        f"{entry['device_ns'] / 1e6:.3f} ms and {entry['runtime_calls']} runtime calls {why} "
        f"({entry['side']}, rank {entry['rank']})"
    )


def kind_of_circumstance(kind: str) -> str:
    """A circumstance's kind for people."""
    return kind.replace("_", " ")


def repeat_summary(repeatability: Mapping[str, Any]) -> str:
    """How many equal runs there were and how many of them differed."""
    runs, differing = repeatability["runs"], repeatability["differing_runs"]
    named = "1 further run" if runs == 1 else f"{runs} further runs"
    if not differing:
        return f"Repeatability: {named} of the baseline: none differs from it."
    return f"Repeatability: {differing} of {named} of the baseline {_verb(differing)} from it."


def _verb(count: int) -> str:
    return "differs" if count == 1 else "differ"
