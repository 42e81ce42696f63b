//! What a decoder takes in memory, against what it was given.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts this thread's bytes.
struct Counting;

thread_local! {
    /// Held now, less what was held when the thread began to count.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most of it since it was last set.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn took(bytes: isize) {
    // A thread that ends frees what it had after its own counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

#[allow(unsafe_code)]
// SAFETY: it passes everything on to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        took(bytes as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        took(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How much of its input's own size a decoder may hold at once.
const TIMES: usize = 4;

/// Runs `decode` over `bytes` of input. Panics when it held more at any moment than four times that and `beside`, which each target states
/// with its reason.
pub fn within<T>(bytes: usize, beside: usize, decode: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = decode();
    let peak = (PEAK.get() - before) as usize;
    let allowed = bytes * TIMES + beside;
    assert!(peak <= allowed, "{bytes} bytes took {peak} bytes of memory, more than {allowed}");
    result
}
