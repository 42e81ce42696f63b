//! Blocks, their one writer and their many readers.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use ringmain_types::Account;
use smallvec::SmallVec;

use crate::arena::{self, ARENA_BYTES_MAX, Arena};

/// Of blocks of at least this size, for direct I/O on any device in use. Smaller ones are aligned to their size: no block of such a
/// device fits them.
pub(crate) const ALIGN: usize = 4096;
/// The smallest block.
pub(crate) const BLOCK_BYTES_MIN: usize = 512;

/// A block's `bytes` bytes, always initialised (zeroed when first allocated).
pub(crate) struct Memory {
    pub(crate) pointer: NonNull<u8>,
    pub(crate) bytes: usize,
    /// Whose part it is; `None`: allocated by itself.
    pub(crate) arena: Option<u32>,
}

// SAFETY: `Memory` owns its allocation; nothing about it belongs to a thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn allocate(bytes: usize) -> Memory {
        let layout = Memory::layout(bytes);
        if Memory::mapped(bytes) {
            return Memory { pointer: arena::map_pages(bytes), bytes, arena: None };
        }
        // SAFETY: the layout's size is not zero (`layout` asserts it).
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { std::alloc::handle_alloc_error(layout) };
        Memory { pointer, bytes, arena: None }
    }

    /// The largest are mapped by themselves: their pages come as they are filled, where an allocator would write zeroes into all of them
    /// first, which is a millisecond for a frame of some MiB.
    fn mapped(bytes: usize) -> bool {
        bytes > ARENA_BYTES_MAX && !cfg!(miri)
    }

    fn layout(bytes: usize) -> Layout {
        // Places in a block are `u32`.
        assert!(bytes >= BLOCK_BYTES_MIN && u32::try_from(bytes).is_ok());
        Layout::from_size_align(bytes, ALIGN).expect("a block's size is far below isize::MAX")
    }

    /// What was allocated by itself.
    pub(crate) fn free(self) {
        assert!(self.arena.is_none());
        if Memory::mapped(self.bytes) {
            return arena::unmap_pages(self.pointer, self.bytes);
        }
        // SAFETY: `allocate` made it with this very layout, and `self` is its only owner.
        unsafe { std::alloc::dealloc(self.pointer.as_ptr(), Memory::layout(self.bytes)) }
    }
}

/// What a returned block carries in its own first bytes while it waits to be collected. Without padding: padding would leave bytes
/// of the block uninitialised, and its next writer takes them for bytes.
#[repr(C)]
struct Returned {
    next: *mut Returned,
    bytes: usize,
    account: usize,
    /// `usize::MAX`: none.
    arena: usize,
}
const _: () = assert!(size_of::<Returned>() == 4 * size_of::<usize>() && size_of::<Returned>() <= BLOCK_BYTES_MIN);
const _: () = assert!(align_of::<Returned>() <= BLOCK_BYTES_MIN);

/// Where blocks go when their last reader drops them, on whatever core: a stack with many pushers and one taker of everything.
pub(crate) struct Returns {
    head: AtomicPtr<Returned>,
    /// The pool's arenas once it is gone: they live until the last block is back.
    arenas: OnceLock<Vec<Arena>>,
}

impl Returns {
    pub(crate) fn new() -> Returns {
        Returns { head: AtomicPtr::new(std::ptr::null_mut()), arenas: OnceLock::new() }
    }

    /// When the pool ends, once.
    pub(crate) fn keep(&self, arenas: Vec<Arena>) {
        assert!(self.arenas.set(arenas).is_ok());
    }

