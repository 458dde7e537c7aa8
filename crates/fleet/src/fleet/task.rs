//! The task of one organisation: turns, looks, nudges, refusals.

use std::sync::Arc;
use std::time::Duration;

use super::party::Party;

/// Pause between two attempts to listen for nudges.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// Runs until the party is stopped, then leaves if nothing is charged.
pub(super) async fn run(party: Arc<Party>) {
    let nudging = tokio::spawn(listen(party.clone()));
    let refusing = tokio::spawn(hear_refusals(party.clone()));
    let mut slept = false;
    while !party.is_stopped() {
        let wait = party.look(std::mem::take(&mut slept));
        if wait == 0 {
            // The node code keeps the error and schedules the next attempt.
            let _error = party.sync(None, || party.look(false) > 0).await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait)) => slept = true,
            () = party.wake.notified() => {}
        }
    }
    nudging.abort();
    refusing.abort();
    // Leases of a node whose units are still charged end by themselves.
    let _error = party.leave(Duration::ZERO).await;
}

async fn listen(party: Arc<Party>) {
    loop {
        let nudges = party.store.nudges(&party.organisation).await;
        party.listens.send_replace(true);
        if let Ok(mut nudges) = nudges {
            while let Some(nudge) = nudges.next().await {
                party.nudged(&nudge);
                party.wake.notify_one();
            }
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

/// Wakes the task when a limit of the organisation's groups is met. Without a watch, the next look finds it.
async fn hear_refusals(party: Arc<Party>) {
    let Some(Ok(watch)) = party.top().map(|top| top.watch()) else { return };
    loop {
        watch.changed().await;
        party.wake.notify_one();
        // A flood of refusals counts as one event.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
