//! Waits for one of two futures.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Waits for the first of two futures.
pub(crate) async fn first_of(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    within(first, second).await;
}

/// Runs `work` until `end` completes. Returns the output of `work`, or `None` if `end` completes
/// first. `end` is polled before `work`.
pub(crate) async fn within<T>(
    end: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}
