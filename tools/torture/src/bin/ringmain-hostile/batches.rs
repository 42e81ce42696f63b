//! Record batches that are none, and what becomes of the partition beside.

use crc32c::crc32c;

use crate::ask::{batch, create, produce};
use crate::suite::{Case, Outcome, case, must};
use crate::world::World;

const TOPIC: &str = "spoiled";
const CORRUPT: i16 = 2;
const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 35;
const UNSUPPORTED_COMPRESSION: i16 = 76;
const INVALID_RECORD: i16 = 87;
const TOO_LARGE: i16 = 10;

/// Positions in a batch.
const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const COUNT: usize = 57;

pub const CASES: &[Case] = &[
    case("a batch with a wrong CRC fails alone with 2", |world| spoiled(world, CORRUPT, |b| b[CRC] ^= 1)),
    case("a batch with a flipped bit in a record fails alone with 2", |world| {
        spoiled(world, CORRUPT, |b| *b.last_mut().expect("a byte") ^= 1)
    }),
    case("a batch with a wrong count fails alone with 87", |world| {
        spoiled(world, INVALID_RECORD, |b| signed(b, COUNT + 3, 9))
    }),
    case("a batch that claims 2^31-1 records fails alone with 87", |world| {
        spoiled(world, INVALID_RECORD, |b| {
            b[COUNT..COUNT + 4].copy_from_slice(&i32::MAX.to_be_bytes());
            sign(b);
        })
    }),
    case("a batch with an unknown codec fails alone with 76", |world| {
        spoiled(world, UNSUPPORTED_COMPRESSION, |b| signed(b, ATTRIBUTES + 1, 5))
    }),
    case("a batch that only claims to be zstd fails alone with 87", |world| {
        spoiled(world, INVALID_RECORD, |b| signed(b, ATTRIBUTES + 1, 4))
    }),
    case("a batch of magic 3 fails alone with 35", |world| {
        spoiled(world, UNSUPPORTED_FOR_MESSAGE_FORMAT, |b| b[MAGIC] = 3)
    }),
    case("a batch of magic 1 fails alone with 87", |world| spoiled(world, INVALID_RECORD, |b| b[MAGIC] = 1)),
    case("a batch with a length of its own fails alone with 87", |world| {
        spoiled(world, INVALID_RECORD, |b| b[LENGTH + 3] += 1)
    }),
    case("a control batch from a producer fails alone with 87", |world| {
        spoiled(world, INVALID_RECORD, |b| signed(b, ATTRIBUTES + 1, 0x20))
    }),
    case("a batch beyond max.message.bytes gets 10 with both sizes", oversize),
    case("partitions and topics that are not there fail alone with 3", missing),
];

fn signed(batch: &mut [u8], at: usize, value: u8) {
    batch[at] = value;
    sign(batch);
}

fn sign(batch: &mut [u8]) {
    let crc = crc32c(&batch[ATTRIBUTES..]);
    batch[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
}

/// One request with a bad batch for partition 0 and a good one for 1.
fn spoiled(world: &mut World, code: i16, spoil: fn(&mut Vec<u8>)) -> Outcome {
    let mut connection = world.connect()?;
    let made = create(&mut connection, TOPIC, 2, &[("max.message.bytes", "1000")])?;
    must(made.code == 0 || made.code == 36, || format!("{made:?}"))?;
    let mut bad = batch(b"a value");
    spoil(&mut bad);
    let answers = produce(&mut connection, TOPIC, &[(0, bad), (1, batch(b"a value"))])?;
    let [(bad, _), (good, _)] = &answers[..] else { return Err(format!("{answers:?}").into()) };
    must(bad.code == code && !bad.message.is_empty(), || format!("{bad:?} instead of {code} with a message"))?;
    good.ok("the partition beside")?;
    // And it says so again: the connection stands.
    let answers = produce(&mut connection, TOPIC, &[(0, batch(b"good"))])?;
    must(answers.iter().all(|(answer, _)| answer.code == 0), || format!("{answers:?}"))
}

fn oversize(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let made = create(&mut connection, TOPIC, 2, &[("max.message.bytes", "1000")])?;
    must(made.code == 0 || made.code == 36, || format!("{made:?}"))?;
    let large = batch(&[b'x'; 5000]);
    let bytes = large.len().to_string();
    let answers = produce(&mut connection, TOPIC, &[(0, large), (1, batch(b"small"))])?;
    let [(bad, _), (good, _)] = &answers[..] else { return Err(format!("{answers:?}").into()) };
    let named = bad.message.contains(&bytes) && bad.message.contains("1000");
    must(bad.code == TOO_LARGE && named, || format!("{bad:?} does not name {bytes} and 1000"))?;
    Ok(good.ok("the partition beside")?)
}

fn missing(world: &mut World) -> Outcome {
    let mut connection = world.connect()?;
    let made = create(&mut connection, TOPIC, 2, &[("max.message.bytes", "1000")])?;
    must(made.code == 0 || made.code == 36, || format!("{made:?}"))?;
    for index in [2, -1, i32::MAX, i32::MIN] {
        let answers = produce(&mut connection, TOPIC, &[(index, batch(b"x")), (1, batch(b"x"))])?;
        let codes: Vec<i16> = answers.iter().map(|(answer, _)| answer.code).collect();
        must(codes == [3, 0], || format!("partition {index}: {answers:?}"))?;
    }
    let answers = produce(&mut connection, "no.such.topic", &[(0, batch(b"x"))])?;
    must(answers[0].0.code == 3, || format!("{answers:?}"))
}
