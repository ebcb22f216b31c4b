//! The time scale of a picture.

/// A scale of one or more pieces. The time between two pieces is left out.
#[derive(Debug)]
pub struct Scale(Vec<Piece>);

/// The times from `from` to `to`, drawn from `left` to `right`.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub from: f64,
    pub to: f64,
    pub left: f64,
    pub right: f64,
}

impl Scale {
    /// Takes the pieces in the order of their times.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self(pieces.into_iter().collect())
    }

    /// Returns the place of a time. A time that is left out has its place in the gap.
    pub fn x(&self, time: f64) -> f64 {
        let last = self.0.len() - 1;
        let at = self.0.iter().position(|piece| time <= piece.to);
        let piece = self.0[at.unwrap_or(last)];
        if time < piece.from && at != Some(0) {
            return (self.0[at.unwrap_or(last) - 1].right + piece.left) / 2.0;
        }
        let part = (time - piece.from) / (piece.to - piece.from);
        piece.left + part * (piece.right - piece.left)
    }

    /// Returns the middles of the gaps.
    pub fn gaps(&self) -> impl Iterator<Item = f64> {
        let pairs = self.0.windows(2);
        pairs.map(|pair| (pair[0].right + pair[1].left) / 2.0)
    }
}
