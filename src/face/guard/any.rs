//! What all types of guards have in common.

use super::Guard;

/// A type of guards that a [`Lock`](crate::Lock) gives, for functions that are generic over it. The
/// guard itself is `guard.as_ref()`. This trait is sealed.
pub trait AnyGuard: AsRef<Guard> + Into<Guard> + Send + Sync + sealed::FromGuard {}

/// A type of guards that may have fencing tokens: all but that of readers. This trait is sealed.
pub trait Fenceable: AnyGuard {}

/// A type of guards that hold one name, and so have one fencing token. This trait is sealed.
pub trait OneName: Fenceable {}

impl AnyGuard for Guard {}
impl Fenceable for Guard {}
impl OneName for Guard {}

pub(super) mod sealed {
    use crate::Guard;

    #[expect(unnameable_types, reason = "other crates must not implement the trait")]
    pub trait FromGuard: Sized {
        /// Returns `guard` as a guard of this type, or as it is if it lacks what every guard of
        /// this type has.
        fn from_guard(guard: Guard, _: Key) -> Result<Self, Guard>;
    }

    /// Keeps code that is generic over a type of guards from making a guard of another type.
    #[expect(unnameable_types, reason = "other crates must not make a key")]
    #[derive(Debug)]
    pub struct Key(pub(in crate::face) ());

    impl FromGuard for Guard {
        fn from_guard(guard: Guard, _: Key) -> Result<Self, Self> {
            Ok(guard)
        }
    }
}

impl AsRef<Self> for Guard {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Defines a type of guards that is a [`Guard`] with other methods. Without documentation, the type
/// is defined already, and has the guard in its `$field`.
macro_rules! guard_type {
    ($(#[$doc:meta])+ $name:ident: $($trait:ident)*) => {
        $(#[$doc])+
        #[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(Guard);

        impl FromGuard for $name {
            fn from_guard(guard: Guard, _: Key) -> Result<Self, Guard> {
                Ok(Self(guard))
            }
        }

        guard_type! { $name: 0: $($trait)* }
    };
    ($name:ident: $field:tt: $($trait:ident)*) => {
        impl $name {
            /// Releases the lock on all masters, and waits until a majority has confirmed: see
            /// [`Guard::release`].
            ///
            /// # Errors
            ///
            /// [`QuorumError`]: fewer than a majority confirmed in time.
            pub async fn release(self) -> Result<(), QuorumError> {
                self.$field.release().await
            }
        }

        $(impl $trait for $name {})*

        impl Deref for $name {
            type Target = Guard;

            fn deref(&self) -> &Guard {
                &self.$field
            }
        }

        impl AsRef<Guard> for $name {
            fn as_ref(&self) -> &Guard {
                self
            }
        }

        impl From<$name> for Guard {
            fn from(guard: $name) -> Self {
                guard.$field
            }
        }
    };
}

pub(super) use guard_type;
