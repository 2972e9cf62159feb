"""Records behind fingerprints that arrive late keep their order."""

import itertools
import random

import pytest
from simulated import SimulatedDevice, kernel

import xorsig
from opguard.core.cuda.ordered import OrderedWriter
from opguard.core.cuda.results import Results


class ListedWriter:
    """A capture writer that lists what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple] = []
        self._ticks = itertools.count(1)

    def intern(self, text: str) -> int:
        return 1

    def layout(self, *text) -> int:
        return 1

    def begin(self, parent, site, *rest) -> int:
        tick = next(self._ticks)
        self.records.append(("begin", tick, parent, site))
        return tick

    def end(self, call, *rest) -> int:
        self.records.append(("end", call))
        return next(self._ticks)

    def tensor(self, call, role, slot, layout, signature, note=0) -> int:
        self.records.append(("tensor", call, slot, signature))
        return next(self._ticks)

    def value(self, call, role, slot, text) -> int:
        self.records.append(("value", call, slot, text))
        return next(self._ticks)

    def mark(self, kind, step, name, text) -> int:
        self.records.append(("mark", step, text))
        return next(self._ticks)


def signature(value: int) -> bytes:
    return bytes([value]) * 8


@pytest.fixture
def device():
    return SimulatedDevice()


@pytest.fixture
def results(device):
    used = Results(device, 8, page_slots=1, max_page_age_s=3600.0)
    yield used
    device.release(*range(len(device.copies)))
    used.close()


def test_records_go_straight_through_while_none_waits():
    listed = ListedWriter()
    ordered = OrderedWriter(listed)
    call = ordered.begin(0, 5, 0, 0, 0, 0, 1)
    ordered.tensor(call, 0, 1, 1, signature(1))
    ordered.value(call, 0, 2, "text")
    ordered.end(call, 0, 0, 0)
    assert listed.records == [
        *(("begin", 1, 0, 5), ("tensor", 1, 1, signature(1)), ("value", 1, 2, "text")),
        ("end", 1),
    ]
    assert ordered.waiting == 0


def test_records_behind_a_pending_fingerprint_wait_for_it(device, results):
    listed = ListedWriter()
    ordered = OrderedWriter(listed)
    outer = ordered.begin(0, 1, 0, 0, 0, 0, 1)
    ordered.tensor(outer, 0, 1, 1, results.launch("stream", kernel(1)))
    inner = ordered.begin(outer, 2, 0, 0, 0, 0, 1)
    ordered.tensor(inner, 0, 2, 1, results.launch("stream", kernel(2)))
    ordered.tensor(inner, 1, 3, 1, signature(3))
    ordered.end(inner, 0, 0, 0)
    ordered.mark(0, 1, 1, "step")
    assert listed.records == [("begin", 1, 0, 1)]
    device.wait_for_copies(2)
    device.release(1)
    ordered.drain()
    assert listed.records == [("begin", 1, 0, 1)]
    device.release(0)
    ordered.finish()
    assert listed.records == [
        *(("begin", 1, 0, 1), ("tensor", 1, 1, signature(1)), ("begin", 3, 1, 2)),
        *(("tensor", 3, 2, signature(2)), ("tensor", 3, 3, signature(3)), ("end", 3)),
        ("mark", 1, "step"),
    ]


def test_a_gradient_may_name_a_call_that_was_provisional_long_ago(device, results):
    listed = ListedWriter()
    ordered = OrderedWriter(listed)
    ordered.tensor(0, 0, 1, 1, results.launch("stream", kernel(1)))
    call = ordered.begin(0, 7, 0, 0, 0, 0, 1)
    device.wait_for_copies(1)
    device.release(0)
    ordered.finish()
    ordered.tensor(call, 4, 9, 1, signature(4))
    assert listed.records[1:] == [("begin", 2, 0, 7), ("tensor", 2, 9, signature(4))]


def test_a_record_is_left_out_when_its_fingerprint_turns_out_unchanged(device, results):
    listed = ListedWriter()
    ordered = OrderedWriter(listed)
    before = results.launch("stream", kernel(1))
    same = results.launch("stream", kernel(1))
    other = results.launch("stream", kernel(2))
    ordered.tensor(0, 1, 1, 1, same, unless=before)
    ordered.tensor(0, 1, 2, 1, other, unless=before)
    ordered.tensor(0, 1, 3, 1, signature(1), unless=before)
    ordered.tensor(0, 1, 4, 1, None, 1, unless=before)
    assert listed.records == []
    device.wait_for_copies(3)
    device.release(0, 1, 2)
    ordered.finish()
    assert listed.records == [("tensor", 0, 2, signature(2)), ("tensor", 0, 4, None)]


def test_rows_of_one_call_wait_each_for_its_own_fingerprint(device, results):
    listed = ListedWriter()
    ordered = OrderedWriter(listed)
    late = results.launch("stream", kernel(3))
    ordered.tensors(0, 0, [(1, 1, signature(1), 0), (2, 1, late, 0), (3, 1, None, 5)])
    assert listed.records == [("tensor", 0, 1, signature(1))]
    device.wait_for_copies(1)
    device.release(0)
    ordered.finish()
    assert listed.records[1:] == [("tensor", 0, 2, signature(3)), ("tensor", 0, 3, None)]


def test_too_many_waiting_records_wait_for_the_first_fingerprint():
    listed = ListedWriter()
    device = SimulatedDevice(immediate=True)
    results = Results(device, 8, page_slots=100, max_page_age_s=3600.0)
    ordered = OrderedWriter(listed, max_waiting=3)
    for value in range(6):
        ordered.tensor(0, 0, value, 1, results.launch("stream", kernel(value)))
    assert ordered.waits >= 1
    ordered.finish()
    results.close()
    assert listed.records == [("tensor", 0, value, signature(value)) for value in range(6)]


def test_any_interleaving_gives_the_records_of_a_device_that_is_never_late():
    for seed in range(30):
        chance = random.Random(seed)
        listed = [ListedWriter(), ListedWriter()]
        late, prompt = SimulatedDevice(), SimulatedDevice(immediate=True)
        queues = [
            Results(device, 8, page_slots=chance.choice((1, 3)), max_page_age_s=3600.0)
            for device in (late, prompt)
        ]
        writers = [OrderedWriter(writer) for writer in listed]
        calls: list[tuple[int, int]] = [(0, 0)]
        for number in range(60):
            kind = chance.choice(("begin", "tensor", "tensor", "value", "changed"))
            place, value, at = chance.randrange(2), chance.randrange(3), chance.randrange(3)
            both = chance.choice(calls)
            made = []
            for writer, results, call in zip(writers, queues, both, strict=True):
                if kind == "begin":
                    made.append(writer.begin(call, number, 0, 0, 0, 0, 1))
                elif kind == "value":
                    writer.value(call, 0, number, "text")
                else:
                    pending = results.launch(place, kernel(value))
                    unless = results.launch(place, kernel(at)) if kind == "changed" else None
                    writer.tensor(call, 0, number, 1, pending, unless=unless)
            if made:
                calls.append((made[0], made[1]))
            if late.copies and chance.random() < 0.4:
                late.release(chance.randrange(len(late.copies)))
        for device, results, writer in zip((late, prompt), queues, writers, strict=True):
            results.flush()
            while writer.waiting:
                device.release(*range(len(device.copies)))
                writer.drain()
            results.close()
        assert listed[0].records == listed[1].records
        assert len(listed[0].records) > 20


def test_the_native_writer_accepts_what_the_queue_appends(device, results, tmp_path):
    writer = xorsig.CaptureWriter(
        str(tmp_path / "rank-0"), str(tmp_path / "staging"), capture_id="0" * 32, rank=0, regions=1
    )
    ordered = OrderedWriter(writer)
    layout = ordered.layout("float32", (2,), (1,), "cuda:0", "strided", 8)
    name = ordered.intern("name")
    call = ordered.begin(0, 1, 0, 0, 0, 0, name)
    ordered.tensor(call, 0, name, layout, results.launch("stream", kernel(1)))
    inner = ordered.begin(call, 2, 0, 0, 0, 0, name)
    ordered.tensor(inner, 1, name, layout, signature(2))
    ordered.end(inner, 0, 0, 0)
    ordered.end(call, 0, 0, 0)
    device.wait_for_copies(1)
    device.release(0)
    ordered.finish()
    writer.close()
    counted = xorsig.verify_capture(str(tmp_path / "rank-0"), "0" * 32, 0)
    assert counted["records"] == 6
