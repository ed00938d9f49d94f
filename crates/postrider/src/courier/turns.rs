//! Who may dial a host now, and who waits for a connection to it.
//!
//! A burst of requests to one host must not become as many dials at once: they overflow the listener's queue, whose kernel
//! drops what is too much, and the next try comes a second later (RFC 6298, section 2.1). Most of those connections would be
//! used once, too. So a few dial at a time; the others wait until it is their turn or a connection comes back, whichever is
//! first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::lease::Origin;

/// Dials to one host at a time: the smallest listener queues in use hold 50 (Java) or 100 (Python's asyncio).
pub(super) const MAX_DIALS: usize = 32;

/// All hosts that are being dialled. `L` is a connection.
pub(super) struct Turns<L> {
    hosts: Mutex<HashMap<Arc<Origin>, Host<L>>>,
}

/// It stays as long as somebody dials; somebody waits only while as many dial as may.
struct Host<L> {
    dialing: usize,
    waiting: VecDeque<oneshot::Sender<Grant<L>>>,
}

enum Grant<L> {
    Connection(L),
    Dial,
}

/// What somebody who wants a connection gets.
pub(super) enum Turn<L> {
    /// One that came back.
    Connection(L),
    /// The right to make one.
    Dial(Dialing<L>),
}

/// The right to dial a host. Passes on when dropped.
pub(super) struct Dialing<L> {
    turns: Arc<Turns<L>>,
    origin: Arc<Origin>,
}

impl<L> Turns<L> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            hosts: Mutex::default(),
        })
    }

    /// Waits until this may dial, or a connection came back.
    pub(super) async fn wait(self: &Arc<Self>, origin: &Arc<Origin>) -> Turn<L> {
        let dial = || {
            Turn::Dial(Dialing {
                turns: Arc::clone(self),
                origin: Arc::clone(origin),
            })
        };
        loop {
            let Some(grant) = self.enter(origin) else {
                return dial();
            };
            let mut waiting = Waiting {
                turns: self,
                origin,
                grant,
            };
            match (&mut waiting.grant).await {
                Ok(Grant::Connection(connection)) => return Turn::Connection(connection),
                Ok(Grant::Dial) => return dial(),
                // Nobody drops what somebody waits for.
                Err(_) => {}
            }
        }
    }

    /// `None` when this dials now.
    fn enter(&self, origin: &Arc<Origin>) -> Option<oneshot::Receiver<Grant<L>>> {
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(Arc::clone(origin)).or_insert_with(|| Host {
            dialing: 0,
            waiting: VecDeque::new(),
        });
        if host.dialing < MAX_DIALS {
            host.dialing += 1;
            return None;
        }
        let (granted, grant) = oneshot::channel();
        host.waiting.push_back(granted);
        Some(grant)
    }

    /// Gives a connection to whoever has waited longest; answers it when nobody does.
    pub(super) fn hand_over(&self, origin: &Arc<Origin>, connection: L) -> Option<L> {
        let mut hosts = self.hosts.lock();
        let Some(host) = hosts.get_mut(origin) else {
            return Some(connection);
        };
        let mut grant = Grant::Connection(connection);
        while let Some(waiter) = host.waiting.pop_front() {
            match waiter.send(grant) {
                Ok(()) => return None,
                Err(refused) => grant = refused,
            }
        }
        match grant {
            Grant::Connection(connection) => Some(connection),
            Grant::Dial => None,
        }
    }

    /// Gives a connection that many can use to all who wait.
    pub(super) fn share(&self, origin: &Arc<Origin>, mut connection: impl FnMut() -> L) {
        let mut hosts = self.hosts.lock();
        let waiting = hosts
            .get_mut(origin)
            .map(|host| std::mem::take(&mut host.waiting));
        for waiter in waiting.into_iter().flatten() {
            // Who has gone needs none.
            let _ = waiter.send(Grant::Connection(connection()));
        }
    }

    fn leave(&self, origin: &Arc<Origin>) {
        let mut hosts = self.hosts.lock();
        let Some(host) = hosts.get_mut(origin) else {
            return;
        };
        while let Some(waiter) = host.waiting.pop_front() {
            if waiter.send(Grant::Dial).is_ok() {
                return;
            }
        }
        host.dialing -= 1;
        if host.dialing == 0 {
            hosts.remove(origin);
        }
    }
}

