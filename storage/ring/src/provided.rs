//! The ring of receive buffers that the kernel picks from (IORING_REGISTER_PBUF_RING).
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

const PAGE: usize = 4096;

/// Few buffers that stay in the cache: each is lent to the shard for one call and goes straight back.
pub(crate) struct Provided {
    entries: Memory,
    buffers: Memory,
    count: u16,
    bytes: usize,
    tail: u16,
}

impl Provided {
    pub(crate) const GROUP: u16 = 0;

    /// `count`: a power of two.
    pub(crate) fn register(ring: &IoUring, count: u16, bytes: usize) -> io::Result<Provided> {
        assert!(count.is_power_of_two() && bytes.is_multiple_of(PAGE));
        let entries = Memory::new((usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(PAGE));
        let buffers = Memory::new(usize::from(count) * bytes);
        let mut provided = Provided { entries, buffers, count, bytes, tail: 0 };
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
        for buffer in 0..count {
            provided.add(buffer);
        }
        provided.publish();
        Ok(provided)
    }

    /// The first `len` bytes of a buffer that a completion named.
    pub(crate) fn get(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.count && len <= self.bytes);
        // SAFETY: inside `buffers`, initialised (zeroed at first); the kernel wrote it before the completion and will not
        // again before `recycle`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.buffers.pointer.add(usize::from(buffer) * self.bytes), len) }
    }

    /// Gives the buffer back to the kernel.
    pub(crate) fn recycle(&mut self, buffer: u16) {
        self.add(buffer);
        self.publish();
    }

    fn add(&mut self, buffer: u16) {
        assert!(buffer < self.count);
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: `index < count` entries lie in `entries`; the kernel reads an entry only once the tail passed it.
        unsafe {
            let entry = &mut *self.entries.pointer.cast::<BufRingEntry>().add(index);
            entry.set_addr(self.buffers.pointer.add(usize::from(buffer) * self.bytes) as u64);
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
