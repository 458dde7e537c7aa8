//! Items: the things to count. A program declares them once.

use std::fmt;

/// A fixed set of things to count. Declare one with [`items!`](crate::items); all printers follow that
/// declaration.
pub trait Item: Copy + 'static {
    /// All items, in the order of their declaration, which is also the order of printing.
    const ALL: &'static [Self];

    /// Returns the item's index in [`ALL`](Self::ALL).
    fn index(self) -> usize;

    /// Returns the name as printed.
    fn name(self) -> &'static str;

    /// Returns the description of the item, one sentence.
    fn doc(self) -> &'static str;

    /// Finds the item that has this printed name.
    ///
    /// # Errors
    /// When no item has it.
    fn from_name(name: &str) -> Result<Self, UnknownItem> {
        let found = Self::ALL.iter().copied().find(|item| item.name() == name);
        found.ok_or_else(|| UnknownItem { name: name.to_owned() })
    }
}

/// A name that none of the items has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownItem {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no item called {:?}", self.name)
    }
}

impl std::error::Error for UnknownItem {}

/// Declares the items of a table of [`Counters`](crate::stat::Counters): an enum whose variants have
/// a printed name and a sentence of documentation.
///
/// ```
/// use ledgerline::stat::Item;
///
/// ledgerline::items! {
///     /// What the page cache counts.
///     pub enum Cache {
///         /// Pages that hold file data.
///         FilePages = "nr_file_pages",
///         /// Pages that wait to be written.
///         Dirty = "nr_dirty",
///     }
/// }
///
/// assert_eq!(Cache::ALL, [Cache::FilePages, Cache::Dirty]);
/// assert_eq!(Cache::Dirty.name(), "nr_dirty");
/// assert_eq!(Cache::Dirty.doc(), "Pages that wait to be written.");
/// assert_eq!(Cache::from_name("nr_file_pages"), Ok(Cache::FilePages));
/// assert!(Cache::from_name("nr_pages").is_err());
/// ```
#[macro_export]
macro_rules! items {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $Items:ident {
            $( $(#[doc = $doc:literal])+ $Item:ident = $name:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $Items {
            $( $(#[doc = $doc])+ $Item, )+
        }

        impl $crate::stat::Item for $Items {
            const ALL: &'static [Self] = &[$( $Items::$Item ),+];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self {
                    $( $Items::$Item => $name, )+
                }
            }

            fn doc(self) -> &'static str {
                match self {
                    $( $Items::$Item => concat!($($doc),+).trim_ascii(), )+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::items! {
        /// Some items.
        enum Some {
            /// The first one,
            /// in two lines.
            First = "first_one",
            /// The second.
            Second = "second_one",
        }
    }

    #[test]
    fn one_declaration_gives_order_names_and_documentation() {
        assert_eq!(Some::ALL, [Some::First, Some::Second]);
        for (at, item) in Some::ALL.iter().enumerate() {
            assert_eq!(item.index(), at);
            assert_eq!(Some::from_name(item.name()), Ok(*item));
        }
        assert_eq!(Some::First.doc(), "The first one, in two lines.");
    }

    #[test]
    fn an_unknown_name_is_an_error_that_tells_it() {
        let error = Some::from_name("third").unwrap_err();
        assert_eq!(error.to_string(), "there is no item called \"third\"");
    }
}
