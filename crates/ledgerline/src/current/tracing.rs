//! Makes the current group follow the spans of `tracing` (feature `tracing`). A certain field, like `tenant`, gives
//! its span a group, and all spans below it.
//!
//! ```
//! use ledgerline::current::{self, tracing::GroupLayer};
//! use ledgerline::Ledger;
//! use tracing_subscriber::prelude::*;
//!
//! let ledger = Ledger::new()?.into_static();
//! let acme = ledger.root().create("acme")?;
//! let layer = GroupLayer::new("tenant", |name| ledger.root().child(name));
//! let subscriber = tracing_subscriber::registry().with(layer);
//! tracing::subscriber::with_default(subscriber, || {
//!     let request = tracing::info_span!("request", tenant = "acme");
//!     request.in_scope(|| {
//!         assert_eq!(current::group(), Some(acme));
//!         tracing::info_span!("parse").in_scope(|| assert_eq!(current::group(), Some(acme)));
//!     });
//!     assert_eq!(current::group(), None);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The group of a span
//!
//! A span's group is the one that its own field maps to, else that of the nearest span above it that has one. It is
//! looked up whenever the span is entered, in as many steps as there are spans up to that one. A field that is
//! recorded later (`Span::record`) counts from then on: at once on the thread that records it, if that thread is
//! inside of the span, and elsewhere when a span below is entered next. A span without any group changes nothing.
//!
//! # Leaving spans
//!
//! When a thread leaves a span, the previous group is current again. Spans may be left in any order, as in `tracing`
//! itself: the thread has the group of the innermost span that it is still in. A task in a span
//! (`Instrument::instrument`) has the span's group at each poll, on any worker, and needs no
//! [`charged_to`](super::future::ChargeTo::charged_to). The wrapper is cheaper, though: it takes 0.4 ns, and an entry
//! of the layer with its exit 40 to 45 ns (`ledgerline bench task`). If both are used, the innermost decides, as with
//! guards ([`Group::enter`](crate::Group::enter)), which must then nest with the spans.
//!
//! Use one `GroupLayer` in a subscriber. A filter that hides a span from the layer hides its field, too.

use super::refused::joined;
use super::{Current, peek, unattributed};
use crate::group::Group;
use crate::scope::ScopeId;
use crate::whose::replace;
use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::Subscriber;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A layer that makes the current group follow spans. See the module's documentation.
pub struct GroupLayer<F> {
    field: &'static str,
    group: F,
    /// Distinguishes its entries in a thread's list from those of other layers, whose spans may have the same
    /// numbers.
    number: u64,
}

/// The group of a span's own field; kept with the span.
#[derive(Clone, Copy)]
struct Own(Current);

/// A span that a thread is in.
struct Inside {
    layer: u64,
    span: Id,
    /// The group that the span made current; `None` if it has none.
    made: Option<Current>,
    /// The group that was current before.
    before: Current,
}

impl Inside {
    /// Returns the group that was current after the thread entered.
    fn after(&self) -> Current {
        self.made.unwrap_or(self.before)
    }
}

thread_local! {
    /// The spans that the thread is in, the innermost last.
    static INSIDE: RefCell<Vec<Inside>> = const { RefCell::new(Vec::new()) };
}

impl<F> GroupLayer<F>
where
    F: Fn(&str) -> Option<Group<'static>> + 'static,
{
    /// Creates a layer that calls `group` for each span that has `field`, with the field's value: a text as it is,
    /// and anything else as `tracing` formats it (`%value` by `Display`, `?value` by `Debug`, which puts texts into
    /// quotes). The function returns `None` for a span without a group of its own.
    ///
    /// `group` is called once for each value that is recorded, without a current group. It may create groups. It must
    /// not use spans.
    pub fn new(field: &'static str, group: F) -> GroupLayer<F> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        GroupLayer { field, group, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Notes the group of a span's field, if it is recorded. Returns whether it was.
    fn note<S>(
        &self,
        record: impl FnOnce(&mut dyn Visit),
        span: &Id,
        context: &Context<'_, S>,
    ) -> bool
    where
        S: Subscriber + for<'s> LookupSpan<'s>,
    {
        unattributed(|| {
            let mut told = Told { field: self.field, group: &self.group, own: None };
            record(&mut told);
            let (Some(own), Some(span)) = (told.own, context.span(span)) else { return false };
            let mut extensions = span.extensions_mut();
            match own {
                Some(own) => extensions.replace(own),
                None => extensions.remove(),
            };
            true
        })
    }
}

impl<F> fmt::Debug for GroupLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLayer").field("field", &self.field).finish_non_exhaustive()
    }
}

