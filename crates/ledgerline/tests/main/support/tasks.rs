//! Runs futures without a runtime: each task has a thread that parks until it is woken.

use super::LONG;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end. Only a wake-up makes it poll again.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Tasks of one thread: each is polled when it is added, and again whenever it was woken.
pub struct Crowd<F> {
    tasks: Vec<Option<Pin<Box<F>>>>,
    woken: Receiver<usize>,
    wake: Sender<usize>,
    /// How often woken tasks were polled.
    pub polls: usize,
}

struct Tell(usize, Sender<usize>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        // The crowd may be gone.
        let _ = self.1.send(self.0);
    }
}

impl<F: Future> Crowd<F> {
    pub fn new() -> Self {
        let (wake, woken) = channel();
        Crowd { tasks: Vec::new(), woken, wake, polls: 0 }
    }

    /// Adds a task that is not ready at once. Returns its number.
    pub fn add(&mut self, future: impl IntoFuture<IntoFuture = F>) -> usize {
        let number = self.tasks.len();
        self.tasks.push(Some(Box::pin(future.into_future())));
        assert!(self.poll(number).is_none(), "{number} is ready at once");
        number
    }

    /// Polls one task. Returns its result if it is ready.
    pub fn poll(&mut self, number: usize) -> Option<F::Output> {
        let waker = Arc::new(Tell(number, self.wake.clone())).into();
        let task = self.tasks[number].as_mut()?;
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => {
                self.tasks[number] = None;
                Some(output)
            }
            Poll::Pending => None,
        }
    }

    /// Drops a task that is not ready.
    pub fn drop(&mut self, number: usize) {
        assert!(self.tasks[number].take().is_some(), "{number} is gone");
    }

    /// Waits for the next task that is ready. Only a wake-up makes it poll.
    pub fn next(&mut self) -> (usize, F::Output) {
        loop {
            let number = self.woken.recv_timeout(LONG).expect("a task was forgotten");
            self.polls += 1;
            if let Some(output) = self.poll(number) {
                return (number, output);
            }
        }
    }

    /// Returns the tasks that were woken and not polled since.
    pub fn woken(&mut self) -> Vec<usize> {
        self.woken.try_iter().collect()
    }
}
