//! What one lane holds in memory: its next due deliveries, by class, in order of their due time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use crate::delivery::{PendingDelivery, Tier};
use crate::id::DeliveryKey;
use crate::time::Timestamp;

/// Something that takes memory beside its delivery.
pub trait Payload: Clone {
    /// Bytes that it takes, for the dispatcher's budget.
    fn bytes(&self) -> usize;
}

/// Why a delivery waits, which decides how it shares the lane. Live traffic never stands behind a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Accepted within the last [`FRESH_TIME`].
    Fresh,
    /// A retry, scheduled or immediate.
    Retry,
    /// A first attempt that has waited for longer, or was read from the store.
    Backlog,
    /// A retry of the slow schedule.
    LongTerm,
    /// Part of a replay.
    Replay,
}

const CLASSES: usize = 5;

/// What has waited for longer than this is backlog, and stands before nothing that is younger.
pub(super) const FRESH_TIME: Duration = Duration::from_secs(10);

/// Share of each class while several are due: of 19 starts, 8 are fresh and one is a replay.
const WEIGHTS: [i32; CLASSES] = [8, 5, 4, 1, 1];

impl Class {
    fn of(delivery: &PendingDelivery, fresh: bool) -> Self {
        if delivery.replayed {
            Self::Replay
        } else if delivery.plan.tier == Tier::LongTerm {
            Self::LongTerm
        } else if delivery.progress.attempts > 0 {
            Self::Retry
        } else if fresh {
            Self::Fresh
        } else {
            Self::Backlog
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A delivery that waits, with its payload when that is in memory.
#[derive(Debug, Clone)]
pub(super) struct Waiting<P> {
    pub(super) delivery: PendingDelivery,
    pub(super) payload: Option<P>,
}

/// The classes of one lane. Picking is smooth weighted round robin (as nginx picks upstreams): no class starves.
#[derive(Debug)]
pub(super) struct Queue<P> {
    classes: [BTreeMap<(Timestamp, DeliveryKey), Waiting<P>>; CLASSES],
    credit: [i32; CLASSES],
    len: usize,
}

impl<P> Queue<P> {
    pub(super) fn new() -> Self {
        Self {
            classes: std::array::from_fn(|_| BTreeMap::new()),
            credit: [0; CLASSES],
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many of them are replays.
    pub(super) fn replays(&self) -> usize {
        self.classes[Class::Replay.index()].len()
    }

    /// How many of them are due and neither replays nor fresh, counted up to a bound.
    pub(super) fn backlog(&self, now: Timestamp, at_most: usize) -> usize {
        let due = ..=(now, DeliveryKey(i64::MAX));
        let rest = &self.classes[Class::Retry.index()..Class::Replay.index()];
        rest.iter()
            .flat_map(|class| class.range(due))
            .take(at_most)
            .count()
    }

    /// What is not fresh any more becomes backlog.
    pub(super) fn age(&mut self, now: Timestamp) {
        let oldest = now.minus(FRESH_TIME);
        while let Some(first) = self.classes[Class::Fresh.index()].first_entry()
            && first.key().0 < oldest
        {
            let (at, waiting) = first.remove_entry();
            self.classes[Class::Backlog.index()].insert(at, waiting);
        }
    }

    pub(super) fn push(&mut self, waiting: Waiting<P>, fresh: bool) {
        let class = Class::of(&waiting.delivery, fresh);
        let at = (waiting.delivery.plan.due_at, waiting.delivery.key);
        if self.classes[class.index()].insert(at, waiting).is_none() {
            self.len += 1;
        }
    }

    /// The earliest due time of all.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.classes
            .iter()
            .filter_map(|class| class.first_key_value())
            .map(|((due, _), _)| *due)
            .min()
    }

    /// The earliest due time of replays, and of everything else.
    pub(super) fn next_due_apart(&self) -> [Option<Timestamp>; 2] {
        let due =
            |class: &BTreeMap<(Timestamp, DeliveryKey), _>| class.first_key_value().map(|((due, _), _)| *due);
        let (replays, others) = (
            &self.classes[Class::Replay.index()],
            &self.classes[..Class::Replay.index()],
        );
        [due(replays), others.iter().filter_map(due).min()]
    }

    /// Takes the due delivery whose class has waited for its share the longest; no replay unless they may start now.
    pub(super) fn pop_due(&mut self, now: Timestamp, replays: bool) -> Option<Waiting<P>> {
        let mut total = 0;
        let mut chosen: Option<usize> = None;
        for (index, class) in self.classes.iter().enumerate() {
            let due = class.first_key_value().is_some_and(|((due, _), _)| *due <= now);
            if !due || (!replays && index == Class::Replay.index()) {
                self.credit[index] = 0;
                continue;
            }
            total += WEIGHTS[index];
            self.credit[index] += WEIGHTS[index];
            if chosen.is_none_or(|best| self.credit[index] > self.credit[best]) {
                chosen = Some(index);
            }
        }
        let index = chosen?;
        self.credit[index] -= total;
        self.len -= 1;
        self.classes[index].pop_first().map(|(_, waiting)| waiting)
    }

    /// The classes, without that of replays unless it is wanted.
    fn classes(&self, replays: bool) -> &[BTreeMap<(Timestamp, DeliveryKey), Waiting<P>>] {
        let (others, _) = self.classes.split_at(Class::Replay.index());
        if replays { &self.classes } else { others }
    }

    /// The two earliest due times, each with its delivery.
    fn first_two(&self, replays: bool) -> [Option<(Timestamp, DeliveryKey)>; 2] {
        let earliest = self
            .classes(replays)
            .iter()
            .flat_map(|class| class.keys().take(2));
        earliest.fold([None, None], |[first, second], &at| {
            if first.is_none_or(|first| at < first) {
                [Some(at), first]
            } else if second.is_none_or(|second| at < second) {
                [first, Some(at)]
            } else {
                [first, second]
            }
        })
    }

    /// Takes the delivery that has been due the longest at `now`, if something else is due by `later`. Replays count only
    /// where they may go.
    pub(super) fn pop_spare(
        &mut self,
        now: Timestamp,
        later: Timestamp,
        replays: bool,
    ) -> Option<Waiting<P>> {
        let [first, second] = self.first_two(replays);
        let (due, key) = first.filter(|(due, _)| *due <= now)?;
        second.filter(|(due, _)| *due <= later)?;
        self.remove(key, due)
    }

    /// The earliest due time after `now`, of replays only where they may go.
    pub(super) fn next_due_after(&self, now: Timestamp, replays: bool) -> Option<Timestamp> {
        let after = (Bound::Excluded((now, DeliveryKey(i64::MAX))), Bound::Unbounded);
        let classes = self.classes(replays).iter();
        let later = classes.filter_map(|class| class.range(after).next());
        later.map(|((due, _), _)| *due).min()
    }

    /// Takes a delivery out by name.
    pub(super) fn remove(&mut self, key: DeliveryKey, due: Timestamp) -> Option<Waiting<P>> {
        let found = self
            .classes
            .iter_mut()
            .find_map(|class| class.remove(&(due, key)))?;
        self.len -= 1;
        Some(found)
    }

    /// Takes out a delivery that may go back to the store, the last due of its kind. Replays that may start have room for a
    /// quarter of `capacity`, others for none; what is fresh has room for half of it. While both keep to that, the rest gives
    /// way.
    pub(super) fn evict(
        &mut self,
        capacity: usize,
        replays_start: bool,
        may_go: impl Fn(DeliveryKey) -> bool,
    ) -> Option<Waiting<P>> {
        let last_of = |class: &BTreeMap<(Timestamp, DeliveryKey), _>| {
            let mut latest = class.keys().rev().take(EVICTION_SCAN);
            latest.find(|(_, key)| may_go(*key)).copied()
        };
        let (others, replays) = self.classes.split_at(Class::Replay.index());
        let (fresh, rest) = others.split_at(Class::Retry.index());
        let many_replays = !replays_start || self.replays() > (capacity / 4).max(1);
        let many_fresh = fresh.iter().map(BTreeMap::len).sum::<usize>() > capacity / 2;
        let order = match (many_replays, many_fresh) {
            (true, true) => [replays, fresh, rest],
            (true, false) => [replays, rest, fresh],
            (false, true) => [fresh, rest, replays],
            (false, false) => [rest, replays, fresh],
        };
        let (due, key) = order
            .into_iter()
            .find_map(|classes| classes.iter().filter_map(last_of).max())?;
        self.remove(key, due)
    }
}

/// How many deliveries of a class are looked at for one that may go. Few are unsettled at a time.
const EVICTION_SCAN: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::{Plan, Progress};
    use crate::id::{DestinationKey, EventKey, TenantKey};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn waiting(key: i64, change: impl Fn(&mut PendingDelivery)) -> Waiting<()> {
        let mut delivery = PendingDelivery {
            key: DeliveryKey(key),
            event: EventKey(key),
            tenant: TenantKey(1),
            destination: DestinationKey(1),
            plan: Plan::first(NOW),
            progress: Progress::new(NOW),
            retryable: true,
            replayed: false,
            last_attempt: None,
            context: None,
        };
        change(&mut delivery);
        Waiting {
            delivery,
            payload: None,
        }
    }

    #[test]
    fn due_classes_share_by_weight_and_none_starves() {
        let mut queue = Queue::new();
        for n in 0..1_000 {
            queue.push(waiting(n, |_| ()), true);
            queue.push(waiting(10_000 + n, |_| ()), false);
            queue.push(waiting(20_000 + n, |d| d.progress.attempts = 1), false);
            queue.push(waiting(30_000 + n, |d| d.plan.tier = Tier::LongTerm), false);
            queue.push(waiting(40_000 + n, |d| d.replayed = true), false);
        }
        let mut counts = [0; CLASSES];
        let mut taken = Vec::new();
        for _ in 0..190 {
            let key = queue.pop_due(NOW, true).map_or(-1, |w| w.delivery.key.0);
            taken.push(key);
            counts[usize::try_from(key / 10_000).unwrap()] += 1;
        }
        assert_eq!(
            counts,
            [80, 40, 50, 10, 10],
            "fresh, backlog, retry, long-term, replay of 190"
        );
        assert!(
            taken[..19].iter().any(|key| *key >= 40_000),
            "a replay within one turn of weights"
        );
    }

    #[test]
    fn nothing_leaves_before_it_is_due() {
        let mut queue = Queue::new();
        queue.push(
            waiting(1, |d| d.plan.due_at = NOW.plus(Duration::from_millis(1))),
            false,
        );
        assert!(queue.pop_due(NOW, true).is_none());
        assert_eq!(queue.next_due(), Some(NOW.plus(Duration::from_millis(1))));
        assert!(queue.pop_due(NOW.plus(Duration::from_millis(1)), true).is_some());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn eviction_takes_the_latest_that_may_go() {
        let mut queue = Queue::new();
        for n in 1..=3_i64 {
            queue.push(
                waiting(n, |d| {
                    d.plan.due_at = NOW.plus(Duration::from_secs(n.unsigned_abs()));
                }),
                false,
            );
        }
        let gone = queue
            .evict(8, true, |key| key != DeliveryKey(3))
            .map(|w| w.delivery.key);
        assert_eq!(gone, Some(DeliveryKey(2)));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn eviction_leaves_fresh_ones_half_of_the_room_and_replays_a_quarter() {
        let full = || {
            let mut queue = Queue::new();
            for n in 0..10 {
                queue.push(waiting(n, |_| ()), true);
                queue.push(waiting(10 + n, |_| ()), false);
                queue.push(waiting(20 + n, |d| d.replayed = true), false);
            }
            queue
        };
        let evicted = |replays_start: bool| {
            let mut queue = full();
            let evict = || queue.evict(16, replays_start, |_| true).map(|w| w.delivery.key.0);
            std::iter::from_fn(evict).collect::<Vec<_>>()
        };
        let down = |range: std::ops::Range<i64>| range.rev();
        let right = down(24..30)
            .chain(down(8..10))
            .chain(down(10..20))
            .chain(down(20..24))
            .chain(down(0..8));
        assert_eq!(evicted(true), right.collect::<Vec<_>>());
        let right = down(20..30)
            .chain(down(8..10))
            .chain(down(10..20))
            .chain(down(0..8));
        assert_eq!(
            evicted(false),
            right.collect::<Vec<_>>(),
            "those that are stopped first"
        );
    }

    #[test]
    fn what_has_waited_for_ten_seconds_stands_before_nothing_fresh() {
        let mut queue = Queue::new();
        for n in 0..100 {
            queue.push(waiting(n, |_| ()), true);
        }
        let now = NOW.plus(Duration::from_millis(10_001));
        for n in 1_000..1_100 {
            queue.push(waiting(n, |d| d.plan.due_at = now), true);
        }
        queue.age(now);
        assert_eq!((queue.backlog(now, 1_000), queue.backlog(now, 7)), (100, 7));
        let taken: Vec<_> = (0..30)
            .filter_map(|_| queue.pop_due(now, true).map(|w| w.delivery.key.0))
            .collect();
        let fresh = taken.iter().filter(|key| **key >= 1_000).count();
        assert_eq!(fresh, 20, "8 of 12: {taken:?}");
    }
}
