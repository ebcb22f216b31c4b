//! What the scripts of `lua/fair/` do, line by line.

use super::{
    keys::{Answer, WRONGTYPE},
    scripts::{FAIR, MODE, Mine, Replied, Words, is_at_most, is_of, other_kind, say, whole},
    server::State,
};
use crate::core::command::Reply;

/// Where the waiters for a fair lock are.
#[derive(Clone, Copy)]
struct Line<'a> {
    queue: &'a str,
    deadlines: &'a str,
}

impl State {
    /// With `shared/sides` after it.
    pub(super) fn fair_acquire(&mut self, words: Words<'_>) -> Replied {
        let ([key, queue, deadlines], []) = words.take();
        let replied = self.fair_turn(words);
        if replied == Err(WRONGTYPE) && self.keys.hgetall(key).is_ok() {
            for side in [queue, deadlines] {
                if self.keys.zrange(side).is_err() {
                    let error = format!("ERR the key {side} is not a sorted set: delete it");
                    return Err(error.into());
                }
            }
        }
        replied
    }

    fn fair_turn(&mut self, words: Words<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, _depth, _ttl, ticket, patience, window]) =
            words.take();
        let line = Line { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0])?;
        let is_free = mine[0].is_none() && !self.keys.exists(key);
        let patience = whole(patience);
        let (now, micros) = self.clock();
        let (head, is_swept) = self.next_waiter(line, now)?;

        if is_at_most(&mine, attempt)? && self.is_mine_alone(key, &mine)? {
            return self.grant(words, line, &mine);
        }
        if is_free && head.as_ref().is_none_or(|head| head == ticket) {
            return self.grant(words, line, &mine);
        }
        if !is_free && self.held(key, FAIR, 0)? == other_kind() {
            return Ok(other_kind());
        }

        let mut place = 0;
        if patience > 0 {
            let window = whole(window);
            let is_new = self.keys.zscore(queue, ticket)?.is_none();
            if window > 0 && is_new && micros.abs_diff(drawn_at(ticket)) > window {
                return Ok(say(format!("skew {micros}")));
            }
            self.queue_up(line, ticket, now, patience)?;
            let waiters = self.keys.zrange(queue)?;
            if is_free && waiters.first() == Some(&ticket) {
                return self.grant(words, line, &mine);
            }
            let ahead = waiters.iter().take_while(|waiter| **waiter != ticket);
            place = ahead.count() + 1;
        }
        if is_free {
            let head = self.keys.zhead(queue)?;
            if let Some(head) = head.filter(|_| is_swept) {
                self.call_up(&head);
            }
            return Ok(say(format!("queued {place}")));
        }
        self.held(key, FAIR, place)
    }

    fn grant(&mut self, words: Words<'_>, line: Line<'_>, mine: &Mine) -> Replied {
        let ([key], [owner, attempt, depth, ttl, ticket]) = words.take();
        if let Some(refused) = self.ballot_reply(words, 3, 7, is_of(mine, attempt))? {
            return Ok(refused);
        }
        self.keys
            .hset(key, [(owner, depth), (FAIR, attempt), MODE])?;
        self.prolong(key, whole(ttl));
        self.leave(line, ticket)?;
        Ok(Reply::Int(1))
    }

    pub(super) fn fair_release(&mut self, words: Words<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, ticket]) = words.take();
        let line = Line { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0]);
        let is_mine = match &mine {
            Ok(mine) => is_at_most(mine, attempt)?,
            Err(_) => false,
        };
        if let (true, Ok(mine)) = (is_mine, &mine) {
            self.give_up(key, [owner, FAIR], mine)?;
        }
        let head = at_best(self.keys.zhead(queue))?;
        let was_next = head.is_some_and(|head| head == ticket);
        at_best(self.leave(line, ticket))?;
        mine?;
        if !is_mine && self.keys.exists(key) {
            return self.held(key, FAIR, 0);
        }
        if is_mine || was_next {
            let (now, _) = self.clock();
            let (head, _) = at_best(self.next_waiter(line, now))?;
            if let Some(head) = head {
                self.call_up(&head);
            }
        }
        Ok(Reply::Int(is_mine.into()))
    }

    pub(super) fn fair_yield(&mut self, words: Words<'_>) -> Replied {
        let ([key, queue, deadlines], [owner, attempt, ticket, patience]) = words.take();
        let line = Line { queue, deadlines };
        let mine = self.keys.hmget(key, [owner, FAIR, MODE.0])?;
        if !is_at_most(&mine, attempt)? {
            return Ok(Reply::Int(0));
        }
        let (now, _) = self.clock();
        self.give_up(key, [owner, FAIR], &mine)?;
        let queued = self.keys.zscore(queue, ticket);
        let queued = queued.and_then(|_| self.queue_up(line, ticket, now, whole(patience)));
        let next = queued.and_then(|()| self.next_waiter(line, now));
        let (head, _) = at_best(next)?;
        if let Some(head) = head.filter(|head| head != ticket) {
            self.call_up(&head);
        }
        Ok(Reply::Int(1))
    }

    fn next_waiter(&mut self, line: Line<'_>, now: u64) -> Answer<(Option<String>, bool)> {
        let mut is_swept = false;
        while let Some(head) = self.keys.zhead(line.queue)? {
            let deadline = self.keys.zscore(line.deadlines, &head)?;
            if deadline.unwrap_or(0.0) > now as f64 {
                return Ok((Some(head), is_swept));
            }
            self.keys.zrem(line.queue, &head)?;
            self.keys.zrem(line.deadlines, &head)?;
            is_swept = true;
        }
        Ok((None, is_swept))
    }

    fn queue_up(
        &mut self,
        Line { queue, deadlines }: Line<'_>,
        ticket: &str,
        now: u64,
        patience: u64,
    ) -> Answer<()> {
        self.keys.zadd(deadlines, (now + patience) as f64, ticket)?;
        self.keys.zadd(queue, 0.0, ticket)?;
        let ttl = 2 * patience;
        self.prolong(queue, ttl);
        self.prolong(deadlines, ttl);
        Ok(())
    }

    fn leave(&mut self, line: Line<'_>, ticket: &str) -> Answer<()> {
        if self.keys.zrem(line.queue, ticket)? {
            self.keys.zrem(line.deadlines, ticket)?;
        }
        Ok(())
    }

    fn call_up(&mut self, ticket: &str) {
        let process = ticket.get(17..53).unwrap_or_default();
        self.publish(&format!("quorlock:turn:{process}"), ticket);
    }

    /// In milliseconds, of the master's own clock, by which keys expire; and in microseconds, of that by which
    /// tickets are drawn.
    fn clock(&self) -> (u64, u64) {
        (self.keys.now(), self.wall_micros())
    }
}

/// What must not keep anybody from giving a lock up, whatever there is in place of its queue.
fn at_best<T: Default>(answer: Answer<T>) -> Answer<T> {
    match answer {
        Err(error) if error == WRONGTYPE => Ok(T::default()),
        answer => answer,
    }
}

/// The time in a ticket.
fn drawn_at(ticket: &str) -> u64 {
    ticket.get(..16).map_or(0, whole)
}
