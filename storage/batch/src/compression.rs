//! Codecs. Decoders are bounded by what was received, not by what it claims; encoders write what Kafka's Java clients read.

use std::io::{Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::BatchError;
use crate::lz4::Lz4Reader;
use crate::varint::read;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// Of the attributes' lowest three bits.
    pub fn from_id(id: u8) -> Result<Codec, BatchError> {
        Codec::ALL.get(usize::from(id)).copied().ok_or(BatchError::Codec { what: "codec bits above 4 (zstd)" })
    }

    /// The attributes' lowest three bits.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Kafka's name, as in `compression.type`; `none` is called `uncompressed` there.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// Reads the records that `bytes` hold in compressed form. `Codec::None` reads `bytes` themselves.
pub(crate) fn decoder<'a>(codec: Codec, bytes: &'a [u8]) -> Result<Box<dyn Read + 'a>, BatchError> {
    Ok(match codec {
        Codec::None => Box::new(bytes),
        Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
        Codec::Snappy => Box::new(SnappyReader::new(bytes)?),
        Codec::Lz4 => Box::new(Lz4Reader::new(bytes)),
        Codec::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(bytes).map_err(|_| NO_MEMORY)?),
    })
}

const NO_MEMORY: BatchError = BatchError::Compressed { what: "no memory for a decoder" };

/// Decompresses all of `bytes` into `scratch`, which is emptied first, at most `bytes_max`. `scratch` grows with what comes out.
pub(crate) fn decompress(
    codec: Codec,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), BatchError> {
    const STEP_BYTES_MIN: usize = 4 << 10;
    scratch.clear();
    let mut decoder = decoder(codec, bytes)?;
    let mut len = 0;
    loop {
        if scratch.len() == len {
            scratch.resize((len * 2).max(STEP_BYTES_MIN).min(bytes_max.saturating_add(1)), 0);
        }
        match read(&mut decoder, &mut scratch[len..])? {
            0 => break,
            bytes => len += bytes,
        }
        if len > bytes_max {
            scratch.clear();
            return Err(BatchError::Expands { max: u32::try_from(bytes_max).unwrap_or(u32::MAX) });
        }
    }
    scratch.truncate(len);
    Ok(())
}

/// Appends `records`, compressed, to `out`. `level` as in Kafka's `compression.{gzip,zstd}.level`, out of range clamped; snappy has
/// none and lz4's fast encoder is the only one here, so theirs is ignored.
pub(crate) fn compress(codec: Codec, level: Option<i32>, records: &[u8], out: &mut Vec<u8>) {
    match codec {
        Codec::None => out.extend_from_slice(records),
        Codec::Gzip => {
            // -1 is Kafka's name for the default, which is zlib's 6.
            let level = level.filter(|level| *level >= 0).map_or(6, |level| level.clamp(1, 9) as u32);
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(level));
            encoder.write_all(records).and_then(|()| encoder.finish().map(drop)).expect(IN_MEMORY);
        }
        Codec::Snappy => snappy(records, out),
        Codec::Lz4 => {
            // Independent blocks: Kafka's Java decoder refuses linked ones.
            let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
            let mut encoder = FrameEncoder::with_frame_info(info, out);
            encoder.write_all(records).expect(IN_MEMORY);
            encoder.finish().expect(IN_MEMORY);
        }
        Codec::Zstd => {
            let range = zstd::compression_level_range();
            let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL).clamp(*range.start(), *range.end());
            zstd::stream::copy_encode(records, out, level).expect(IN_MEMORY);
        }
    }
}

const IN_MEMORY: &str = "an encoder that writes to memory fails only when memory is gone";

/// What the Java library puts in front of its chunks: magic, version 1, lowest version that may read it 1.
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_MAGIC_BYTES: usize = 8;
/// Uncompressed bytes a chunk; the Java library's default.
const XERIAL_CHUNK_BYTES: usize = 32 << 10;

fn snappy(records: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&XERIAL_HEADER);
    let mut encoder = snap::raw::Encoder::new();
    let mut chunk = vec![0; snap::raw::max_compress_len(XERIAL_CHUNK_BYTES.min(records.len()))];
    for part in records.chunks(XERIAL_CHUNK_BYTES) {
        let bytes = encoder.compress(part, &mut chunk).expect("a chunk's worst case fits");
        out.extend_from_slice(&(bytes as u32).to_be_bytes());
        out.extend_from_slice(&chunk[..bytes]);
    }
}

