//! A search through all orders of steps of a few attempts on three masters. After each step, it
//! checks the guarantees of fencing tokens. The same search must find the flaws of designs that are
//! known to be wrong.
//!
//! The clients decide by [`Round`](crate::core::vote::round::Round), as in production. In the
//! design that is in use, the masters decide by [`ballot_reply`](super::ballot_reply), which is the
//! rule of the scripts.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "an origin for the rounds, and a failed test ends"
)]
#![allow(
    clippy::single_range_in_vec_init,
    reason = "the masters of one set, in a list of sets"
)]

use std::{
    collections::HashSet,
    fmt::Debug,
    hash::{BuildHasherDefault, Hasher},
};

#[cfg(test)]
mod ballots;
#[cfg(test)]
mod change;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod loss;

const MASTERS: usize = 3;

/// The steps that may happen, and the states that must not occur.
trait Model {
    type State: Copy + Debug + PartialEq;
    type Step: Debug;

    fn starts(&self) -> Vec<Self::State>;

    /// Calls `visit` for every step that may happen next.
    fn steps(&self, state: &Self::State, visit: &mut dyn FnMut(Self::Step, Self::State));

    /// Returns the flaw of a state, or `None` if it has none.
    fn flaw(&self, state: &Self::State) -> Option<&'static str>;

    /// Returns a number for a state. States that differ only in the names of attempts and masters
    /// may have the same number. The search visits only one state for each number.
    fn key(&self, state: &Self::State) -> u128;
}

/// A state that must not occur, and the shortest way to it.
#[derive(Debug)]
struct Flaw {
    what: &'static str,
    steps: usize,
    trace: String,
}

/// Searches all states, breadth first. Returns the number of states, or the first flaw.
fn explore<M: Model>(model: &M) -> Result<usize, Flaw> {
    let mut seen = HashSet::<u128, BuildHasherDefault<Mix>>::default();
    let mut found: Vec<(M::State, usize)> = Vec::new();
    for start in model.starts() {
        if seen.insert(model.key(&start)) {
            found.push((start, usize::MAX));
        }
    }
    let mut at = 0;
    while let Some((state, _)) = found.get(at).copied() {
        if let Some(what) = model.flaw(&state) {
            return Err(traced(model, &found, at, what));
        }
        model.steps(&state, &mut |_, next| {
            if seen.insert(model.key(&next)) {
                found.push((next, at));
            }
        });
        at += 1;
    }
    Ok(found.len())
}

fn count(model: &impl Model) -> usize {
    explore(model).unwrap_or_else(|flaw| panic!("{}", flaw.trace))
}

/// Checks that the search finds the flaw `what` after `steps` steps.
fn is_caught(model: &impl Model, what: &str, steps: usize) {
    let flaw = explore(model).unwrap_err();
    println!("{}\n", flaw.trace);
    assert_eq!((flaw.what, flaw.steps), (what, steps));
}

const SAME: &str = "two have the same token";
const SMALLER: &str = "a token is not larger than one that was reported before";

fn traced<M: Model>(
    model: &M,
    found: &[(M::State, usize)],
    mut at: usize,
    what: &'static str,
) -> Flaw {
    let mut lines = vec![what.to_owned()];
    let (mut state, mut parent) = found[at];
    while parent != usize::MAX {
        let mut line = None;
        model.steps(&found[parent].0, &mut |step, next| {
            if next == state {
                line.get_or_insert_with(|| format!("{step:?}"));
            }
        });
        lines.push(line.unwrap());
        at = parent;
        (state, parent) = found[at];
    }
    lines.push(format!("{state:?}"));
    lines.reverse();
    Flaw {
        what,
        steps: lines.len() - 2,
        trace: lines.join("\n"),
    }
}

/// A fast hasher for the keys of states. There are many keys, and they are close to each other.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u128(&mut self, key: u128) {
        let folded = (key as u64) ^ ((key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (folded ^ (folded >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = mixed ^ (mixed >> 29);
    }
}