    fn push(&self, memory: Memory, account: u8) {
        let node = memory.pointer.as_ptr().cast::<Returned>();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let arena = memory.arena.map_or(usize::MAX, |number| number as usize);
            // SAFETY: the block has no reader and no writer left (`Block::drop` has the last handle, and `Arc` orders it behind
            // all that the others did), is aligned to 512 at the least and at least 512 bytes long, so a `Returned` fits; until the
            // exchange below succeeds nobody else can see the node.
            unsafe { node.write(Returned { next: head, bytes: memory.bytes, account: usize::from(account), arena }) };
            match self.head.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Everything that came back since the last call, with the account that it was charged to.
    pub(crate) fn take(&self, mut each: impl FnMut(Memory, u8)) {
        let mut node = self.head.swap(std::ptr::null_mut(), Ordering::Acquire);
        while let Some(pointer) = NonNull::new(node) {
            // SAFETY: the swap made us the only owner of the chain; `push` wrote each node in full before publishing it.
            let returned = unsafe { pointer.as_ptr().read() };
            let arena = u32::try_from(returned.arena).ok();
            each(Memory { pointer: pointer.cast(), bytes: returned.bytes, arena }, returned.account as u8);
            node = returned.next;
        }
    }
}

impl Drop for Returns {
    /// Nobody holds a block or the pool. The arenas go behind this.
    fn drop(&mut self) {
        self.take(|memory, _| {
            if memory.arena.is_none() {
                memory.free();
            }
        });
    }
}

pub(crate) struct Block {
    memory: NonNull<u8>,
    bytes: usize,
    arena: Option<u32>,
    account: AtomicU8,
    /// `None`: the memory is a `Vec`'s, of this capacity.
    home: Option<Arc<Returns>>,
}

// SAFETY: readers only see frozen bytes, which nobody writes again; the one `BufMut` writes only behind them. The account is
// atomic and the return list is made for many threads.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(memory: Memory, account: Account, home: Arc<Returns>) -> Block {
        let Memory { pointer, bytes, arena } = memory;
        Block { memory: pointer, bytes, arena, account: AtomicU8::new(account as u8), home: Some(home) }
    }
    fn of_vec(bytes: Vec<u8>) -> Block {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let pointer = NonNull::new(bytes.as_mut_ptr()).expect("a Vec's pointer is never null");
        let account = AtomicU8::new(Account::Control as u8);
        Block { memory: pointer, bytes: bytes.capacity(), arena: None, account, home: None }
    }
    /// Sets the account and returns the one before.
    pub(crate) fn recharge(&self, account: Account) -> u8 {
        self.account.swap(account as u8, Ordering::Relaxed)
    }
    pub(crate) fn belongs_to(&self, home: &Arc<Returns>) -> bool {
        self.home.as_ref().is_some_and(|own| Arc::ptr_eq(own, home))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.home {
            Some(home) => {
                let memory = Memory { pointer: self.memory, bytes: self.bytes, arena: self.arena };
                home.push(memory, *self.account.get_mut());
            }
            // SAFETY: `of_vec` took pointer and capacity from a `Vec<u8>` that it forgot; this block is their only owner.
            None => drop(unsafe { Vec::from_raw_parts(self.memory.as_ptr(), 0, self.bytes) }),
        }
    }
}

/// A frozen part of a block: immutable for ever, cheap to clone and slice, `Send`. An empty one holds no block.
#[derive(Clone, Default)]
pub struct Buf {
    block: Option<Arc<Block>>,
    start: u32,
    end: u32,
}

/// Bytes of a reply, one part behind the other: most have one, which then takes no list.
pub type Bufs = SmallVec<[Buf; 1]>;