/// Reads snappy chunks in the Java library's framing, or one unframed chunk, as librdkafka writes it.
struct SnappyReader<'a> {
    rest: &'a [u8],
    framed: bool,
    chunk: Vec<u8>,
    at: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(bytes: &'a [u8]) -> Result<SnappyReader<'a>, BatchError> {
        let header = bytes.split_first_chunk::<{ XERIAL_HEADER.len() }>();
        let header = header.filter(|(header, _)| header[..XERIAL_MAGIC_BYTES] == XERIAL_HEADER[..XERIAL_MAGIC_BYTES]);
        // Behind the magic: the writer's version, and the oldest that can read it. snappy-java refuses a writer's before 1.
        if header.is_some_and(|([.., a, b, c, d, _, _, _, _], _)| i32::from_be_bytes([*a, *b, *c, *d]) < 1) {
            return Err(BatchError::Compressed { what: "a snappy stream of before version 1" });
        }
        let rest = header.map_or(bytes, |(_, rest)| rest);
        Ok(SnappyReader { rest, framed: header.is_some(), chunk: Vec::new(), at: 0 })
    }

    /// The next chunk's compressed bytes.
    fn next(&mut self) -> Option<&'a [u8]> {
        let chunk;
        if self.framed {
            let (length, rest) = self.rest.split_first_chunk::<4>()?;
            let length = u32::from_be_bytes(*length) as usize;
            (chunk, self.rest) = rest.split_at_checked(length)?;
        } else {
            (chunk, self.rest) = (self.rest, &[]);
        }
        Some(chunk)
    }
}

/// No snappy element makes more than 64 bytes of 3: a chunk that claims more lies, and is not given the memory.
const SNAPPY_GROWTH_MAX: usize = 22;

impl Read for SnappyReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.at == self.chunk.len() {
            if self.rest.is_empty() {
                return Ok(0);
            }
            let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
            let chunk = self.next().ok_or_else(bad)?;
            let bytes = snap::raw::decompress_len(chunk).map_err(|_| bad())?;
            if bytes > chunk.len().saturating_mul(SNAPPY_GROWTH_MAX) {
                return Err(bad());
            }
            self.chunk.resize(bytes, 0);
            self.at = 0;
            snap::raw::Decoder::new().decompress(chunk, &mut self.chunk).map_err(|_| bad())?;
        }
        let bytes = into.len().min(self.chunk.len() - self.at);
        into[..bytes].copy_from_slice(&self.chunk[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 7 * 31 % 251) as u8).collect()
    }

    #[test]
    fn every_codec_comes_back_at_every_size() {
        for codec in Codec::ALL {
            for bytes in [0, 1, 100, XERIAL_CHUNK_BYTES, XERIAL_CHUNK_BYTES + 1, 300_000] {
                let (text, mut packed, mut scratch) = (text(bytes), Vec::new(), vec![1, 2, 3]);
                compress(codec, None, &text, &mut packed);
                decompress(codec, &packed, &mut scratch, bytes).unwrap();
                assert!(scratch == text, "{codec:?} {bytes}");
                if bytes > 0 {
                    let error = decompress(codec, &packed, &mut scratch, bytes - 1).unwrap_err();
                    assert_eq!(error, BatchError::Expands { max: bytes as u32 - 1 }, "{codec:?}");
                }
            }
        }
    }

    #[test]
    fn levels_change_the_size_and_wild_ones_are_clamped() {
        let text = text(100_000);
        for (codec, level) in [(Codec::Gzip, 9), (Codec::Zstd, 19)] {
            let size = |level| {
                let mut out = Vec::new();
                compress(codec, level, &text, &mut out);
                out.len()
            };
            assert!(size(Some(level)) <= size(Some(1)));
            assert_eq!(size(Some(i32::MAX)), size(Some(if codec == Codec::Gzip { 9 } else { 22 })));
            size(Some(i32::MIN));
        }
    }

    #[test]
    fn unframed_snappy_is_read_too() {
        let text = text(100_000);
        let packed = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        let mut scratch = Vec::new();
        decompress(Codec::Snappy, &packed, &mut scratch, text.len()).unwrap();
        assert!(scratch == text);
    }

    /// As snappy-java has it. Its writer's version decides.
    #[test]
    fn a_snappy_stream_says_who_wrote_it() {
        let (mut packed, mut scratch) = (Vec::new(), Vec::new());
        compress(Codec::Snappy, None, b"text", &mut packed);
        packed[12..16].copy_from_slice(&7i32.to_be_bytes());
        decompress(Codec::Snappy, &packed, &mut scratch, 100).unwrap();
        assert_eq!(scratch, b"text");
        for old in [0, -1, i32::MIN] {
            packed[8..12].copy_from_slice(&old.to_be_bytes());
            assert!(decompress(Codec::Snappy, &packed, &mut scratch, 100).is_err(), "{old}");
        }
    }

    #[test]
    fn a_claim_takes_no_memory() {
        // A raw chunk of 6 bytes that says it holds 4 GiB - 1.
        let chunk = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        let mut scratch = Vec::new();
        assert!(decompress(Codec::Snappy, &chunk, &mut scratch, usize::MAX).is_err());
        assert!(scratch.capacity() < 64 << 10);
    }

    #[test]
    fn truncated_and_flipped_input_is_an_error_or_other_bytes_never_a_panic() {
        let text = text(5_000);
        for codec in Codec::ALL {
            let (mut packed, mut scratch) = (Vec::new(), Vec::new());
            compress(codec, None, &text, &mut packed);
            for cut in 0..packed.len() {
                if decompress(codec, &packed[..cut], &mut scratch, 1 << 20).is_ok() {
                    assert!(scratch != text, "{codec:?} {cut}");
                }
            }
            for bit in 0..packed.len().min(600) * 8 {
                packed[bit / 8] ^= 1 << (bit % 8);
                let _ = decompress(codec, &packed, &mut scratch, 1 << 20);
                packed[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
