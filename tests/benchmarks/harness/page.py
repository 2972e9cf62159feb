"""The results as one HTML page: a bar for each ratio, with its quartiles and its target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment

WIDTH = 360
# The axis is logarithmic and spans this factor on both sides of 1.
REACH = 64.0

TEMPLATE = """<!doctype html>
<meta charset="utf-8"><title>OpGuard benchmarks</title>
<style>
 body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
 table { border-collapse: collapse; margin: 0 0 1.5em } td, th { padding: .1em .8em .1em 0;
 text-align: left; font-weight: normal } th { color: #666 } .miss { color: #b00020 }
 svg { vertical-align: middle } .number { text-align: right; font-variant-numeric: tabular-nums }
</style>
<h1>Benchmarks</h1>
<p>{{ machine.processor }}, {{ machine.processors_usable }} usable; Python {{ machine.python }};
 revision {{ machine.revision }}; {{ machine.date }}; <code>{{ machine.command }}</code></p>
<p>A dot is the median of the rounds' ratios, the line its quartiles, the red tick the target; the
 axis is logarithmic around 1. <em>speed</em>: the peer's time over ours. <em>time</em>: ours over
 the peer's.</p>
{% for area in areas %}
<h2>{{ area.name }}</h2><p>{{ area.title }}</p>
<table>
<tr><th>group<th>ours<th>against<th>ratio<th>median<th>target<th><th></tr>
{% for group in area.groups %}{% for r in group.ratios %}
<tr{% if r.passed is false %} class="miss"{% endif %}>
<td>{{ group.name }}<td>{{ r.subject }}<td>{{ r.peer }}<td>{{ r.kind }}
<td class="number">{{ "%.3g" | format(r.median) }}
<td>{% if r.target is not none %}{{ "≥" if r.kind == "speed" else "≤" }} {{ r.target }}{% endif %}
<td><svg width="{{ width }}" height="14">
<line x1="{{ x(1) }}" x2="{{ x(1) }}" y1="0" y2="14" stroke="#bbb"/>
<line x1="{{ x(r.quartiles[0]) }}" x2="{{ x(r.quartiles[1]) }}" y1="7" y2="7" stroke="#36c"
 stroke-width="3"/><circle cx="{{ x(r.median) }}" cy="7" r="4" fill="#36c"/>
{% if r.target is not none %}<line x1="{{ x(r.target) }}" x2="{{ x(r.target) }}" y1="1" y2="13"
 stroke="#c00" stroke-width="2"/>{% endif %}</svg>
<td>{{ "miss" if r.passed is false }}</tr>
{% endfor %}{% for f in group.figures %}
<tr{% if f.passed is false %} class="miss"{% endif %}><td>{{ group.name }}<td>{{ f.name }}<td><td>
<td class="number">{{ "%.6g" | format(f.value) }} {{ f.unit }}<td>{{ f.target }}<td>
<td>{{ "miss" if f.passed is false }}</tr>
{% endfor %}{% endfor %}
</table>
{% for note in area.notes %}<p>{{ note }}</p>{% endfor %}
{% endfor %}
"""


def render_page(document: Mapping[str, Any]) -> str:
    """The page of a result document (see ``report.write_results``)."""
    template = Environment(autoescape=True).from_string(TEMPLATE)
    return template.render(**document, width=WIDTH, x=_position)


def _position(ratio: float) -> float:
    """Horizontal position of a ratio, pixels."""
    bounded = min(max(ratio, 1 / REACH), REACH)
    return round((math.log(bounded) / math.log(REACH) + 1) / 2 * (WIDTH - 10) + 5, 1)
