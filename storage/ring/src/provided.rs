//! The ring of receive buffers that the kernel picks from (IORING_REGISTER_PBUF_RING).
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_types::{Account, ShardId};

const PAGE: usize = 4096;
/// From so many bytes on a buffer is given away rather than lent: then what is in it need not be copied out.
pub(crate) const GIVEN_BYTES_MIN: usize = 16 << 10;
/// Buffers that the kernel is offered when that is enough: it takes them in their order, and what goes round through more memory than the core's
/// cache holds is copied from and to memory (a fifth of the broker's CPU with one connection of 16 KiB batches).
const OFFERED_MIN: u16 = 4;
/// After so many receives that found a buffer, fewer are offered.
const PLENTY: u32 = 4096;
/// Buffers given away and not back yet, beside those in the ring: past that buffers are lent.
const GIVEN_MAX: usize = 64;

/// Few buffers: each is lent to the shard for one call and goes straight back, or is given away and another takes its place.
pub(crate) struct Provided {
    entries: Memory,
    buffers: Vec<BufMut>,
    pool: Pool,
    count: u16,
    bytes: usize,
    tail: u16,
    /// Buffers that the kernel has, and as many as it is to have.
    offered: u16,
    wanted: u16,
    /// Receives since it found none.
    plenty: u32,
    /// Buffers held back.
    resting: Vec<u16>,
}

impl Provided {
    pub(crate) const GROUP: u16 = 0;

    /// `count`: a power of two.
    pub(crate) fn register(ring: &IoUring, shard: ShardId, count: u16, bytes: usize) -> io::Result<Provided> {
        assert!(count.is_power_of_two() && bytes.is_power_of_two() && bytes >= PAGE);
        let entries = Memory::new((usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(PAGE));
        let mut pool = Pool::uniform(shard, Account::Receive, bytes, usize::from(count) + GIVEN_MAX);
        let buffers =
            (0..count).map(|_| pool.take(Account::Receive, bytes).expect("the pool is made for them")).collect();
        let mut provided = Provided {
            entries,
            buffers,
            pool,
            count,
            bytes,
            tail: 0,
            offered: 0,
            wanted: OFFERED_MIN.min(count),
            plenty: 0,
            resting: (0..count).rev().collect(),
        };
        // SAFETY: the entries are page-aligned, zeroed, large enough for `count`, and live until `Ring` has drained the kernel
        // and closed its ring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                provided.entries.pointer as u64,
                count,
                Provided::GROUP,
                0,
            )?;
        }
        provided.offer();
        Ok(provided)
    }

    /// The first `len` bytes of a buffer that a completion named. The kernel wrote them before the completion and will not again
    /// before `recycle`.
    pub(crate) fn get(&mut self, buffer: u16, len: usize) -> &[u8] {
        &self.buffers[usize::from(buffer)].spare_mut()[..len]
    }

    /// As `get`, but for good: another buffer takes its place. None when there is none.
    pub(crate) fn give(&mut self, buffer: u16, len: usize) -> Option<Buf> {
        if len < GIVEN_BYTES_MIN {
            return None;
        }
        self.pool.collect();
        let fresh = self.pool.take(Account::Receive, self.bytes).ok()?;
        let mut given = std::mem::replace(&mut self.buffers[usize::from(buffer)], fresh);
        given.advance(len);
        Some(given.freeze())
    }

    /// A buffer that a completion named is free again.
    pub(crate) fn recycle(&mut self, buffer: u16) {
        self.offered -= 1;
        self.plenty += 1;
        if self.plenty >= PLENTY {
            (self.wanted, self.plenty) = ((self.wanted / 2).max(OFFERED_MIN.min(self.count)), 0);
        }
        self.resting.push(buffer);
        self.offer();
    }

    /// The kernel found none.
    pub(crate) fn starved(&mut self) {
        (self.wanted, self.plenty) = (self.wanted.saturating_mul(2).min(self.count), 0);
        self.offer();
    }

    fn offer(&mut self) {
        while self.offered < self.wanted
            && let Some(buffer) = self.resting.pop()
        {
            self.add(buffer);
            self.offered += 1;
        }
        self.publish();
    }

    fn add(&mut self, buffer: u16) {
        assert!(buffer < self.count);
        let index = usize::from(self.tail & (self.count - 1));
        let pointer = self.buffers[usize::from(buffer)].spare_mut().as_mut_ptr();
        // SAFETY: `index < count` entries lie in `entries`; the kernel reads an entry only once the tail passed it. It writes into a
        // block of ours that nobody else has, and that stays where it is until the kernel named it in a completion.
        unsafe {
            let entry = &mut *self.entries.pointer.cast::<BufRingEntry>().add(index);
            entry.set_addr(pointer as u64);
            entry.set_len(self.bytes as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, is aligned, and is shared with the kernel, which reads it atomically.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.pointer.cast()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Zeroed, page-aligned, freed on drop.
struct Memory {
    pointer: *mut u8,
    layout: std::alloc::Layout,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        assert!(bytes > 0);
        let layout = std::alloc::Layout::from_size_align(bytes, PAGE).expect("a few MiB");
        // SAFETY: the size is not zero.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        if pointer.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Memory { pointer, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; `Ring` drops it after the kernel let go.
        unsafe { std::alloc::dealloc(self.pointer, self.layout) }
    }
}
