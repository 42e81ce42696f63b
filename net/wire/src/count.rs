//! What a body names, counted in pieces: the largest frames hold a hundred thousand elements, and to look at all of them takes milliseconds.
//!
//! A pass begins at the front each time, but arrays that were seen before are skipped as far as they were seen, so all passes together cost
//! one. What is known of large arrays stays: whoever decodes the body later does not look at them again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::{ApiInfo, WireError};

/// Arrays with so many elements, at all levels, are remembered.
const LARGE_ELEMENTS: usize = 1024;
/// A string costs one element more for each so many bytes.
pub(crate) const STRING_BYTES: usize = 128;

/// How far a body was counted.
#[derive(Debug, Default)]
pub struct Count {
    pieces: Pieces,
}

/// A body that was counted whole.
#[derive(Debug, Default)]
pub struct Counted {
    elements: usize,
    arrays: BTreeMap<u32, Known>,
}

/// What was seen of an array's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) read: usize,
    pub(crate) bytes: usize,
    /// Within these, at all levels.
    pub(crate) elements: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Large ones and those in which the pass has ended, by where in the body their elements begin.
    arrays: RefCell<BTreeMap<u32, Known>>,
    /// Small ones that were read whole, in the body's order: those in front of the place where the pass has ended.
    small: RefCell<SmallVec<[(u32, Known); 4]>>,
    /// Elements that may still be looked at.
    left: Cell<usize>,
    /// One was read whole in this pass, so it is not in vain.
    moved: Cell<bool>,
    /// The pass has ended for want of more, with so many elements announced.
    ended: Cell<Option<usize>>,
}

/// Whom a reader asks for what is known of arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Memory<'a> {
    #[default]
    None,
    Whole(&'a Counted),
    Pieces(&'a Pieces),
}

impl Count {
    /// Looks at about `most` elements more. `None`: there are others. An error is the body's: it never decodes.
    pub fn go_on(
        &mut self,
        info: &ApiInfo,
        version: i16,
        body: &[u8],
        most: usize,
    ) -> Result<Option<Counted>, WireError> {
        self.pieces.left.set(most);
        self.pieces.moved.set(false);
        self.pieces.ended.set(None);
        let result = (info.elements)(version, body, &self.pieces);
        if self.pieces.ended.get().is_some() {
            return Ok(None);
        }
        Ok(Some(Counted { elements: result?, arrays: self.pieces.arrays.take() }))
    }

    /// At least so many elements are there, if the rest decodes: those that were looked at, and those that their arrays announced.
    pub fn announced(&self) -> usize {
        self.pieces.ended.get().unwrap_or_default()
    }
}

impl Counted {
    /// Elements of arrays, at all levels.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Whoever decodes the body has something of it.
    pub fn is_of_use(&self) -> bool {
        !self.arrays.is_empty()
    }
}

impl Memory<'_> {
    pub(crate) fn known(self, begin: u32) -> Option<Known> {
        match self {
            Memory::None => None,
            Memory::Whole(counted) => counted.arrays.get(&begin).copied(),
            Memory::Pieces(pieces) => {
                let small = pieces.small.borrow();
                let at = small.binary_search_by_key(&begin, |(begin, _)| *begin);
                at.map_or_else(|_| pieces.arrays.borrow().get(&begin).copied(), |at| Some(small[at].1))
            }
        }
    }

    /// Pays for an element. False when the pass ends before it.
    pub(crate) fn pay(self, announced: usize) -> bool {
        let Memory::Pieces(pieces) = self else { return true };
        let left = pieces.left.get();
        pieces.left.set(left.saturating_sub(1));
        if left == 0 && pieces.moved.get() {
            pieces.ended.set(Some(announced));
        }
        pieces.ended.get().is_none()
    }

    /// For what costs more than other elements.
    pub(crate) fn pay_more(self, count: usize) {
        if let Memory::Pieces(pieces) = self {
            pieces.left.set(pieces.left.get().saturating_sub(count));
        }
    }

    /// An element was read whole: nobody comes back to what is in it.
    pub(crate) fn moved(self, begin: u32) {
        if let Memory::Pieces(pieces) = self {
            pieces.moved.set(true);
            let mut small = pieces.small.borrow_mut();
            while small.last().is_some_and(|(inner, _)| *inner >= begin) {
                small.pop();
            }
        }
    }

    /// An element was not read whole: it may be for the end of the pass.
    pub(crate) fn left_at(self, begin: u32, known: Known) {
        if let Memory::Pieces(pieces) = self
            && pieces.ended.get().is_some()
        {
            pieces.arrays.borrow_mut().insert(begin, known);
        }
    }

    /// An array was read to its end.
    pub(crate) fn whole(self, begin: u32, known: Known) {
        if let Memory::Pieces(pieces) = self {
            let mut arrays = pieces.arrays.borrow_mut();
            if known.read + known.elements >= LARGE_ELEMENTS {
                arrays.insert(begin, known);
                return;
            }
            arrays.remove(&begin);
            let mut small = pieces.small.borrow_mut();
            if small.last().is_none_or(|(last, _)| *last < begin) {
                small.push((begin, known));
            }
        }
    }
}
