//! A search through all states that a model can reach, breadth first.

use std::{
    collections::HashSet,
    fmt::Debug,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// The steps that may happen, and the states that must not occur.
pub(super) trait Model {
    type State: Copy + Debug + Eq + Hash;
    type Step: Debug;

    fn starts(&self) -> Vec<Self::State>;

    /// Calls `visit` for every step that may happen next. States that differ only in the names of
    /// the masters are passed as one.
    fn steps(&self, state: &Self::State, visit: &mut dyn FnMut(Self::Step, Self::State));

    /// Returns the flaw of a state, or `None` if it has none.
    fn flaw(&self, state: &Self::State) -> Option<&'static str>;

    /// Returns what a trace shows of a state.
    fn shown(&self, state: &Self::State) -> String {
        format!("{state:?}")
    }
}

/// A state that must not occur, and the shortest way to it.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) what: &'static str,
    pub(super) steps: usize,
    /// The number of states that the search has found until then.
    pub(super) states: usize,
    pub(super) trace: String,
}

/// A start has no state before it.
const NONE: u32 = u32::MAX;

/// Searches all states. Returns their number, or the first flaw.
pub(super) fn explore<M: Model>(model: &M) -> Result<usize, Flaw> {
    // A set of 128 bits for each state takes less room than a set of states.
    let mut seen = HashSet::<u128, BuildHasherDefault<Mix>>::default();
    let mut found = Vec::new();
    for start in model.starts() {
        if seen.insert(print_of(&start)) {
            found.push((start, NONE));
        }
    }
    let mut at = 0;
    while let Some((state, _)) = found.get(at).copied() {
        if let Some(what) = model.flaw(&state) {
            return Err(traced(model, &found, at, what));
        }
        model.steps(&state, &mut |_, next| {
            if seen.insert(print_of(&next)) {
                found.push((next, at as u32));
            }
        });
        at += 1;
    }
    Ok(found.len())
}

/// Checks that a model has no flaw, and this number of states.
pub(super) fn holds(model: &impl Model, states: usize) {
    let found = explore(model).unwrap_or_else(|flaw| panic!("{}", flaw.trace));
    assert_eq!(found, states);
}

/// Checks that the search finds the flaw `what` after `steps` steps.
pub(super) fn is_caught(model: &impl Model, what: &str, steps: usize) {
    let flaw = explore(model).expect_err(what);
    println!("{}\n{} states", flaw.trace, flaw.states);
    assert_eq!((flaw.what, flaw.steps), (what, steps));
}

fn traced<M: Model>(
    model: &M,
    found: &[(M::State, u32)],
    mut at: usize,
    what: &'static str,
) -> Flaw {
    let mut lines = vec![what.to_owned()];
    let (mut state, mut parent) = found[at];
    while parent != NONE {
        let mut line = None;
        model.steps(&found[parent as usize].0, &mut |step, next| {
            if next == state {
                line.get_or_insert_with(|| format!("{step:?}\n    {}", model.shown(&state)));
            }
        });
        lines.extend(line);
        at = parent as usize;
        (state, parent) = found[at];
    }
    lines.reverse();
    Flaw {
        what,
        steps: lines.len() - 1,
        states: found.len(),
        trace: lines.join("\n"),
    }
}

/// Returns the fingerprint of a state. Two of some millions of states have the same one with a
/// probability below 10^-24.
fn print_of(state: &impl Hash) -> u128 {
    let mut mix = Mix::default();
    state.hash(&mut mix);
    u128::from(mix.finish()) << 64 | u128::from(mix.1)
}

/// A fast hasher for states, in two halves.
#[derive(Default)]
pub(super) struct Mix(u64, u64);

impl Mix {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.1 = (self.1.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29) ^ (self.1 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_u128(&mut self, number: u128) {
        self.mix(number as u64 ^ (number >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number as u64);
    }
}
