"""The queue of results, on a device that completes late and out of order."""

import os
import threading
import time
import weakref

import pytest
import torch
from simulated import SimulatedDevice

import xorsig
from opguard.core.cuda.results import Results
from opguard.core.fingerprint import signature_bytes


class Receiver:
    """Takes what arrives, as the capture writer does."""

    def __init__(self) -> None:
        self.values: list[tuple[xorsig.PendingSignature, bytes | None]] = []
        self.changed = threading.Condition()

    def resolve(self, signatures, data: bytes | None) -> None:
        assert data is None or len(data) == 8 * len(signatures)
        with self.changed:
            for i, signature in enumerate(signatures):
                value = None if data is None else data[8 * i : 8 * i + 8]
                self.values.append((signature, value))
            self.changed.notify_all()

    def value(self, signature: xorsig.PendingSignature) -> bytes | None:
        (value,) = [value for known, value in self.values if known == signature]
        return value

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.values) >= count, 60)


def queue(device, receiver, **options) -> Results:
    defaults = {"page_slots": 2, "max_page_age_s": 3600.0}
    return Results(device, receiver, 8, **defaults | options)


def tensor(value: int) -> torch.Tensor:
    return torch.tensor([value, 7 * value + 1])


def expected(value: int) -> bytes:
    return signature_bytes(tensor(value), 1)


@pytest.mark.requirement("F9")
def test_values_arrive_whatever_the_order_of_completion():
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver)
    pending = [results.fingerprint(tensor(value)) for value in range(6)]
    device.wait_for_copies(3)
    assert receiver.values == []
    arrived = []
    for page in (2, 0, 1):
        device.release(page)
        arrived += pending[2 * page : 2 * page + 2]
        receiver.wait_for(len(arrived))
        assert [known for known, _ in receiver.values] == arrived
    assert [receiver.value(item) for item in pending] == [expected(value) for value in range(6)]
    assert results.waits == 0
    results.close()


def test_a_launch_does_not_wait_for_the_device():
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver)
    for value in range(20):
        results.fingerprint(tensor(value))
    assert (results.waits, receiver.values) == (0, [])
    device.wait_for_copies(10)
    device.release(*range(10))
    results.close()
    assert len(receiver.values) == 20


def test_each_device_and_stream_has_pages_of_its_own():
    """The simulated device refuses a launch into another stream's page."""
    device, receiver = SimulatedDevice(immediate=True), Receiver()
    results = queue(device, receiver)
    pending = []
    for value in range(12):
        device.stream = ((0, 1), (0, 2), (1, 1))[value % 3]
        pending.append(results.fingerprint(tensor(value)))
    results.close()
    assert [receiver.value(item) for item in pending] == [expected(value) for value in range(12)]
    assert {page.place for page in device.pages} == {(0, 1), (0, 2), (1, 1)}


def test_a_full_queue_waits_for_its_oldest_page_and_drops_nothing():
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver, max_pending_pages=2)
    pending = [results.fingerprint(tensor(value)) for value in range(5)]
    device.wait_for_copies(2)
    blocked = threading.Thread(target=lambda: pending.append(results.fingerprint(tensor(5))))
    blocked.start()
    device.wait_for_copies(3)
    device.release(2, 1)
    blocked.join(0.2)
    assert blocked.is_alive()
    device.release(0)
    blocked.join()
    results.close()
    assert results.waits == 1
    assert [receiver.value(item) for item in pending] == [expected(value) for value in range(6)]


def test_memory_is_used_again_only_after_its_copy_has_ended():
    """The simulated device refuses a launch into a page whose copy is under way."""
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver)
    pending = [results.fingerprint(tensor(value)) for value in (1, 2, 3, 4)]
    assert len(device.pages) == 2
    device.wait_for_copies(2)
    device.release(0)
    receiver.wait_for(2)
    pending += [results.fingerprint(tensor(value)) for value in (5, 6)]
    assert len(device.pages) == 2
    device.wait_for_copies(3)
    device.release(1, 2)
    results.close()
    assert [receiver.value(item) for item in pending] == [expected(v) for v in range(1, 7)]


def test_an_old_page_is_fetched_though_it_is_not_full():
    device, receiver = SimulatedDevice(immediate=True), Receiver()
    results = queue(device, receiver, page_slots=100, max_page_age_s=0.01)
    pending = results.fingerprint(tensor(7))
    receiver.wait_for(1)
    assert receiver.value(pending) == expected(7)
    results.close()


def test_no_tensor_is_kept_alive():
    device = SimulatedDevice()
    results = queue(device, Receiver())
    large = tensor(1)
    gone = weakref.ref(large)
    results.fingerprint(large)
    del large
    assert gone() is None
    results.flush()
    device.wait_for_copies(1)
    device.release(0)
    results.close()


def test_a_launch_that_raises_leaves_its_slot_free():
    device, receiver = SimulatedDevice(immediate=True), Receiver()
    results = queue(device, receiver)

    def refused(*_):
        raise OSError("refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "launch", refused)
        with pytest.raises(OSError, match="refused"):
            results.fingerprint(tensor(1))
    pending = results.fingerprint(tensor(2))
    results.close()
    assert receiver.values == [(pending, expected(2))]


def test_a_failing_device_loses_what_is_on_its_way_and_is_reported_once():
    device, receiver, reports = SimulatedDevice(), Receiver(), []
    results = queue(device, receiver, page_slots=2, report=reports.append)
    device.failure = RuntimeError("device-side assert")
    device.stream = (0, 1)
    pending = [results.fingerprint(tensor(1))]
    device.stream = (0, 2)
    pending += [results.fingerprint(tensor(value)) for value in (2, 3)]
    receiver.wait_for(3)
    with pytest.raises(RuntimeError, match="cannot be fetched") as caught:
        results.fingerprint(tensor(4))
    assert caught.value.__cause__ is device.failure
    results.close()
    assert {receiver.value(item) for item in pending} == {None}
    assert len(reports) == 1
    assert "RuntimeError: device-side assert" in reports[0]


def test_threads_that_launch_at_once_get_slots_of_their_own():
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver, page_slots=7)
    found: list[tuple[int, xorsig.PendingSignature]] = []

    def work(first: int) -> None:
        found.extend((v, results.fingerprint(tensor(v))) for v in range(first, first + 40))

    with device.completing_late(seed=1):
        threads = [threading.Thread(target=work, args=(40 * number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.close()
    assert len(found) == 240
    assert all(receiver.value(item) == expected(value) for value, item in found)


def test_the_fetching_thread_is_not_among_the_threads_of_the_program():
    results = queue(SimulatedDevice(immediate=True), Receiver())
    before = threading.enumerate()
    results.fingerprint(tensor(1))
    assert threading.enumerate() == before
    results.close()


def test_idle_results_do_not_poll():
    device, receiver = SimulatedDevice(immediate=True), Receiver()
    results = queue(device, receiver)
    results.fingerprint(tensor(1))
    results.flush()
    receiver.wait_for(1)
    deadline = time.monotonic() + 60
    while results._closed and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert results._round() is None
    results.close()


def test_a_forked_child_leaves_the_results_to_its_parent():
    device, receiver = SimulatedDevice(), Receiver()
    results = queue(device, receiver)
    pending = results.fingerprint(tensor(3))
    child = os.fork()
    if child == 0:
        results.close()
        os._exit(0 if receiver.values == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    results.flush()
    device.wait_for_copies(1)
    device.release(0)
    results.close()
    assert receiver.values == [(pending, expected(3))]
