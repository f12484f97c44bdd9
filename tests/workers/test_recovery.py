"""Retransmission timers as in RFC 6298."""

import numpy as np
import pytest

from fanin.workers.recovery import Recovery, RttEstimator, Timers

RECOVERY = Recovery(initial_rto=0.1, min_rto=0.01, max_rto=1.0)


def places(*indices: int) -> np.ndarray:
    return np.array(indices, np.int64)


def test_before_any_measurement_the_timeout_is_the_initial_one() -> None:
    assert RttEstimator(RECOVERY).rto == 0.1


def test_the_first_measurement_sets_srtt_and_half_of_it_as_variation() -> None:
    rtt = RttEstimator(RECOVERY)
    rtt.sample(0.04, 1.0)
    assert rtt.smoothed == 0.04
    assert rtt.rto == pytest.approx(0.04 + 4 * 0.02)


def test_later_measurements_move_srtt_by_an_eighth_and_the_variation_by_a_quarter() -> None:
    rtt = RttEstimator(RECOVERY)
    rtt.sample(0.04, 1.0)
    rtt.sample(0.08, 1.0)
    assert rtt.smoothed == pytest.approx(0.04 * 7 / 8 + 0.08 / 8)
    assert rtt.variation == pytest.approx(0.02 * 3 / 4 + 0.04 / 4)


def test_one_window_of_measurements_weighs_about_as_much_as_one_of_the_rfc() -> None:
    one, many = RttEstimator(RECOVERY), RttEstimator(RECOVERY)
    one.sample(0.04, 1.0)
    many.sample(0.04, 1.0)
    one.sample(0.08, 1.0)
    for _ in range(64):
        many.sample(0.08, 1 / 64)
    assert many.smoothed == pytest.approx(one.smoothed, rel=0.01)


@pytest.mark.parametrize(("rtt", "rto"), [(0.0001, 0.01), (5.0, 1.0)])
def test_the_timeout_stays_within_its_limits(rtt: float, rto: float) -> None:
    estimator = RttEstimator(RECOVERY)
    estimator.sample(rtt, 1.0)
    assert estimator.rto == rto


def test_a_timer_expires_when_its_time_has_come_and_not_before() -> None:
    timers = Timers(4, RECOVERY)
    timers.start(places(1), 5.0)
    assert timers.earliest() == 5.1
    assert not len(timers.expired(5.05))
    assert list(timers.expired(5.1)) == [1]
    assert list(timers.times_sent) == [0, 2, 0, 0]


def test_silence_has_one_packet_sent_again_each_time_the_one_sent_longest_ago() -> None:
    timers = Timers(3, RECOVERY)
    timers.start(places(2, 0, 1), 0.0)
    now, again = 0.0, []
    for _ in range(4):
        now = timers.earliest()
        again += list(timers.expired(now))
    assert again == [2, 0, 1, 2]
    assert timers.timeouts == 4
    assert now == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)  # backed off, all of them


def test_once_silence_is_broken_the_rest_is_lost_unless_its_answers_come_as_well() -> None:
    timers = Timers(4, RECOVERY)
    timers.rtt.sample(0.02, 1.0)
    timers.start(places(0, 1, 2, 3), 0.0)
    assert list(timers.expired(timers.earliest())) == [0]
    timers.stop(places(0), 0.5)
    lost_at = 0.5 + timers.rtt.rto_without_floor
    timers.stop(places(1), 0.51)  # the answers had been held up
    assert timers.earliest() == pytest.approx(lost_at)
    assert not len(timers.expired(0.52))
    assert list(timers.expired(timers.earliest())) == [2, 3]


