"""The queue of results, on a device that completes late and out of order."""

import threading
import time

import pytest
from simulated import SimulatedDevice, kernel

from opguard.core.cuda.results import Results


def queue(device, **options) -> Results:
    defaults = {"page_slots": 2, "max_page_age_s": 3600.0}
    return Results(device, 8, **defaults | options)


def test_values_arrive_whatever_the_order_of_completion():
    device = SimulatedDevice()
    arrivals = threading.Semaphore(0)
    results = queue(device, arrived=arrivals.release)
    pending = [results.launch("stream", kernel(value)) for value in range(1, 7)]
    device.wait_for_copies(3)
    assert not any(item.ready for item in pending)
    for page in (2, 0, 1):
        device.release(page)
        assert arrivals.acquire(timeout=60)
        expected = [number // 2 == page or item.ready for number, item in enumerate(pending)]
        assert [item.ready for item in pending] == expected
    assert [item.bytes() for item in pending] == [bytes([value]) * 8 for value in range(1, 7)]
    assert results.waits == 0
    results.close()


def test_a_launch_does_not_wait_for_the_device():
    device = SimulatedDevice()
    results = queue(device)
    pending = [results.launch("stream", kernel(value)) for value in range(20)]
    assert results.waits == 0
    assert not any(item.ready for item in pending)
    device.wait_for_copies(10)
    device.release(*range(10))
    results.close()
    assert all(item.ready for item in pending)


def test_each_stream_has_pages_of_its_own():
    device = SimulatedDevice(immediate=True)
    results = queue(device)
    places = [(0, 1), (0, 2), (1, 1)] * 3
    pending = [(value, results.launch(place, kernel(value))) for value, place in enumerate(places)]
    results.close()
    assert [item.bytes() for _, item in pending] == [bytes([value]) * 8 for value, _ in pending]
    assert device.pages >= 3


def test_a_value_that_is_asked_for_early_is_waited_for_and_counted():
    device = SimulatedDevice()
    results = queue(device)
    pending = results.launch("stream", kernel(9))
    releaser = threading.Thread(target=lambda: (device.wait_for_copies(1), device.release(0)))
    releaser.start()
    assert pending.bytes() == bytes([9]) * 8
    releaser.join()
    assert results.waits == 1
    results.close()


def test_a_full_queue_waits_for_its_oldest_page_and_drops_nothing():
    device = SimulatedDevice()
    results = queue(device, max_pending_pages=2)
    pending = [results.launch("stream", kernel(value)) for value in range(5)]
    device.wait_for_copies(2)
    blocked = threading.Thread(target=lambda: pending.append(results.launch("stream", kernel(5))))
    blocked.start()
    device.wait_for_copies(3)
    device.release(2, 1)
    blocked.join(0.2)
    assert blocked.is_alive()
    device.release(0)
    blocked.join()
    results.close()
    assert results.waits == 1
    assert [item.bytes() for item in pending] == [bytes([value]) * 8 for value in range(6)]


def test_memory_is_used_again_only_after_its_copy_has_ended():
    device = SimulatedDevice()
    results = queue(device)
    first = [results.launch("stream", kernel(value)) for value in (1, 2)]
    second = [results.launch("stream", kernel(value)) for value in (3, 4)]
    assert device.pages == 2
    device.wait_for_copies(2)
    device.release(0)
    assert first[0].bytes() == bytes([1]) * 8
    third = [results.launch("stream", kernel(value)) for value in (5, 6)]
    assert device.pages == 2
    device.wait_for_copies(3)
    device.release(1, 2)
    results.close()
    values = [item.bytes()[0] for item in (*first, *second, *third)]
    assert values == [1, 2, 3, 4, 5, 6]


def test_an_old_page_is_fetched_though_it_is_not_full():
    device = SimulatedDevice(immediate=True)
    arrived = threading.Event()
    results = queue(device, page_slots=100, max_page_age_s=0.01, arrived=arrived.set)
    pending = results.launch("stream", kernel(7))
    assert arrived.wait(60)
    assert pending.ready
    results.close()


def test_a_launch_that_raises_leaves_its_slot_free():
    device = SimulatedDevice(immediate=True)
    results = queue(device)

    def refused(page, slot):
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        results.launch("stream", refused)
    pending = results.launch("stream", kernel(1))
    results.close()
    assert pending.bytes() == bytes([1]) * 8
    assert device.launches == 1


def test_a_failing_device_is_reported_by_the_next_launch():
    device = SimulatedDevice()
    results = queue(device)
    device.copy = lambda page: 1 / 0
    results.launch("stream", kernel(1))
    results.launch("stream", kernel(2))
    with pytest.raises(RuntimeError) as caught:
        results.close()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RuntimeError):
        results.launch("stream", kernel(3))


def test_threads_that_launch_at_once_get_slots_of_their_own():
    device = SimulatedDevice(immediate=True)
    results = queue(device, page_slots=7)
    found: list[tuple[int, bytes]] = []

    def work(first: int) -> None:
        mine = [(v, results.launch(first % 3, kernel(v))) for v in range(first, first + 40)]
        found.extend((value, item.bytes()) for value, item in mine)

    threads = [threading.Thread(target=work, args=(40 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.close()
    assert sorted(found) == [(value, bytes([value]) * 8) for value in range(240)]


def test_the_fetching_thread_is_not_among_the_threads_of_the_program():
    results = queue(SimulatedDevice(immediate=True))
    before = threading.enumerate()
    results.launch("stream", kernel(1))
    assert threading.enumerate() == before
    results.close()


def test_idle_results_do_not_poll(monkeypatch):
    device = SimulatedDevice(immediate=True)
    results = queue(device)
    results.launch("stream", kernel(1))
    results.launch("stream", kernel(2))
    results.flush()
    deadline = time.monotonic() + 60
    while results._closed and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert results._round() is None
    results.close()
