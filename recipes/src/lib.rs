//! The programs in `src/bin` are the recipes of `docs/recipes.md`.

/// The examples of this page are tested here, because one of them needs SQLite.
#[cfg(doctest)]
#[doc = include_str!("../../docs/fencing.md")]
struct Fencing;
