//! Waits for one of two futures, or for all of several.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// Waits for all futures. Returns their outputs in their order.
pub(crate) async fn all_of<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    type Step<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);
    let futures = futures.into_iter();
    let mut steps: Vec<Step<F>> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, output) in &mut steps {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        let is_over = steps.iter().all(|(_, output)| output.is_some());
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    steps.into_iter().filter_map(|(_, output)| output).collect()
}

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