impl Buf {
    /// Bytes outside any pool: for tests and the few small things that live as long as the process.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        if bytes.is_empty() {
            return Buf::default();
        }
        let memory = Memory::allocate(bytes.len().next_multiple_of(BLOCK_BYTES_MIN));
        let block = Block::new(memory, Account::Control, Arc::new(Returns::new()));
        let mut writer = BufMut::new(block);
        writer.extend(bytes);
        writer.freeze()
    }

    /// What a `Vec` holds, uncopied and outside any pool: for bytes that were put together on the heap, such as a reply's head. They
    /// are not aligned, so never meant for a disk. Panics past 4 GiB.
    pub fn from_vec(bytes: Vec<u8>) -> Buf {
        if bytes.is_empty() {
            return Buf::default();
        }
        let end = u32::try_from(bytes.len()).expect("a buffer is smaller than 4 GiB");
        Buf { block: Some(Arc::new(Block::of_vec(bytes))), start: 0, end }
    }

    /// The bytes `range` of this buffer. Panics when it reaches past the end.
    pub fn slice(&self, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= self.len());
        if range.is_empty() {
            return Buf::default();
        }
        Buf { block: self.block.clone(), start: self.start + range.start as u32, end: self.start + range.end as u32 }
    }

    /// The `Buf` of a subslice of this buffer's own bytes: what a decoder that does not copy hands out. Panics when `part` lies
    /// elsewhere.
    pub fn slice_of(&self, part: &[u8]) -> Buf {
        if part.is_empty() {
            return Buf::default();
        }
        let from = (part.as_ptr() as usize).checked_sub(self.as_ptr() as usize).expect("a part of this buffer");
        self.slice(from..from + part.len())
    }

    /// What holding this keeps alive. Accounts charge this, not `len()`.
    pub fn block_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes)
    }

    /// Whether both are parts of one block.
    pub fn same_block(&self, other: &Buf) -> bool {
        matches!((&self.block, &other.block), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_deref()
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let Some(block) = &self.block else { return &[] };
        // SAFETY: `start..end` lies inside the block and was frozen before this `Buf` was made: nobody writes it again while
        // the `Arc` lives.
        unsafe {
            std::slice::from_raw_parts(block.memory.as_ptr().add(self.start as usize), (self.end - self.start) as usize)
        }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// So that parts can be put together: `parts.concat()`.
impl std::borrow::Borrow<[u8]> for Buf {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Buf) -> bool {
        **self == **other
    }
}
impl Eq for Buf {}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

/// The one writer of a block. What was frozen off its front can be read, written to disk and sent while it writes on behind.
///
/// Layout: `[frozen | written | spare]`; `Deref` gives the written, not yet frozen, part.
pub struct BufMut {
    block: Arc<Block>,
    /// End of what was frozen.
    frozen: u32,
    /// End of what was written.
    end: u32,
}

impl BufMut {
    pub(crate) fn new(block: Block) -> BufMut {
        BufMut { block: Arc::new(block), frozen: 0, end: 0 }
    }

    /// Bytes that still fit.
    pub fn spare(&self) -> usize {
        self.block.bytes - self.end as usize
    }

    /// The whole block's size.
    pub fn block_bytes(&self) -> usize {
        self.block.bytes
    }

    /// Appends. Panics when `bytes` does not fit.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.spare_mut()[..bytes.len()].copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Appends `count` zero bytes. Panics when they do not fit.
    pub fn extend_zeroes(&mut self, count: usize) {
        self.spare_mut()[..count].fill(0);
        self.advance(count);
    }

    /// The bytes behind the written ones. They are initialised, but may hold what an earlier use left.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let (at, spare) = (self.end as usize, self.spare());
        // SAFETY: the range lies inside the block, is initialised, and lies behind everything frozen: no `Buf` reaches it, and
        // `&mut self` is its only writer.
        unsafe { std::slice::from_raw_parts_mut(self.block.memory.as_ptr().add(at), spare) }
    }

    /// Counts `bytes` of the spare ones as written. Panics when there are fewer.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.spare());
        self.end += bytes as u32;
    }

    /// The written, not yet frozen, bytes, to be changed in place (a batch's header, a length that was left open).
    pub fn written_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `spare_mut`: inside the block, initialised, behind everything frozen.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.block.memory.as_ptr().add(self.frozen as usize),
                (self.end - self.frozen) as usize,
            )
        }
    }

    /// Freezes the first `len` written bytes and goes on writing behind them. Only frozen bytes ever reach a disk, so a buffer
    /// never changes under DMA and the simulator may copy at submission or at completion alike.
    pub fn freeze_to(&mut self, len: usize) -> Buf {
        assert!(len <= (self.end - self.frozen) as usize);
        let start = self.frozen;
        self.frozen += len as u32;
        if len == 0 {
            return Buf::default();
        }
        Buf { block: Some(self.block.clone()), start, end: self.frozen }
    }

    /// A part of what was frozen, counted from the block's start: what several `freeze_to` gave piece by piece, as one.
    /// Panics when it reaches past what was frozen.
    pub fn frozen(&self, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= self.frozen as usize);
        if range.is_empty() {
            return Buf::default();
        }
        Buf { block: Some(self.block.clone()), start: range.start as u32, end: range.end as u32 }
    }

    /// Freezes all that was written.
    pub fn freeze(mut self) -> Buf {
        let len = self.len();
        self.freeze_to(len)
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the block and initialised; only `&mut self` could write it.
        unsafe {
            std::slice::from_raw_parts(
                self.block.memory.as_ptr().add(self.frozen as usize),
                (self.end - self.frozen) as usize,
            )
        }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} of {} bytes)", self.end, self.block.bytes)
    }
}
