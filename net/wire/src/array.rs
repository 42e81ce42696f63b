//! Arrays: decoded, a checked range of the frame; encoded, what a handler built.

use std::fmt;

use ringmain_buffer::Buf;

use crate::count::Known;
use crate::{Field, Kind, Reader, WireError, Writer};

/// Decoding checks every element once, allocates nothing, and keeps the range; `iter` decodes again, lazily, and can't fail.
/// Nested arrays were checked with their elements, so all passes together cost a small multiple of the frame's bytes (one per level
/// of nesting).
#[derive(Clone)]
pub enum Array<'a, T> {
    Wire(WireArray<'a>),
    Owned(Vec<T>),
    /// Only in what is encoded: the same, in a place of the handler's own.
    Lent(&'a [T]),
    /// Only in what is encoded: elements that were written before, slice by slice, in the message's version. They are not looked at.
    Written {
        count: usize,
        slices: Vec<Buf>,
    },
}

/// The range of an array whose elements are known to decode.
#[derive(Clone)]
pub struct WireArray<'a> {
    pub(crate) count: usize,
    pub(crate) elements: Reader<'a>,
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Array::Owned(Vec::new())
    }
}

impl<T> From<Vec<T>> for Array<'_, T> {
    fn from(elements: Vec<T>) -> Self {
        Array::Owned(elements)
    }
}

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        Array::Lent(elements)
    }
}

impl<T> FromIterator<T> for Array<'_, T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Array::Owned(elements.into_iter().collect())
    }
}