impl<L> Drop for Dialing<L> {
    fn drop(&mut self) {
        self.turns.leave(&self.origin);
    }
}

/// Somebody waits. What was granted to who has gone passes on.
struct Waiting<'a, L> {
    turns: &'a Turns<L>,
    origin: &'a Arc<Origin>,
    grant: oneshot::Receiver<Grant<L>>,
}

impl<L> Drop for Waiting<'_, L> {
    fn drop(&mut self) {
        self.grant.close();
        match self.grant.try_recv() {
            Ok(Grant::Dial) => self.turns.leave(self.origin),
            Ok(Grant::Connection(connection)) => drop(self.turns.hand_over(self.origin, connection)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn origin(host: &str) -> Arc<Origin> {
        Arc::new(Origin {
            tls: true,
            host: host.into(),
            port: 443,
            ip: None,
        })
    }

    fn now<L>(turns: &Arc<Turns<L>>, origin: &Arc<Origin>) -> Option<Turn<L>> {
        turns.wait(origin).now_or_never()
    }

    /// All who may dial do.
    fn all_dial(turns: &Arc<Turns<u32>>, origin: &Arc<Origin>) -> Vec<Dialing<u32>> {
        let dial = |_| match now(turns, origin) {
            Some(Turn::Dial(dialing)) => dialing,
            _ => panic!("it may dial"),
        };
        (0..MAX_DIALS).map(dial).collect()
    }

    #[tokio::test]
    async fn so_many_dial_a_host_and_the_others_wait_for_their_turn() {
        let (turns, one) = (Turns::new(), origin("one"));
        let mut dialing = all_dial(&turns, &one);
        assert!(now(&turns, &one).is_none());
        assert!(matches!(now(&turns, &origin("two")), Some(Turn::Dial(_))));
        let mut waits = Box::pin(turns.wait(&one));
        assert!((&mut waits).now_or_never().is_none());
        dialing.pop();
        assert!(matches!(waits.await, Turn::Dial(_)));
        drop(dialing);
        assert!(turns.hosts.lock().is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_comes_back_goes_to_who_has_waited_longest() {
        let (turns, one) = (Turns::new(), origin("one"));
        let _dialing = all_dial(&turns, &one);
        assert_eq!(turns.hand_over(&one, 1), Some(1), "nobody waits");
        assert_eq!(turns.hand_over(&origin("two"), 2), Some(2));
        let mut first = Box::pin(turns.wait(&one));
        let mut second = Box::pin(turns.wait(&one));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(turns.hand_over(&one, 3), None);
        assert!((&mut second).now_or_never().is_none());
        assert!(matches!(first.await, Turn::Connection(3)));
        turns.share(&one, || 4);
        assert!(matches!(second.await, Turn::Connection(4)));
    }

    #[tokio::test]
    async fn what_was_granted_to_who_has_gone_passes_on() {
        let (turns, one) = (Turns::new(), origin("one"));
        let mut dialing = all_dial(&turns, &one);
        let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(turns.wait(&one))).collect();
        for waiter in &mut waiters {
            assert!(waiter.now_or_never().is_none());
        }
        dialing.pop();
        let mut rest = waiters.split_off(1);
        drop(waiters);
        assert!(matches!((&mut rest[0]).now_or_never(), Some(Turn::Dial(_))));
        // That turn was dropped at once, so it is the last one's; who goes before an answer leaves nothing behind either.
        drop(rest);
        drop(dialing);
        assert!(turns.hosts.lock().is_empty());
    }
}
