//! Where a pool's blocks come from: arenas, each cut into blocks of one size, and used again for another size when all came back.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::block::{ALIGN, BLOCK_BYTES_MIN, Memory};

/// A huge page, for those that ask for one: one page fault instead of 512.
pub(crate) const ARENA_BYTES_MAX: usize = 2 << 20;
const ARENA_BYTES_MIN: usize = 16 << 10;
/// Sizes of blocks: 512 bytes, 1 KiB, ... 1 MiB.
const CLASSES: usize = 12;

/// One stretch of memory, all of it initialised (zeroed at first), aligned to a block's alignment.
pub(crate) struct Arena {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an `Arena` owns its memory; nothing about it belongs to a thread.
unsafe impl Send for Arena {}
// SAFETY: a shared `Arena` gives nothing away.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(bytes: usize, huge: bool) -> Arena {
        let pointer = if Arena::mapped(bytes) { map(bytes, huge) } else { allocate(bytes) };
        Arena { pointer, bytes }
    }

    /// Whether arenas of this size are mapped by themselves rather than allocated. Miri has no `madvise`.
    fn mapped(bytes: usize) -> bool {
        bytes == ARENA_BYTES_MAX && !cfg!(miri)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if Arena::mapped(self.bytes) {
            // Who drops an arena has all its blocks back.
            unmap_pages(self.pointer, self.bytes);
        } else {
            // SAFETY: `allocate` made it with this layout; as above.
            unsafe { std::alloc::dealloc(self.pointer.as_ptr(), layout(self.bytes)) }
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("an arena is small")
}

fn allocate(bytes: usize) -> NonNull<u8> {
    // SAFETY: the size is not zero: it is at least `ARENA_BYTES_MIN`.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
    NonNull::new(pointer).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(bytes)))
}

/// Pages that read as zeroes and come at first touch.
pub(crate) fn map_pages(bytes: usize) -> NonNull<u8> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping, wherever the kernel likes, touches nothing of ours.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    NonNull::new(mapped.cast())
        .filter(|_| mapped != libc::MAP_FAILED)
        .unwrap_or_else(|| std::alloc::handle_alloc_error(layout(bytes)))
}

/// Gives back what `map_pages` or `map` mapped; nobody may know of it any more.
pub(crate) fn unmap_pages(pointer: NonNull<u8>, bytes: usize) {
    // SAFETY: the callers own the mapping, and drop it here.
    unsafe { libc::munmap(pointer.as_ptr().cast(), bytes) };
}

/// The same, aligned to their own size so that a huge page fits.
fn map(bytes: usize, huge: bool) -> NonNull<u8> {
    let mapped = map_pages(2 * bytes).as_ptr();
    let before = mapped.align_offset(bytes);
    assert!(before <= bytes, "a byte pointer can be aligned");
    // SAFETY: `before + bytes` lies inside the `2 * bytes` that were mapped, of which nobody knows yet; what is cut off at both ends
    // is whole pages.
    unsafe {
        let pointer = mapped.add(before);
        if before > 0 {
            libc::munmap(mapped.cast(), before);
        }
        if before < bytes {
            libc::munmap(pointer.add(bytes).cast(), bytes - before);
        }
        if huge {
            // Only a wish: without huge pages it is slower.
            libc::madvise(pointer.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        NonNull::new_unchecked(pointer)
    }
}

/// An arena in use.
struct Cut {
    arena: Arena,
    class: usize,
    /// Blocks that came back, by number.
    free: Vec<u32>,
    /// From here on no block was handed out yet.
    fresh: u32,
    out: u32,
}

impl Cut {
    fn blocks(&self) -> u32 {
        (self.arena.bytes / class_bytes(self.class)) as u32
    }
    fn exhausted(&self) -> bool {
        self.free.is_empty() && self.fresh == self.blocks()
    }
}

/// All arenas of a pool. Numbers of arenas are places in `cuts`.
pub(crate) struct Arenas {
    arena_bytes: usize,
    cuts: Vec<Option<Cut>>,
    vacant: Vec<u32>,
    /// Arenas with free blocks, by class.
    partial: [Vec<u32>; CLASSES],
    /// Arenas without a block out, at most `spare_max`.
    spare: Vec<Arena>,
    spare_max: usize,
    /// Made of huge pages. The first touch of one is 5 ms in which the core stands still where a host has yet to find the memory (seen on a
    /// virtual machine whose free pages its host takes back): not for what grows while the core serves.
    huge: bool,
}

impl Arenas {
    /// For a pool of `total` bytes, which keeps about `kept` bytes that nobody uses.
    pub(crate) fn new(total: u64, kept: usize) -> Arenas {
        let part = usize::try_from(total / 32).unwrap_or(usize::MAX).min(ARENA_BYTES_MAX);
        Arenas::of(part, kept, false)
    }

    /// For a pool of `total` bytes whose blocks are all of one size: no other one holds on to an arena, so it may be large.
    pub(crate) fn uniform(total: usize) -> Arenas {
        Arenas::of(total.min(ARENA_BYTES_MAX), total, true)
    }

    fn of(part: usize, kept: usize, huge: bool) -> Arenas {
        let arena_bytes = part.next_power_of_two().clamp(ARENA_BYTES_MIN, ARENA_BYTES_MAX);
        Arenas {
            arena_bytes,
            cuts: Vec::new(),
            vacant: Vec::new(),
            partial: Default::default(),
            spare: Vec::new(),
            spare_max: kept / arena_bytes,
            huge,
        }
    }

    /// A block of `size` bytes, aligned to its size or, if that is less, to the disk's block. None when blocks of this size are not
    /// cut from arenas.
    pub(crate) fn take(&mut self, size: usize) -> Option<Memory> {
        let class = class_of(size).filter(|_| size <= self.arena_bytes / 2)?;
        let number = self.partial[class].last().copied().unwrap_or_else(|| self.cut(class));
        let cut = self.cuts[number as usize].as_mut().expect("an arena with free blocks is in use");
        let block = cut.free.pop().unwrap_or_else(|| {
            cut.fresh += 1;
            cut.fresh - 1
        });
        cut.out += 1;
        assert!(block < cut.blocks());
        if cut.exhausted() {
            self.partial[class].pop();
        }
        // SAFETY: block `block` lies inside the arena.
        let pointer = unsafe { cut.arena.pointer.add(block as usize * size) };
        Some(Memory { pointer, bytes: size, arena: Some(number) })
    }

    fn cut(&mut self, class: usize) -> u32 {
        let arena = self.spare.pop().unwrap_or_else(|| Arena::new(self.arena_bytes, self.huge));
        let cut = Cut { arena, class, free: Vec::new(), fresh: 0, out: 0 };
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.cuts.push(None);
            (self.cuts.len() - 1) as u32
        });
        self.cuts[number as usize] = Some(cut);
        self.partial[class].push(number);
        number
    }

    /// A block that `take` gave from arena `number` is back.
    pub(crate) fn put(&mut self, memory: &Memory, number: u32) {
        let place = &mut self.cuts[number as usize];
        let cut = place.as_mut().expect("an arena with blocks out is in use");
        let exhausted = cut.exhausted();
        let at = memory.pointer.as_ptr() as usize - cut.arena.pointer.as_ptr() as usize;
        cut.free.push((at / memory.bytes) as u32);
        cut.out -= 1;
        let class = cut.class;
        if cut.out > 0 {
            if exhausted {
                self.partial[class].push(number);
            }
            return;
        }
        if !exhausted {
            self.partial[class].retain(|other| *other != number);
        }
        let empty = place.take();
        self.vacant.push(number);
        if self.spare.len() < self.spare_max {
            self.spare.extend(empty.map(|cut| cut.arena));
        }
    }

    /// Everything, when the pool ends: blocks may still be out.
    pub(crate) fn take_all(&mut self) -> Vec<Arena> {
        self.spare.clear();
        self.partial = Default::default();
        self.cuts.drain(..).flatten().map(|cut| cut.arena).collect()
    }
}

