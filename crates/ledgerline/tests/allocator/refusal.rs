//! A refusal in plain numbers is an ordinary error, and costs no allocation, not even when it is printed.

use crate::ALLOCATIONS;
use ledgerline::{GroupId, Ledger, Limit, Reason, Refusal};
use std::error::Error;
use std::fmt::Write;

/// A line on the stack.
struct Line([u8; 256], usize);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0[self.1..self.1 + text.len()].copy_from_slice(text.as_bytes());
        self.1 += text.len();
        Ok(())
    }
}

impl Line {
    fn of(refusal: &Refusal) -> Line {
        let mut line = Line([0; 256], 0);
        write!(line, "{refusal}").unwrap();
        line
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.0[..self.1]).unwrap()
    }
}

#[test]
fn saying_no_allocates_nothing_and_names_the_group_by_its_number() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
    let tenant = ledger.root().create("acme").unwrap();
    tenant.set_max(Limit::units(1_000)).unwrap();
    let gone = tenant.create("first").unwrap();
    gone.destroy().unwrap();
    let query = tenant.create("second").unwrap();
    assert_eq!((gone.id(), query.id()), (GroupId::from_parts(2, 1), GroupId::from_parts(2, 2)));
    assert_eq!(
        (format!("{}", query.id()), format!("{:?}", query.id())),
        ("2#2".into(), "2#2".into())
    );
    let held = query.try_charge(900).unwrap();

    let before = ALLOCATIONS.get();
    let full = query.try_charge_units(200).unwrap_err();
    let no_group = gone.charge_units(7).unwrap_err();
    let lines = [full, no_group].map(|refusal| Line::of(&refusal));
    assert_eq!(ALLOCATIONS.get(), before);
    let texts = lines.each_ref().map(Line::text);
    assert_eq!(
        texts,
        [
            "group 1#1 is full: 200 requested, 900 of max 1000 in use",
            "group 2#1 takes no more charges (7 requested)",
        ]
    );
    // The counter works: the same refusal in words allocates.
    let refused = query.try_charge(200).map(drop).unwrap_err();
    assert!(ALLOCATIONS.get() > before);
    assert_eq!(refused.to_string(), "/acme is full: 200 requested, 900 of max 1000 in use");
    assert_eq!(format!("{held:?}"), "Charge(900 of /acme/second 2#2)");
    assert_eq!(format!("{query:?}"), "Group(/acme/second 2#2)");

    for (reason, text) in [
        (Reason::Gone, "group 1#1 takes no more charges (200 requested)"),
        (Reason::Cancelled, "group 1#1 was cancelled to make room for others (200 requested)"),
    ] {
        let mut refusal = full;
        refusal.reason = reason;
        assert_eq!(Line::of(&refusal).text(), text);
    }
}

/// No limit is set, so none is named.
#[test]
fn what_no_group_can_count_is_said_to_be_that() {
    let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
    let group = ledger.root().create("g").unwrap();
    group.charge_units((1 << 62) - 1).unwrap();
    let text = "group 0#1 cannot hold 5 more, 4611686018427387903 in use: no group counts beyond \
                4611686018427387904";
    for refusal in [group.charge_units(5), group.try_charge_units(5)].map(Result::unwrap_err) {
        assert_eq!(refusal.to_string(), text);
    }
    let refused = group.charge(5).map(drop).unwrap_err();
    let text = "/ cannot hold 5 more, 4.0E in use: no group counts beyond 4.0E";
    assert_eq!(refused.to_string(), text);
    // Nor does a charge over the limit name it.
    ledger.root().set_max_now(Limit::units(7)).unwrap();
    assert_eq!(group.charge(5).map(drop).unwrap_err().to_string(), text);
}

#[test]
fn a_refusal_is_an_error_like_others() {
    fn charge(units: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        let ledger = Ledger::builder().capacity(2).anonymous()?;
        ledger.root().set_max(Limit::units(10))?;
        ledger.root().try_charge_units(units)?;
        Ok(())
    }
    assert!(charge(10).is_ok());
    let error = charge(11).unwrap_err();
    assert!(error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.requested == 11));
}