def test_each_expiry_doubles_the_time_up_to_the_longest() -> None:
    timers = Timers(1, RECOVERY)
    timers.start(places(0), 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        waits.append(timers.earliest() - now)
        now = timers.earliest()
        assert list(timers.expired(now)) == [0]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_stopped_timer_does_not_expire() -> None:
    timers = Timers(2, RECOVERY)
    timers.start(places(0, 1), 0.0)
    timers.stop(places(0), 0.02)
    assert list(timers.expired(10.0)) == [1]


def test_no_measurement_is_taken_of_what_was_sent_twice() -> None:
    timers = Timers(2, RECOVERY)
    timers.start(places(0), 0.0)
    timers.expired(0.1)
    timers.stop(places(0), 0.11)
    assert timers.rtt.smoothed is None


def test_after_an_expiry_new_timers_start_backed_off_until_a_packet_sent_once_is_answered() -> None:
    timers = Timers(2, RECOVERY)
    timers.start(places(0), 0.0)
    timers.expired(0.1)
    timers.stop(places(0), 0.11)  # sent twice: no measurement
    timers.start(places(0), 0.11)
    assert timers.earliest() == pytest.approx(0.11 + 2 * 0.1)
    timers.stop(places(0), 0.13)  # sent once: srtt 0.02, rto 0.06
    timers.start(places(1), 0.13)
    assert timers.earliest() == pytest.approx(0.13 + 0.06)


def test_any_answer_begins_all_timers_again() -> None:
    """The queue moves: what is behind the answered packet comes later, and is not lost."""
    timers = Timers(3, RECOVERY)
    timers.start(places(0, 1, 2), 0.0)
    timers.stop(places(0), 0.05)  # rto now 0.05 + 4 * 0.025
    assert timers.earliest() == pytest.approx(0.05 + 0.1)
    timers.stop(places(1), 0.14)
    assert timers.earliest() == pytest.approx(0.14 + 0.1)
    assert timers.timeouts == 0


def test_a_packet_that_others_overtake_is_lost_a_round_trip_and_its_variation_after_it_was_sent() -> None:
    timers = Timers(3, RECOVERY)
    timers.start(places(0, 1, 2), 0.0)
    timers.stop(places(1), 0.002)  # srtt 0.002, variation 0.001: below the smallest rto
    assert timers.earliest() == pytest.approx(0.006)
    assert list(timers.expired(0.006)) == [0]  # 2 was sent later than 1
    assert timers.timeouts == 0
    assert not len(timers.expired(0.015))  # it was sent again, after what overtook it


def test_an_answer_that_others_overtook_is_no_measurement() -> None:
    """It came late since a part of it was lost; perhaps another worker's part, and not ours."""
    timers = Timers(2, RECOVERY)
    timers.start(places(0, 1), 0.0)
    timers.stop(places(1), 0.002)
    timers.stop(places(0), 0.005)
    assert timers.rtt.smoothed == 0.002


def test_no_measurement_is_taken_where_the_answer_waits_for_a_late_worker() -> None:
    timers = Timers(1, RECOVERY)
    timers.start(places(0), 0.0, measure=False)
    timers.stop(places(0), 0.05)
    assert timers.rtt.smoothed is None


def test_of_a_batch_the_packet_sent_last_is_the_measurement() -> None:
    timers = Timers(2, RECOVERY)
    timers.start(places(0), 0.0)
    timers.start(places(1), 0.01)
    timers.stop(places(0, 1), 0.03)
    assert timers.rtt.smoothed == pytest.approx(0.02)


def test_a_silence_of_any_length_is_only_silence() -> None:
    """Doubled more than 1,023 times a timeout would be beyond any float."""
    timers = Timers(2, RECOVERY)
    timers.start(places(0), 0.0)
    now = 0.0
    for _ in range(1100):
        now = timers.earliest()
        assert timers.expired(now).tolist() == [0]
    timers.start(places(1), now)
    assert timers.earliest() == now + RECOVERY.max_rto


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_rto": 0.0}, "0 < min_rto"),
        ({"initial_rto": 2.0}, "initial_rto <= max_rto"),
        ({"give_up": 0.0}, "give_up must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recovery(**settings)
