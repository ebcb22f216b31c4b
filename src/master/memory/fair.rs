//! The scripts of `lua/fair/`, translated to Rust line by line.

use super::{
    keys::{KeyResult, Replied, WRONGTYPE},
    scripts::{FAIR, MODE, Mine, ScriptWords, is_at_most, is_of, other_kind, say, whole},
    server::State,
};
use crate::core::kind::command::Reply;

/// The keys of a fair lock's queue.
#[derive(Clone, Copy)]
pub(super) struct QueueKeys<'a> {
    pub(super) queue: &'a str,
    pub(super) deadlines: &'a str,
}

impl State {
    /// Does the same as `fair/acquire`, followed by `shared/companions`.
    pub(super) fn fair_acquire(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue, deadlines], []) = words.take();
        let replied = self.fair_acquire_or_queue(words);
        if replied == Err(WRONGTYPE) && self.keys.hgetall(key).is_ok() {
            for companion in [queue, deadlines] {
                if self.keys.zrange(companion).is_err() {
                    let error = format!("ERR the key {companion} is not a sorted set: delete it");
                    return Err(error.into());
                }
            }
        }
        replied
    }

    fn fair_acquire_or_queue(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, _depth, _ttl, ticket, timeout, window]) =
            words.take();
        let queue_keys = QueueKeys { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0])?;
        let is_free = mine[0].is_none() && !self.keys.exists(key);
        let timeout = whole(timeout);
        let (now, micros) = self.clock();
        let (head, is_swept) = self.next_waiter(queue_keys, now)?;

        if is_at_most(&mine, attempt)? && self.is_unaltered(key, &mine)? {
            return self.grant(words, queue_keys, &mine);
        }
        let is_next = head.as_ref().is_none_or(|head| head == ticket);
        if is_free && (is_next || mutant!(IgnoresQueue)) {
            return self.grant(words, queue_keys, &mine);
        }
        if !is_free && self.describe_holder(key, FAIR, 0)? == other_kind() {
            return Ok(other_kind());
        }

        let mut position = 0;
        if timeout > 0 {
            let window = whole(window);
            let is_new = self.keys.zscore(queue, ticket)?.is_none();
            if window > 0 && is_new && micros.abs_diff(time_of(ticket)) > window {
                return Ok(say(format!("skew {micros}")));
            }
            self.enqueue(queue_keys, ticket, now, timeout)?;
            let waiters = self.keys.zrange(queue)?;
            if is_free && waiters.first() == Some(&ticket) {
                return self.grant(words, queue_keys, &mine);
            }
            let earlier = waiters.iter().take_while(|waiter| **waiter != ticket);
            position = earlier.count() + 1;
        }
        if is_free {
            let head = self.keys.zhead(queue)?;
            if let Some(head) = head.filter(|_| is_swept) {
                self.notify(&head);
            }
            return Ok(say(format!("queued {position}")));
        }
        self.describe_holder(key, FAIR, position)
    }

    fn grant(&mut self, words: ScriptWords<'_>, queue_keys: QueueKeys<'_>, mine: &Mine) -> Replied {
        let ([key], [owner, attempt, depth, ttl, ticket]) = words.take();
        if let Some(refused) = self.ballot_reply(words, 3, 7, is_of(mine, attempt))? {
            return Ok(refused);
        }
        self.keys
            .hset(key, [(owner, depth), (FAIR, attempt), MODE])?;
        self.prolong(key, whole(ttl));
        if self.keys.zhead(queue_keys.queue)?.is_some() {
            self.keys.zrem(queue_keys.queue, ticket)?;
            self.keys.zrem(queue_keys.deadlines, ticket)?;
        }
        Ok(Reply::Int(1))
    }

    pub(super) fn fair_release(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, ticket]) = words.take();
        let queue_keys = QueueKeys { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0]);
        let is_mine = match &mine {
            Ok(mine) => is_at_most(mine, attempt)?,
            Err(_) => false,
        };
        if let (true, Ok(mine)) = (is_mine, &mine) {
            self.remove_owner(key, [owner, FAIR], mine)?;
        }
        let head = best_effort(self.keys.zhead(queue))?;
        let was_next = head.is_some_and(|head| head == ticket);
        best_effort(self.leave(queue_keys, ticket))?;
        mine?;
        if !is_mine && self.keys.exists(key) {
            return self.describe_holder(key, FAIR, 0);
        }
        if is_mine || was_next {
            let (now, _) = self.clock();
            let (head, _) = best_effort(self.next_waiter(queue_keys, now))?;
            if let Some(head) = head {
                self.notify(&head);
            }
        }
        Ok(Reply::Int(is_mine.into()))
    }

    pub(super) fn fair_yield(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, ticket, timeout]) = words.take();
        let queue_keys = QueueKeys { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0])?;
        if !is_at_most(&mine, attempt)? {
            return Ok(Reply::Int(0));
        }
        let (now, _) = self.clock();
        self.remove_owner(key, [owner, FAIR], &mine)?;
        let queued = self.keys.zscore(queue, ticket);
        let queued = queued.and_then(|_| self.enqueue(queue_keys, ticket, now, whole(timeout)));
        let next = queued.and_then(|()| self.next_waiter(queue_keys, now));
        let (head, _) = best_effort(next)?;
        if let Some(head) = head.filter(|head| head != ticket) {
            self.notify(&head);
        }
        Ok(Reply::Int(1))
    }

    fn next_waiter(
        &mut self,
        queue_keys: QueueKeys<'_>,
        now: u64,
    ) -> KeyResult<(Option<String>, bool)> {
        let mut is_swept = false;
        while let Some(head) = self.keys.zhead(queue_keys.queue)? {
            let deadline = self.keys.zscore(queue_keys.deadlines, &head)?;
            if deadline.unwrap_or(0.0) > now as f64 {
                return Ok((Some(head), is_swept));
            }
            self.keys.zrem(queue_keys.queue, &head)?;
            self.keys.zrem(queue_keys.deadlines, &head)?;
            is_swept = true;
        }
        Ok((None, is_swept))
    }

    fn enqueue(
        &mut self,
        QueueKeys { queue, deadlines }: QueueKeys<'_>,
        ticket: &str,
        now: u64,
        timeout: u64,
    ) -> KeyResult<()> {
        self.keys.zadd(deadlines, (now + timeout) as f64, ticket)?;
        let score = if mutant!(FirstHeard) { now as f64 } else { 0.0 };
        self.keys.zadd(queue, score, ticket)?;
        let ttl = 2 * timeout;
        self.prolong(queue, ttl);
        self.prolong(deadlines, ttl);
        Ok(())
    }

    fn leave(&mut self, queue_keys: QueueKeys<'_>, ticket: &str) -> KeyResult<()> {
        if self.keys.zrem(queue_keys.queue, ticket)? {
            self.keys.zrem(queue_keys.deadlines, ticket)?;
        }
        Ok(())
    }

    /// Notifies the next waiter of a lock that became free, if there is one. Ignores errors.
    pub(super) fn notify_next(&mut self, queue_keys: QueueKeys<'_>) {
        let (now, _) = self.clock();
        if let Ok((Some(head), _)) = self.next_waiter(queue_keys, now) {
            self.notify(&head);
        }
    }

    fn notify(&mut self, ticket: &str) {
        let process = ticket.get(17..53).unwrap_or_default();
        self.publish(&format!("quorlock:turn:{process}"), ticket);
    }

    /// Returns the times of two clocks. Keys expire by the first clock, in milliseconds. Tickets
    /// are compared with the second clock, in microseconds.
    fn clock(&self) -> (u64, u64) {
        (self.keys.now(), self.wall_micros())
    }
}

/// Replaces a `WRONGTYPE` error with the default. A key that is not a queue must not prevent a
/// release.
fn best_effort<T: Default>(answer: KeyResult<T>) -> KeyResult<T> {
    match answer {
        Err(error) if error == WRONGTYPE => Ok(T::default()),
        answer => answer,
    }
}

/// Returns the time in a ticket.
fn time_of(ticket: &str) -> u64 {
    ticket.get(..16).map_or(0, whole)
}