/// Returns the group of a span: its own, or that of the nearest span above.
fn group_of<S>(span: &Id, context: &Context<'_, S>) -> Option<Current>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    context.span_scope(span)?.find_map(|at| at.extensions().get::<Own>().map(|own| own.0))
}

/// Updates spans after the group around them changed from `old` to `new`. Spans without a group of their own pass the
/// change on; groups that other code made current in between stay.
fn hand_on(
    inside: &mut [Inside],
    mut old: Current,
    mut new: Current,
    look_up: impl Fn(&mut Inside),
) {
    for at in inside {
        let was = at.after();
        if at.before == old {
            at.before = new;
        }
        look_up(at);
        (old, new) = (was, at.after());
    }
    if old != new && peek() == old {
        replace(new);
    }
}

impl<S, F> Layer<S> for GroupLayer<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    F: Fn(&str) -> Option<Group<'static>> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, span: &Id, context: Context<'_, S>) {
        // Most spans have no such field. Checking that costs a look at the names.
        if attributes.fields().field(self.field).is_some() {
            self.note(|visit| attributes.record(visit), span, &context);
        }
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if !self.note(|visit| values.record(visit), span, &context) {
            return;
        }
        // A thread that ends no longer has a list, and is in no span that matters.
        let _gone = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            let own = |inside: &Inside| inside.layer == self.number;
            let Some(first) = inside.iter().position(|at| own(at) && at.span == *span) else {
                return;
            };
            // Looks up this span and all inside of it anew.
            let before = inside[first].before;
            hand_on(&mut inside[first..], before, before, |at| {
                if own(at) {
                    at.made = group_of(&at.span, &context).map(joined);
                }
            });
        });
    }

    fn on_enter(&self, span: &Id, context: Context<'_, S>) {
        let made = group_of(span, &context).map(joined);
        let _gone = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            if inside.len() == inside.capacity() {
                // The list lives as long as the thread, so it is not accounted.
                unattributed(|| inside.reserve(8));
            }
            let before = made.map_or_else(peek, replace);
            inside.push(Inside { layer: self.number, span: span.clone(), made, before });
        });
    }

    fn on_exit(&self, span: &Id, _: Context<'_, S>) {
        // If this was the span's last use, the registry may have forgotten it.
        let _gone = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            let found = inside.iter().rposition(|at| at.layer == self.number && at.span == *span);
            let Some(place) = found else { return };
            let left = inside.remove(place);
            if place == inside.len() {
                replace(left.before);
            } else {
                // Spans inside of it remain: the next of them takes its place.
                hand_on(&mut inside[place..], left.after(), left.before, |_| ());
            }
        });
    }
}

/// Reads the field and looks up its group.
struct Told<'f, F> {
    field: &'static str,
    group: &'f F,
    /// The field's group, once the field was read.
    own: Option<Option<Own>>,
}

impl<F: Fn(&str) -> Option<Group<'static>>> Visit for Told<'_, F> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == self.field {
            // A span that is made inside of a catch is a part of that work.
            let here = Some(peek().scope).filter(|scope| scope.is_named());
            let here = here.unwrap_or(ScopeId::UNSAID);
            let own = |group: Group<'static>| Own(Current::from(group).within(here));
            self.own = Some((self.group)(value).map(own));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == self.field {
            let mut text = String::new();
            // A value that cannot be formatted names no group.
            if write!(text, "{value:?}").is_ok() {
                self.record_str(field, &text);
            }
        }
    }
}
