//! `/api/ledgers/ID/events`: the whole state once, then the changes from look to look.

use crate::serve::api::Groups;
use crate::serve::changes::{By, event};
use crate::serve::watched::{Ledgers, Watched};
use futures_core::Stream;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// The longest time that a reader may take for one event before the stream ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which a stream checks whether its ledger is still served.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Sends events of a ledger until the reader leaves, the ledger is gone, or the server ends.
pub(crate) async fn tell(
    ledgers: Arc<Ledgers>,
    ledger: Arc<Watched>,
    by: By,
    to: mpsc::Sender<Arc<str>>,
    mut ending: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) {
    let _permit = permit;
    let mut changes = ledger.listen(by);
    ledgers.wake();
    let mut number = None;
    loop {
        let text = match number {
            // At first, and for a reader that fell behind: the whole state.
            None => {
                let ledger = ledger.clone();
                let everything = tokio::task::spawn_blocking(move || {
                    let frame = ledger.fresh();
                    let text =
                        event("look", frame.number, &Groups::of(ledger.id, &ledger.title, &frame));
                    (frame.number, Arc::from(text))
                });
                let Ok((at, text)) = everything.await else { return };
                number = Some(at);
                text
            }
            Some(at) => {
                let change = tokio::select! {
                    change = changes.recv() => change,
                    _ = ending.wait_for(|ending| *ending) => return,
                    () = to.closed() => return,
                    () = tokio::time::sleep(LOOK_UP) => {
                        if ledgers.get(ledger.id).is_none() {
                            return;
                        }
                        continue;
                    }
                };
                match change {
                    Ok(change) if change.number <= at => continue,
                    Ok(change) if change.number == at + 1 => {
                        number = Some(change.number);
                        change.text
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {
                        number = None;
                        continue;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, to.send(text)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
        if *ending.borrow() {
            return;
        }
    }
}

/// The events as the body of a response.
pub(crate) struct Told(pub(crate) mpsc::Receiver<Arc<str>>);

impl Stream for Told {
    type Item = Result<Vec<u8>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(text.as_bytes().to_vec())))
    }
}