fn class_bytes(class: usize) -> usize {
    BLOCK_BYTES_MIN << class
}

fn class_of(size: usize) -> Option<usize> {
    let class = size.trailing_zeros().checked_sub(BLOCK_BYTES_MIN.trailing_zeros())? as usize;
    (size.is_power_of_two() && class < CLASSES).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_serves_another_size_when_its_blocks_are_back() {
        let mut arenas = Arenas::new(1 << 20, 64 << 10);
        assert_eq!(arenas.arena_bytes, 32 << 10);
        let take = |arenas: &mut Arenas, size| arenas.take(size).unwrap();
        let large: Vec<Memory> = (0..4).map(|_| take(&mut arenas, 16 << 10)).collect();
        let mut places: Vec<usize> = large.iter().map(|memory| memory.pointer.as_ptr() as usize).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), arenas.cuts.len()), (4, 2), "two blocks an arena");
        assert!(arenas.take(32 << 10).is_none() && arenas.take(3 << 10).is_none());
        large.iter().for_each(|memory| arenas.put(memory, memory.arena.unwrap()));
        assert_eq!((arenas.spare.len(), arenas.vacant.len()), (2, 2));
        let small: Vec<Memory> = (0..65).map(|_| take(&mut arenas, 512)).collect();
        assert_eq!((arenas.spare.len(), arenas.cuts.len()), (0, 2), "64 blocks an arena");
        arenas.put(&small[3], small[3].arena.unwrap());
        assert_eq!(take(&mut arenas, 512).pointer, small[3].pointer, "what came back last goes first");
        small.iter().for_each(|memory| arenas.put(memory, memory.arena.unwrap()));
        assert!(arenas.partial.iter().all(Vec::is_empty));
    }

    #[test]
    fn large_arenas_are_aligned_and_zeroed() {
        let mut arenas = Arenas::new(1 << 30, 0);
        let memory = arenas.take(1 << 20).unwrap();
        // SAFETY: the block is ours, and initialised.
        let bytes = unsafe { std::slice::from_raw_parts(memory.pointer.as_ptr(), memory.bytes) };
        assert!(bytes.iter().step_by(4096).all(|byte| *byte == 0));
        assert_eq!(memory.pointer.as_ptr() as usize % if cfg!(miri) { 4096 } else { 1 << 20 }, 0);
        arenas.put(&memory, memory.arena.unwrap());
        assert!(arenas.spare.is_empty() && arenas.take_all().is_empty(), "nothing was to be kept");
    }
}
