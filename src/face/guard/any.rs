//! What all types of guards have in common.

use super::Guard;

/// A type of guards that a [`Lock`](crate::Lock) gives. A function that takes `&Guard` takes a
/// reference to each of them.
pub trait AnyGuard: AsRef<Guard> + Into<Guard> + Send + Sync + sealed::FromGuard {}

/// A type of guards that may have fencing tokens: all but that of readers.
#[diagnostic::on_unimplemented(
    message = "a reader has no fencing token, because it writes nothing"
)]
pub trait Fenceable: AnyGuard {}

/// A type of guards that hold one name, and so have one fencing token.
#[diagnostic::on_unimplemented(
    message = "each name has a fencing token of its own: call `tokens()`"
)]
pub trait OneName: Fenceable {}

impl AnyGuard for Guard {}
impl Fenceable for Guard {}
impl OneName for Guard {}

pub(super) mod sealed {
    use crate::Guard;

    #[expect(unnameable_types, reason = "other crates must not implement the trait")]
    pub trait FromGuard: Sized {
        /// Returns `guard` as a guard of this type. `None` if the guard lacks what every guard of
        /// this type has.
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

/// Defines a type of guards that is a [`Guard`] with other methods.
macro_rules! guard_type {
    ($(#[$doc:meta])* $name:ident: $($trait:ident)*) => {
        $(#[$doc])*
        #[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(Guard);

        impl $name {
            /// Releases the lock on all masters, and waits until a majority has confirmed: see
            /// [`Guard::release`].
            ///
            /// # Errors
            ///
            /// [`TooFewMasters`]: fewer than a majority confirmed in time.
            pub async fn release(self) -> Result<(), TooFewMasters> {
                self.0.release().await
            }
        }

        $(impl $trait for $name {})*

        impl FromGuard for $name {
            fn from_guard(guard: Guard) -> Option<Self> {
                Some(Self(guard))
            }
        }

        impl Deref for $name {
            type Target = Guard;

            fn deref(&self) -> &Guard {
                &self.0
            }
        }

        impl AsRef<Guard> for $name {
            fn as_ref(&self) -> &Guard {
                self
            }
        }

        impl From<$name> for Guard {
            fn from(guard: $name) -> Self {
                guard.0
            }
        }
    };
}

pub(super) use guard_type;
