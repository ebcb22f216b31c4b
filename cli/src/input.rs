//! The input, whose end says that a script has ended.

use std::{future::pending, io, thread};

use futures::channel::oneshot;

use crate::failure::Failure;

/// The input, until it ends. What it contains is dropped.
pub(crate) struct Input(Option<oneshot::Receiver<()>>);

impl Input {
    /// Reads the input in the background, if its end matters.
    pub(crate) fn read(matters: bool) -> Result<Self, Failure> {
        if !matters {
            return Ok(Self(None));
        }
        let (ended, end) = oneshot::channel();
        // A thread, because an input may be of a kind that only blocks, such as a file.
        let read = || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end, too
            drop(ended);
        };
        let started = thread::Builder::new().spawn(read);
        started.map_err(|error| Failure::system("cannot start a thread", error))?;
        Ok(Self(Some(end)))
    }

    /// Waits for the end of the input, or forever if it does not matter.
    pub(crate) async fn ended(&mut self) {
        match &mut self.0 {
            Some(end) => drop(end.await),
            None => pending().await,
        }
    }
}
