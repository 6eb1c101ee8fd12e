"""Virtual time, chance, network and clocks behave as the simulator relies on."""

from fastlock.testing.simulator.network import Network, Weather
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.process import Owner, Process
from fastlock.testing.simulator.session import Lease
from fastlock.testing.simulator.time import MILLISECOND, SECOND, Clock, Timeline


def test_random_is_the_same_for_ever():
    random = Random(1)
    assert [random.next64() for _ in range(3)] == [
        0x910A2DEC89025CC1,
        0xBEEB8DA1658EEC67,
        0xF893A2EEFB32555E,
    ]


def test_random_numbers_stay_in_their_bounds():
    random = Random(7)
    drawn = [random.between(3, 5) for _ in range(300)]
    assert sorted(dict.fromkeys(drawn)) == [3, 4, 5]
    assert sorted(random.shuffled(range(20))) == list(range(20))
    assert not any(random.chance(0.0) for _ in range(50))
    assert all(random.chance(1.0) for _ in range(50))


def test_events_run_in_order_of_time_then_of_scheduling():
    timeline = Timeline()
    seen = []
    timeline.at(20, seen.append, "late")
    timeline.at(10, seen.append, "first")
    timeline.at(10, seen.append, "second")
    timeline.after(5, lambda: timeline.after(5, seen.append, "third"))
    assert timeline.run_until(15) == 4
    assert seen == ["first", "second", "third"]
    assert timeline.now_ns == 15


def test_a_clock_drifts_and_leaps():
    timeline = Timeline()
    clock = Clock(timeline, drift_ppm=10_000)
    timeline.run_until(10 * SECOND)
    assert clock.now_ns() == 10 * SECOND + 100 * MILLISECOND
    due_ns = clock.true_ns(clock.now_ns() + SECOND)
    timeline.run_until(due_ns)
    assert clock.now_ns() >= 11 * SECOND + 100 * MILLISECOND
    before = clock.now_ns()
    clock.leap(SECOND)
    assert clock.now_ns() == before + SECOND


def test_a_lease_is_believed_in_by_the_clock_of_its_client():
    timeline = Timeline()
    clock = Clock(timeline)
    lease = Lease(1, 1, 1000, clock, False)
    lease.confirmed(clock.now_ns(), timeline.now_ns)
    assert lease.spans == [(0, 980 * MILLISECOND)]
    timeline.run_until(100 * MILLISECOND)
    clock.leap(500 * MILLISECOND)
    lease.clock_changed()
    assert lease.spans == [(0, 480 * MILLISECOND)]
    clock.set_drift(-500_000)
    lease.clock_changed()
    assert lease.spans == [(0, 860 * MILLISECOND)]


def test_a_lease_that_was_given_up_is_not_believed_in_again():
    timeline = Timeline()
    lease = Lease(1, 1, 1000, Clock(timeline), False)
    lease.confirmed(0, 0)
    timeline.run_until(100 * MILLISECOND)
    lease.give_up(timeline.now_ns)
    lease.confirmed(timeline.now_ns, timeline.now_ns)
    assert not lease.trusted()
    assert lease.spans == [(0, 100 * MILLISECOND)]


def network(seed=1):
    timeline = Timeline()
    arrived = []
    net = Network(
        timeline, Random(seed), lambda source, target, message: arrived.append((source, target, message))
    )
    return timeline, net, arrived


def test_a_cut_holds_in_its_direction_only():
    timeline, net, arrived = network()
    net.split([1], [2], one_way=True)
    net.send(1, 2, "heard")
    net.send(2, 1, "lost")
    timeline.run_until(SECOND)
    assert arrived == [(1, 2, "heard")]
    net.heal()
    net.send(2, 1, "heard again")
    timeline.run_until(2 * SECOND)
    assert arrived[-1] == (2, 1, "heard again")


def test_a_cut_takes_what_is_under_way():
    timeline, net, arrived = network()
    net.send(1, 2, "under way")
    net.split([1], [2])
    timeline.run_until(SECOND)
    assert arrived == []


def test_weather_loses_and_duplicates():
    timeline, net, arrived = network()
    net.weather = Weather(loss=0.5, duplication=0.5, stray=0.5)
    for number in range(1000):
        net.send(1, 2, number)
    timeline.run_until(SECOND)
    messages = [message for _, _, message in arrived]
    distinct = len(dict.fromkeys(messages))
    assert 400 < distinct < 600
    assert len(messages) > distinct
    assert messages != sorted(messages)


def test_a_process_waits_is_woken_and_can_be_held_back():
    timeline = Timeline()
    owner = Owner()
    seen = []

    def steps():
        for _ in range(3):
            value = yield 100
            seen.append((timeline.now_ns, value))

    process = Process(timeline, owner, steps())
    timeline.run_until(50)
    process.deliver("early")
    timeline.run_until(160)
    owner.paused = True
    timeline.run_until(400)
    assert seen == [(50, "early"), (150, None)]
    owner.resume()
    assert seen[-1] == (400, None)
    assert process.finished
