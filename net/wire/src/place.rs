//! Where a walk through a body was left, so that a long one can be made in pieces.

use std::ops::Range;

use crate::array::WireArray;
use crate::{ApiSpec, Array, ArrayIter, Counted, Field, Reader};

/// The rest of an array: how many elements, and the bytes of the body that hold them. Borrows nothing, so it outlasts a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    left: usize,
    bytes: Range<usize>,
}

/// One request's body and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    pub bytes: &'a [u8],
    pub version: i16,
    pub flexible: bool,
    pub counted: Option<&'a Counted>,
}

impl<'a> Body<'a> {
    pub fn new(spec: &ApiSpec, version: i16, bytes: &'a [u8], counted: Option<&'a Counted>) -> Body<'a> {
        Body { bytes, version, flexible: spec.is_flexible(version), counted }
    }
}

impl Place {
    /// The beginning of an array that was decoded from this body.
    pub fn of<T>(body: Body<'_>, array: &Array<'_, T>) -> Place {
        match array {
            Array::Wire(wire) => Place::of_rest(body, wire),
            // What a version has not is empty.
            Array::Owned(elements) => {
                debug_assert!(elements.is_empty(), "decoded from another body");
                Place::default()
            }
            Array::Lent(_) | Array::Written { .. } => unreachable!("nothing that is decoded was written"),
        }
    }

    fn of_rest(body: Body<'_>, wire: &WireArray<'_>) -> Place {
        let from = wire.elements.rest.as_ptr() as usize - body.bytes.as_ptr() as usize;
        Place { left: wire.count, bytes: from..from + wire.elements.rest.len() }
    }

    /// Elements that are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next element. What the place was made from has been checked, so one that is left can be read.
    pub fn next<'a, T: Field<'a> + Clone>(&mut self, body: Body<'a>) -> Option<T> {
        let mut iter: ArrayIter<'_, 'a, T> = ArrayIter::Wire(self.rest(body));
        let element = iter.next();
        self.at(body, iter);
        element
    }

    /// Calls `each` with the next elements, `most` at most; how many there were.
    pub fn walk<'a, T: Field<'a> + Clone>(&mut self, body: Body<'a>, most: usize, mut each: impl FnMut(T)) -> usize {
        let before = self.left;
        let mut iter: ArrayIter<'_, 'a, T> = ArrayIter::Wire(self.rest(body));
        iter.by_ref().take(most).for_each(&mut each);
        self.at(body, iter);
        before - self.left
    }

    fn rest<'a>(&self, body: Body<'a>) -> WireArray<'a> {
        let bytes = body.bytes.get(self.bytes.clone()).unwrap_or_default();
        WireArray {
            count: self.left,
            elements: Reader::new(bytes, body.version, body.flexible).counted(body.bytes, body.counted),
        }
    }

    fn at<T>(&mut self, body: Body<'_>, iter: ArrayIter<'_, '_, T>) {
        if let ArrayIter::Wire(wire) = iter
            && self.left > 0
        {
            *self = Place::of_rest(body, &wire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::{FetchPartition, FetchTopic};
    use crate::{FETCH, FetchRequest, decode_request, encode_request, request_header};

    #[test]
    fn a_walk_in_pieces_sees_what_one_walk_sees() {
        let part = |index| FetchPartition { partition: ringmain_types::PartitionIndex(index), ..Default::default() };
        let topic =
            |topic, count| FetchTopic { topic, partitions: (0..count).map(part).collect(), ..Default::default() };
        let topics = vec![topic("a", 7), topic("", 0), topic("b", 1), topic("c", 30)];
        for version in [4, 11, 12] {
            let asked = FetchRequest { topics: topics.clone().into(), ..Default::default() };
            let frame = encode_request(&FETCH, version, 1, None, &asked).concat();
            let (_, at) = request_header(&frame[4..]).unwrap();
            let body = Body::new(&FETCH, version, &frame[4 + at..], None);
            let read: FetchRequest<'_> = decode_request(&FETCH, version, body.bytes).unwrap();
            let whole: Vec<(String, i32)> = read
                .topics
                .iter()
                .flat_map(|it| {
                    it.partitions.iter().map(move |part| (it.topic.to_string(), part.partition.0)).collect::<Vec<_>>()
                })
                .collect();
            for most in [1, 2, 5, 100] {
                let (mut pieces, mut walks) = (Vec::new(), 0);
                let mut outer = Place::of(body, &read.topics);
                while let Some(topic) = outer.next::<FetchTopic<'_>>(body) {
                    let mut inner = Place::of(body, &topic.partitions);
                    while inner.left() > 0 {
                        let walked = inner.walk(body, most, |it: FetchPartition| {
                            pieces.push((topic.topic.to_string(), it.partition.0))
                        });
                        assert!((1..=most).contains(&walked));
                        walks += 1;
                    }
                }
                assert_eq!(pieces, whole);
                assert_eq!(walks, [7, 1, 30].iter().map(|count: &usize| count.div_ceil(most)).sum::<usize>());
                assert_eq!(outer.next::<FetchTopic<'_>>(body), None);
            }
            assert_eq!(Place::of(body, &read.forgotten_topics_data).left(), 0);
        }
    }
}
