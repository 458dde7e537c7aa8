//! An order of members that the user proposes, and the offsets of the fields in it.

use ledgerline_layout::Error;

use crate::cost::Place;
use crate::order::Order;
use crate::pieces::Pieces;
use crate::uses::Uses;

/// A member of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// The alignment of its offset beyond its own: 64 to begin a line, 128 to begin a pair, 1 for none.
    pub begins: u64,
}

/// An order, laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Bytes of the type.
    pub size: u64,
    /// The places of its fields.
    pub place: Place,
}

/// Lays out members in an order like a compiler, for objects that begin at multiples of `base` today.
///
/// Members that are not named come after those that are, as they lie today. Members that an order cannot move stay:
/// base classes, and a record that begins the type. Bitfields of one unit move together, to the place of the first that
/// is named.
///
/// # Errors
/// If a name is not a member's, or occurs twice.
pub fn lay(pieces: &Pieces, uses: &Uses, base: u64, order: &[Declared]) -> Result<Given, Error> {
    let today = Order::today(pieces);
    let mut sequence = Vec::with_capacity(today.sequence.len());
    let mut begins = vec![1; pieces.list.len()];
    let mut seen = Vec::with_capacity(order.len());
    for declared in order {
        let name = &declared.name;
        let has = |index: &usize| pieces.list[*index].fields.iter().any(|f| f.name == *name);
        let Some(index) = (0..pieces.list.len()).find(has) else {
            let known: Vec<&str> = pieces.list.iter().map(|piece| piece.name()).collect();
            let error = Error::new(format!("there is no member {name:?}"));
            if name.rsplit_once(' ').is_some_and(|(_, last)| last.parse::<u64>().is_ok()) {
                return Err(
                    error.advise("what a member begins is 64, a line, or 128, a pair of lines")
                );
            }
            let known = crate::uses::few(&known, 12, ", ");
            return Err(error.advise(format!("the members are {known}")));
        };
        if seen.contains(&name) {
            return Err(Error::new(format!("the member {name:?} is named twice")));
        }
        seen.push(name);
        begins[index] = begins[index].max(declared.begins);
        if today.sequence.contains(&index) && !sequence.contains(&index) {
            sequence.push(index);
        }
    }
    let rest = today.sequence.iter().filter(|index| !sequence.contains(index));
    let rest: Vec<usize> = rest.copied().collect();
    sequence.extend(rest);
    let laid = Order { sequence, begins, fill: false }.lay(pieces, &[]);
    Ok(Given { size: laid.size, place: laid.place(pieces, uses, base) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::{Field, Held, Piece};
    use crate::profile::Instances;
    use crate::uses::Spot;
    use ledgerline_layout::model::{Type, Types};

    fn three() -> (Pieces, Uses) {
        let mut types = Types::new(8);
        let name = types.intern("long");
        let ty = types.push(Type::Base { name, size: 8 });
        let piece = |name: &str, offset| Piece {
            fields: vec![Field { name: name.to_owned(), ty, start: 0, bits: None }],
            offset,
            size: 8,
            align: 8,
            held: None,
        };
        let spot = |path: &str, offset| Spot {
            path: path.to_owned(),
            offset,
            size: 8,
            divided: false,
            awaited: false,
        };
        let list = vec![piece("a", 0), piece("b", 8), piece("c", 16)];
        let pieces = Pieces { list, dropped: Vec::new(), size: 24, align: 8 };
        let uses = Uses {
            name: "three".to_owned(),
            instances: Instances::Shared,
            spots: vec![spot("a", 0), spot("b", 8), spot("c", 16)],
            roles: Vec::new(),
            unknown: Vec::new(),
            settled: Vec::new(),
        };
        (pieces, uses)
    }

    fn declared(names: &[(&str, u64)]) -> Vec<Declared> {
        let one = |&(name, begins): &(&str, u64)| Declared { name: name.to_owned(), begins };
        names.iter().map(one).collect()
    }

    #[test]
    fn members_lie_as_they_are_declared_and_the_rest_behind_them() {
        let (pieces, uses) = three();
        let given = lay(&pieces, &uses, 8, &declared(&[("c", 1), ("a", 128)])).unwrap();
        assert_eq!(given.place, Place { offsets: vec![128, 136, 0], base: 128, row: None });
        assert_eq!(given.size, 256);
        let given = lay(&pieces, &uses, 8, &declared(&[("b", 1)])).unwrap();
        assert_eq!(given.place, Place { offsets: vec![8, 0, 16], base: 8, row: None });
    }

    #[test]
    fn what_an_order_cannot_move_stays() {
        let (mut pieces, uses) = three();
        pieces.list[0].held = Some(Held::First);
        let given = lay(&pieces, &uses, 8, &declared(&[("c", 1), ("b", 1), ("a", 1)])).unwrap();
        assert_eq!(given.place.offsets, [0, 16, 8]);
    }

    #[test]
    fn a_wrong_name_is_told_with_the_right_ones() {
        let (pieces, uses) = three();
        let wrong = |order| lay(&pieces, &uses, 8, &declared(order)).unwrap_err().to_string();
        assert_eq!(wrong(&[("d", 1)]), "there is no member \"d\"; the members are a, b, c");
        let said = "what a member begins is 64, a line, or 128, a pair of lines";
        assert_eq!(wrong(&[("a 100", 1)]), format!("there is no member \"a 100\"; {said}"));
        assert_eq!(wrong(&[("a", 1), ("a", 1)]), "the member \"a\" is named twice");
    }
}