impl<'a, T> Array<'a, T> {
    pub fn len(&self) -> usize {
        match self {
            Array::Wire(wire) => wire.count,
            Array::Owned(elements) => elements.len(),
            Array::Lent(elements) => elements.len(),
            Array::Written { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> ArrayIter<'_, 'a, T> {
        match self {
            Array::Wire(wire) => ArrayIter::Wire(wire.clone()),
            Array::Owned(elements) => ArrayIter::Owned(elements.iter()),
            Array::Lent(elements) => ArrayIter::Owned(elements.iter()),
            Array::Written { .. } => {
                debug_assert!(false, "what is written is not read again");
                ArrayIter::Owned([].iter())
            }
        }
    }
}

impl<'a> Reader<'a> {
    /// Checks the elements of an array, but for those that are known.
    fn skim<T: Field<'a>>(&mut self, field: &'static str, count: usize) -> Result<(), WireError> {
        let (begin, outside) = (self.position(), self.elements);
        let mut seen = self.memory.known(begin).unwrap_or_default();
        self.take(seen.bytes)?;
        self.elements += seen.elements;
        while seen.read < count {
            let (before, at) = (self.rest.len(), self.position());
            let read =
                if self.memory.pay(self.elements) { T::read(self).map(drop) } else { Err(WireError::Short { field }) };
            if let Err(error) = read {
                self.memory.left_at(begin, seen);
                return Err(error);
            }
            // An element of no bytes would make a count of n cost n steps for no bytes, at every level again.
            if self.rest.len() == before {
                return Err(WireError::Value { field, value: 0 });
            }
            let bytes = seen.bytes + before - self.rest.len();
            seen = Known { read: seen.read + 1, bytes, elements: self.elements - outside };
            self.memory.moved(at);
        }
        self.memory.whole(begin, seen);
        Ok(())
    }
}

/// Elements by value: decoded on the way, or cloned from what a handler built.
pub enum ArrayIter<'s, 'a, T> {
    Wire(WireArray<'a>),
    Owned(std::slice::Iter<'s, T>),
}

impl<'a, T: Field<'a> + Clone> Iterator for ArrayIter<'_, 'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            ArrayIter::Owned(elements) => elements.next().cloned(),
            ArrayIter::Wire(wire) => {
                wire.count = wire.count.checked_sub(1)?;
                let element = T::read(&mut wire.elements);
                debug_assert!(element.is_ok(), "elements were checked when the array was decoded");
                element.ok()
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            ArrayIter::Wire(wire) => wire.count,
            ArrayIter::Owned(elements) => elements.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Field<'a> + Clone> ExactSizeIterator for ArrayIter<'_, 'a, T> {}

impl<'s, 'a, T: Field<'a> + Clone> IntoIterator for &'s Array<'a, T> {
    type Item = T;
    type IntoIter = ArrayIter<'s, 'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Field<'a> + Clone + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Clone + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Field<'a> + Clone> Field<'a> for Option<Array<'a, T>> {
    const KIND: Kind = Kind::Nullable(&Kind::Array(&T::KIND));

    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let field = r.field;
        let Some(count) = r.wide_len()? else { return Ok(None) };
        let mut elements = r.clone();
        r.elements += count;
        r.skim::<T>(field, count)?;
        elements.rest = &elements.rest[..elements.rest.len() - r.rest.len()];
        Ok(Some(Array::Wire(WireArray { count, elements })))
    }

    fn write(&self, w: &mut Writer) {
        match self {
            None => w.wide_len(None),
            Some(array) => array.write(w),
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    fn write_present(&self, w: &mut Writer) {
        match self {
            None => w.wide_len(Some(0)),
            Some(array) => array.write(w),
        }
    }
}

impl<'a, T: Field<'a> + Clone> Field<'a> for Array<'a, T> {
    const KIND: Kind = Kind::Array(&T::KIND);

    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let field = r.field;
        Option::<Array<T>>::read(r)?.ok_or(WireError::Length { field, value: -1 })
    }

    fn write(&self, w: &mut Writer) {
        w.wide_len(Some(self.len()));
        match self {
            Array::Wire(_) => self.iter().for_each(|element| element.write(w)),
            Array::Owned(elements) => elements.iter().for_each(|element| element.write(w)),
            Array::Lent(elements) => elements.iter().for_each(|element| element.write(w)),
            Array::Written { slices, .. } => slices.iter().for_each(|slice| w.splice(slice.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiInfo, ApiSpec, Count};

    #[test]
    fn elements_come_out_lazily_and_compare_with_built_ones() {
        let built: Array<i32> = vec![1, -2, 3].into();
        let mut w = Writer::new(0, true);
        built.write(&mut w);
        let bytes = w.finish().concat();
        let read = Array::<i32>::read(&mut Reader::new(&bytes, 0, true)).unwrap();
        assert_eq!((read.len(), &read), (3, &built));
        assert_eq!(read.iter().collect::<Vec<_>>(), [1, -2, 3]);
        assert_ne!(read, Array::from(vec![1, -2]));
        let mut again = Writer::new(0, false);
        read.write(&mut again);
        assert_eq!(again.finish().concat()[..4], [0, 0, 0, 3], "written anew for another form");
    }

    #[test]
    fn what_was_written_in_slices_reads_as_one_array() {
        let slices = [vec![1i32, 2], vec![], vec![3]].map(|elements| {
            let mut w = Writer::new(0, true);
            elements.iter().for_each(|element| element.write(&mut w));
            w.finish()
        });
        let mut w = Writer::new(0, true);
        let written: Array<'_, i32> = Array::Written { count: 3, slices: slices.concat() };
        written.write(&mut w);
        let bytes = w.finish().concat();
        assert_eq!(Array::<i32>::read(&mut Reader::new(&bytes, 0, true)).unwrap(), vec![1, 2, 3].into());
    }

    #[test]
    fn a_count_is_at_most_the_bytes_that_are_left() {
        assert!(Array::<i8>::read(&mut Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0], 0, false)).is_err());
        assert!(Array::<i8>::read(&mut Reader::new(&[0, 0, 0, 3, 0, 0], 0, false)).is_err());
        assert!(Array::<i8>::read(&mut Reader::new(&[0xff, 0xff, 0xff, 0xff], 0, false)).is_err(), "null");
        assert!(Option::<Array<i8>>::read(&mut Reader::new(&[0xff, 0xff, 0xff, 0xfe], 0, false)).is_err(), "-2");
    }

    #[test]
    fn an_element_of_no_bytes_is_refused() {
        #[derive(Clone)]
        struct Nothing;
        impl<'a> Field<'a> for Nothing {
            const KIND: Kind = Kind::Bool;
            fn read(_: &mut Reader<'a>) -> Result<Nothing, WireError> {
                Ok(Nothing)
            }
            fn write(&self, _: &mut Writer) {}
        }
        assert!(Array::<Nothing>::read(&mut Reader::new(&[0, 0, 0, 2, 9, 9], 0, false)).is_err());
    }

    #[test]
    fn elements_of_all_levels_are_counted() {
        let built: Array<Array<i8>> = (0..10).map(|_| (0..100).collect()).collect();
        let mut w = Writer::new(0, true);
        built.write(&mut w);
        let bytes = w.finish().concat();
        let mut r = Reader::new(&bytes, 0, true);
        Array::<Array<i8>>::read(&mut r).unwrap();
        assert_eq!(r.elements, 10 + 10 * 100);
        // In tagged fields too.
        let mut w = Writer::new(0, true);
        w.uvar(1);
        w.tag(3, |w| built.write(w));
        let bytes = w.finish().concat();
        let mut r = Reader::new(&bytes, 0, true);
        r.tags(|_, value| Array::<Array<i8>>::read(value).map(|_| true)).unwrap();
        assert_eq!(r.elements, 1010);
    }

    thread_local!(static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    #[derive(Clone)]
    struct Leaf;
    impl<'a> Field<'a> for Leaf {
        const KIND: Kind = Kind::Int8;
        fn read(r: &mut Reader<'a>) -> Result<Leaf, WireError> {
            READS.set(READS.get() + 1);
            r.take(1).map(|_| Leaf)
        }
        fn write(&self, w: &mut Writer) {
            w.extend(&[0]);
        }
    }

    #[test]
    fn a_walk_costs_one_pass_per_level() {
        let built: Array<Array<Leaf>> = (0..10).map(|_| (0..100).map(|_| Leaf).collect()).collect();
        let mut w = Writer::new(0, true);
        built.write(&mut w);
        let bytes = w.finish().concat();
        let read = Array::<Array<Leaf>>::read(&mut Reader::new(&bytes, 0, true)).unwrap();
        assert_eq!(READS.get(), 1000, "the check");
        assert_eq!(read.iter().map(|inner| inner.iter().count()).sum::<usize>(), 1000);
        assert_eq!(READS.get(), 3000, "the outer walk and the inner ones");
    }

    #[test]
    fn what_was_counted_is_not_looked_at_again() {
        let built: Array<Array<Leaf>> =
            [3000, 2, 2000].into_iter().map(|count| (0..count).map(|_| Leaf).collect::<Array<'_, Leaf>>()).collect();
        let mut w = Writer::new(0, true);
        built.write(&mut w);
        let bytes = w.finish().concat();
        let info = ApiInfo {
            spec: ApiSpec { key: 0, name: "", versions: (0, 0), flexible: 0, overlap: crate::Overlap::Ordered },
            request: Kind::Bool,
            response: Kind::Bool,
            elements: |version, body, pieces| {
                let mut r = Reader::new(body, version, true).counting(pieces);
                Array::<Array<Leaf>>::read(&mut r).map(|_| r.elements)
            },
        };
        READS.set(0);
        let mut count = Count::default();
        let mut passes = 1;
        let counted = loop {
            match count.go_on(&info, 0, &bytes, 100).unwrap() {
                Some(counted) => break counted,
                None => passes += 1,
            }
        };
        assert_eq!((READS.get(), passes, counted.elements()), (5002, 51, 5005), "each once, in pieces");
        let read =
            Array::<Array<Leaf>>::read(&mut Reader::new(&bytes, 0, true).counted(&bytes, Some(&counted))).unwrap();
        assert_eq!(READS.get(), 5002, "known");
        let sum: usize = read.iter().map(|inner| inner.len()).sum();
        assert_eq!((sum, READS.get()), (5002, 5004), "only the small one");
    }
}
