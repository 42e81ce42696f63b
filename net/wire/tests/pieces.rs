//! Counting in pieces comes to what counting at once comes to, and what was counted decodes to the same.

mod facts;

use facts::{Bodies, Random};
use ringmain_types::PartitionIndex;
use ringmain_wire::fetch::{FetchPartition, FetchTopic};
use ringmain_wire::*;

/// The elements, and in how many passes.
fn count(info: &ApiInfo, version: i16, body: &[u8], most: usize) -> (Result<Counted, WireError>, usize) {
    let mut count = Count::default();
    for passes in 1.. {
        match count.go_on(info, version, body, most) {
            Ok(None) => assert!(passes <= 2 * body.len(), "{} v{version}: it goes on for ever", info.spec.name),
            Ok(Some(counted)) => return (Ok(counted), passes),
            Err(error) => return (Err(error), passes),
        }
    }
    unreachable!()
}

#[test]
fn pieces_of_any_size_come_to_the_same() {
    let (mut random, mut several, mut refused) = (Random(11), 0, 0);
    for message in facts::messages().iter().filter(|message| message.name.ends_with("Request")) {
        let info = api_info(message.key).unwrap();
        for version in info.spec.versions.0..=info.spec.versions.1 {
            for seed in 0..30 {
                let mut body = Bodies::new(seed, message, version).body(&message.fields);
                if seed % 2 == 1 && !body.is_empty() {
                    let at = random.below(body.len());
                    body[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6)];
                }
                let (whole, passes) = count(info, version, &body, usize::MAX);
                assert_eq!(passes, 1);
                for most in [0, 1, 2, 5] {
                    let (pieces, passes) = count(info, version, &body, most);
                    let [whole, pieces] = [&whole, &pieces].map(|it| it.as_ref().map(Counted::elements));
                    assert_eq!(pieces, whole, "{} v{version}, seed {seed}, {most} a pass", message.name);
                    several += usize::from(passes > 3);
                    refused += usize::from(whole.is_err());
                }
            }
        }
    }
    assert!(several > 1000 && refused > 1000, "{several} in several passes, {refused} refused");
}

/// With topics that are large and small, and a long name in front of each array.
#[test]
fn what_was_counted_decodes_to_the_same() {
    let name = "n".repeat(20_000);
    let part = |index| FetchPartition { partition: PartitionIndex(index), ..Default::default() };
    let topic = |count| FetchTopic { topic: &name, partitions: (0..count).map(part).collect(), ..Default::default() };
    let topics: Vec<FetchTopic<'_>> = [5000, 0, 1, 3000, 40, 40].into_iter().map(topic).collect();
    let asked = FetchRequest { topics: topics.into(), rack_id: "r", ..Default::default() };
    for version in [4, 11, 12] {
        let mut w = Writer::new(version, version >= FETCH.flexible);
        asked.write(&mut w);
        let bytes = w.finish().concat();
        for most in [1000, 3001] {
            let (counted, passes) = count(api_info(FETCH.key).unwrap(), version, &bytes, most);
            let counted = counted.unwrap();
            assert_eq!(counted.elements(), 6 + 8081);
            assert!((8000 / most..=16_000 / most).contains(&passes), "{passes} passes of {most}");
            let again: FetchRequest<'_> = decode_counted(&FETCH, version, &bytes, Some(&counted)).unwrap();
            assert_eq!(again.topics, asked.topics);
            let body = Body::new(&FETCH, version, &bytes, Some(&counted));
            let (mut place, mut seen) = (Place::of(body, &again.topics), 0);
            while let Some(topic) = place.next::<FetchTopic<'_>>(body) {
                let mut parts = Place::of(body, &topic.partitions);
                while parts.walk(body, 7, |part: FetchPartition| seen += part.partition.0 as usize) > 0 {}
            }
            assert_eq!(
                seen,
                [5000, 0, 1, 3000, 40, 40].iter().map(|count| count * (count - 1usize.min(*count)) / 2).sum()
            );
        }
    }
}

/// What is announced is known before it is looked at.
#[test]
fn an_array_says_at_once_how_much_it_is() {
    let body: FetchRequest<'_> = FetchRequest {
        topics: vec![FetchTopic {
            partitions: (0..9000).map(|_| FetchPartition::default()).collect(),
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    let mut w = Writer::new(12, true);
    body.write(&mut w);
    let mut count = Count::default();
    assert!(count.go_on(api_info(FETCH.key).unwrap(), 12, &w.finish().concat(), 10).unwrap().is_none());
    assert_eq!(count.announced(), 9001);
}

#[test]
fn more_tagged_fields_than_anybody_has_are_refused() {
    for (count, fine) in [(256, true), (257, false), (1 << 20, false)] {
        let mut w = Writer::new(3, true);
        w.uvar(count);
        let mut body = w.finish().concat();
        body.splice(0..0, [1, 1]);
        for tag in 0..count {
            let mut w = Writer::new(3, true);
            w.uvar(100 + tag);
            w.uvar(0);
            body.extend(w.finish().concat());
        }
        let read: Result<ApiVersionsRequest<'_>, WireError> = decode_request(&API_VERSIONS, 3, &body);
        assert_eq!(read.is_ok(), fine, "{read:?}");
    }
}
