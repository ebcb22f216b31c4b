//! What all types of guards have in common.

use super::{FencedGuard, Guard, ReadGuard};

/// A type of guards that a [`Lock`](crate::Lock) gives: [`Guard`], [`FencedGuard`] or
/// [`ReadGuard`].
///
/// A function that takes `&Guard` takes a reference to each of them. `Into` turns each of them into
/// a [`Guard`], for a program that keeps guards of several types in one place. Other crates cannot
/// implement this trait.
///
/// ```
/// use std::time::Duration;
/// use quorlock::{AcquireError, AnyGuard, Guard, Lock};
///
/// async fn acquire_soon<G: AnyGuard>(lock: &Lock<G>) -> Result<Guard, AcquireError> {
///     let guard = lock.acquire_within(Duration::from_secs(1)).await?;
///     Ok(guard.into())
/// }
/// ```
pub trait AnyGuard: AsRef<Guard> + Into<Guard> + Send + Sync + sealed::FromGuard {}

impl AnyGuard for Guard {}
impl AnyGuard for FencedGuard {}
impl AnyGuard for ReadGuard {}

pub(super) mod sealed {
    use crate::Guard;

    #[expect(unnameable_types, reason = "other crates must not implement the trait")]
    pub trait FromGuard: Sized {
        /// Returns `guard` as a guard of this type. `None` if the guard lacks the token that every
        /// guard of this type has.
        fn from_guard(guard: Guard) -> Option<Self>;
    }

    impl FromGuard for Guard {
        fn from_guard(guard: Guard) -> Option<Self> {
            Some(guard)
        }
    }
}

impl AsRef<Self> for Guard {
    fn as_ref(&self) -> &Self {
        self
    }
}
