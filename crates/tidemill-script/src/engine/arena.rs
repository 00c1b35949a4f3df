//! The memory of the engine: one region that can be set back to an earlier moment.
//!
//! A fresh engine takes longer to build than most scripts take to run. So it is built once, its memory is copied, and
//! after each execution the copy is written back: nothing that a script did to any object outlives it, and the next one
//! starts with exactly the engine that was built. All that the engine allocates lives here and nowhere else; pointers
//! stay valid because the region never moves.
//!
//! Blocks up to `SMALL_MAX` come from the region, by size class. Larger ones come from the C library, which can grow
//! them in place, and hang in a list so that setting back can free them. Both count against one limit.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "the region, its blocks and their headers are aligned to 16 bytes"
)]

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use rquickjs::allocator::Allocator;

/// The largest block, with its header, that is taken from the region.
const SMALL_MAX: usize = 32 * 1024;
/// The block sizes up to 1 KiB are multiples of this.
const FINE_STEP: usize = 64;
const FINE_MAX: usize = 1024;
/// Above, each doubling has this many block sizes.
const STEPS_PER_DOUBLING: usize = 8;
const CLASSES: usize = FINE_MAX / FINE_STEP + 5 * STEPS_PER_DOUBLING;

/// Used memory beyond this is given back to the system when the region is set back, and not wiped by hand.
const WIPE_BYTES_MAX: usize = 256 * 1024;

/// What stands before each block. Its size keeps blocks aligned to 16 bytes.
#[repr(C)]
struct Header {
    usable: usize,
    /// The size class, or `LARGE`.
    class: usize,
}

const HEADER: usize = size_of::<Header>();
const LARGE: usize = usize::MAX;

/// What stands before a large block: its neighbours in the list, then the header that all blocks have.
#[repr(C)]
struct LargeHeader {
    previous: *mut LargeHeader,
    next: *mut LargeHeader,
    header: Header,
}

const LARGE_HEADER: usize = size_of::<LargeHeader>();

/// Where the allocator stands. The links of the free lists are in the free blocks themselves.
#[derive(Clone, Copy)]
struct Marks {
    /// How much of the region was ever handed out.
    used: usize,
    free: [*mut u8; CLASSES],
}

struct Image {
    bytes: Vec<u8>,
    marks: Marks,
}

struct Region {
    start: NonNull<u8>,
    size: usize,
    marks: RefCell<Marks>,
    large: Cell<*mut LargeHeader>,
    large_bytes: Cell<usize>,
    limit: Cell<usize>,
    peak: Cell<usize>,
    refused: Cell<bool>,
    image: RefCell<Option<Image>>,
}

/// A region that an engine allocates from, and the handle to set it back.
#[derive(Clone)]
pub(crate) struct Arena(Rc<Region>);

impl Arena {
    /// Reserves a region of `size` bytes. Its pages are taken when they are first written.
    pub(crate) fn reserve(size: usize) -> std::io::Result<Self> {
        let size = size.next_multiple_of(page_size());
        let start = map(size)?;
        Ok(Self(Rc::new(Region {
            start,
            size,
            marks: RefCell::new(Marks { used: 0, free: [ptr::null_mut(); CLASSES] }),
            large: Cell::new(ptr::null_mut()),
            large_bytes: Cell::new(0),
            limit: Cell::new(size),
            peak: Cell::new(0),
            refused: Cell::new(false),
            image: RefCell::new(None),
        })))
    }

    /// From now on no more than `bytes` can be allocated, and what was counted before is forgotten.
    pub(crate) fn begin(&self, bytes: usize) {
        self.0.limit.set(bytes.min(self.0.size));
        self.0.refused.set(false);
        self.0.peak.set(self.0.footprint());
    }

    /// The most that was allocated since `begin`, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.0.peak.get()
    }

    /// Whether a block was refused since `begin`.
    pub(crate) fn has_refused(&self) -> bool {
        self.0.refused.get()
    }

    /// Copies the region. `set_back` returns to this moment.
    ///
    /// Large blocks are not copied: an engine that has some cannot be set back, and the answer is false.
    #[expect(
        unsafe_code,
        reason = "the bytes up to `used` were handed out, so they lie in the mapped region"
    )]
    pub(crate) fn keep(&self) -> bool {
        if !self.0.large.get().is_null() {
            return false;
        }
        let marks = *self.0.marks.borrow();
        let bytes = unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), marks.used) }.to_vec();
        *self.0.image.borrow_mut() = Some(Image { bytes, marks });
        true
    }

    /// Returns to the moment of `keep`.
    ///
    /// # Safety
    ///
    /// No value of the engine that was made after `keep` may be used or dropped any more, and the engine must not be
    /// running.
    #[expect(unsafe_code, reason = "writes only within the region, of which nobody holds a part, see above")]
    pub(crate) unsafe fn set_back(&self) {
        let region = &*self.0;
        while let Some(large) = NonNull::new(region.large.get()) {
            unsafe {
                region.unlink(large.as_ptr());
                libc::free(large.as_ptr().cast());
            }
        }
        let image = region.image.borrow();
        let Some(image) = image.as_ref() else { return };
        let mut marks = region.marks.borrow_mut();
        let kept = image.bytes.len();
        let wipe_to = marks.used.min(kept + WIPE_BYTES_MAX);
        unsafe {
            let start = region.start.as_ptr();
            if marks.used > wipe_to {
                let from = wipe_to.next_multiple_of(page_size());
                ptr::write_bytes(start.add(kept), 0, from.min(marks.used) - kept);
                if marks.used > from {
                    // What cannot be given back is wiped like the rest.
                    let rest = start.add(from);
                    if libc::madvise(rest.cast(), marks.used - from, libc::MADV_DONTNEED) != 0 {
                        ptr::write_bytes(rest, 0, marks.used - from);
                    }
                }
            } else {
                ptr::write_bytes(start.add(kept), 0, wipe_to - kept);
            }
            ptr::copy_nonoverlapping(image.bytes.as_ptr(), start, kept);
        }
        *marks = image.marks;
    }
}

impl Region {
    fn footprint(&self) -> usize {
        self.marks.borrow().used + self.large_bytes.get()
    }

    /// Whether `more` bytes may be taken; if so they count.
    fn admit(&self, more: usize) -> bool {
        let footprint = self.footprint().saturating_add(more);
        if footprint > self.limit.get() {
            self.refused.set(true);
            return false;
        }
        self.peak.set(self.peak.get().max(footprint));
        true
    }

    #[expect(unsafe_code, reason = "the block lies within the region and belongs to nobody yet")]
    fn take_small(&self, total: usize) -> *mut u8 {
        let (class, size) = class_of(total);
        let free = self.marks.borrow().free[class];
        if !free.is_null() {
            let block = free;
            // A free block begins with the link to the next one, after its header.
            let next = unsafe { block.add(HEADER).cast::<*mut u8>().read() };
            self.marks.borrow_mut().free[class] = next;
            return unsafe { block.add(HEADER) };
        }
        if !self.admit(size) {
            return ptr::null_mut();
        }
        let mut marks = self.marks.borrow_mut();
        if marks.used + size > self.size {
            self.refused.set(true);
            return ptr::null_mut();
        }
        unsafe {
            let block = self.start.as_ptr().add(marks.used);
            marks.used += size;
            block.cast::<Header>().write(Header { usable: size - HEADER, class });
            block.add(HEADER)
        }
    }

    #[expect(unsafe_code, reason = "the block is ours from the moment that the C library gives it")]
    fn take_large(&self, size: usize) -> *mut u8 {
        let Some(total) = size.checked_add(LARGE_HEADER) else { return ptr::null_mut() };
        if !self.admit(total) {
            return ptr::null_mut();
        }
        unsafe {
            let block = libc::malloc(total).cast::<LargeHeader>();
            if block.is_null() {
                self.refused.set(true);
                return ptr::null_mut();
            }
            self.link(block, size);
            block.add(1).cast()
        }
    }

    /// Puts a large block into the list.
    #[expect(unsafe_code, reason = "callers hand in a block of at least a header that is in no list")]
    unsafe fn link(&self, block: *mut LargeHeader, usable: usize) {
        let next = self.large.get();
        unsafe {
            block.write(LargeHeader {
                previous: ptr::null_mut(),
                next,
                header: Header { usable, class: LARGE },
            });
            if !next.is_null() {
                (*next).previous = block;
            }
        }
        self.large.set(block);
        self.large_bytes.set(self.large_bytes.get() + usable + LARGE_HEADER);
    }

    /// Takes a large block out of the list.
    #[expect(unsafe_code, reason = "callers hand in a block that is in the list")]
    unsafe fn unlink(&self, block: *mut LargeHeader) {
        unsafe {
            let LargeHeader { previous, next, header } = &*block;
            if previous.is_null() {
                self.large.set(*next);
            } else {
                (**previous).next = *next;
            }
            if !next.is_null() {
                (**next).previous = *previous;
            }
            self.large_bytes.set(self.large_bytes.get() - header.usable - LARGE_HEADER);
        }
    }
}

impl Drop for Region {
    #[expect(unsafe_code, reason = "the region was mapped with this size and nobody holds it any more")]
    fn drop(&mut self) {
        while let Some(large) = NonNull::new(self.large.get()) {
            unsafe {
                self.unlink(large.as_ptr());
                libc::free(large.as_ptr().cast());
            }
        }
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

#[expect(
    unsafe_code,
    reason = "blocks are of the size asked for or larger, aligned to 16 bytes, and in use once"
)]
unsafe impl Allocator for Arena {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        match size.checked_add(HEADER) {
            Some(total) if total <= SMALL_MAX => self.0.take_small(total),
            Some(_) => self.0.take_large(size),
            None => ptr::null_mut(),
        }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(size) = count.checked_mul(size) else { return ptr::null_mut() };
        let block = self.alloc(size);
        if !block.is_null() {
            unsafe { ptr::write_bytes(block, 0, size) };
        }
        block
    }

    unsafe fn dealloc(&mut self, block: *mut u8) {
        if block.is_null() {
            return;
        }
        unsafe {
            let header = block.sub(HEADER).cast::<Header>();
            let class = (*header).class;
            if class == LARGE {
                let large = block.cast::<LargeHeader>().sub(1);
                self.0.unlink(large);
                libc::free(large.cast());
            } else {
                let mut marks = self.0.marks.borrow_mut();
                block.cast::<*mut u8>().write(marks.free[class]);
                marks.free[class] = header.cast();
            }
        }
    }

    unsafe fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() {
            return self.alloc(size);
        }
        unsafe {
            let Header { usable, class } = block.sub(HEADER).cast::<Header>().read();
            if class == LARGE {
                return self.resize_large(block, usable, size);
            }
            if size <= usable {
                return block;
            }
            let moved = self.alloc(size);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, usable);
                self.dealloc(block);
            }
            moved
        }
    }

    unsafe fn usable_size(block: *mut u8) -> usize {
        if block.is_null() {
            return 0;
        }
        unsafe { (*block.sub(HEADER).cast::<Header>()).usable }
    }
}

impl Arena {
    /// Makes a large block larger or smaller. It stays one, whatever its size.
    #[expect(unsafe_code, reason = "the block is in the list, and is put back under its new address")]
    unsafe fn resize_large(&mut self, block: *mut u8, usable: usize, size: usize) -> *mut u8 {
        let Some(total) = size.checked_add(LARGE_HEADER) else { return ptr::null_mut() };
        if size > usable && !self.0.admit(size - usable) {
            return ptr::null_mut();
        }
        unsafe {
            let large = block.cast::<LargeHeader>().sub(1);
            self.0.unlink(large);
            let moved = libc::realloc(large.cast(), total).cast::<LargeHeader>();
            if moved.is_null() {
                self.0.refused.set(true);
                self.0.link(large, usable);
                return ptr::null_mut();
            }
            self.0.link(moved, size);
            moved.add(1).cast()
        }
    }
}

/// The size class for a block of `total` bytes with its header, and the size of its blocks.
fn class_of(total: usize) -> (usize, usize) {
    if total <= FINE_MAX {
        let steps = total.div_ceil(FINE_STEP).max(1);
        return (steps - 1, steps * FINE_STEP);
    }
    let doubling = (total - 1).ilog2() as usize;
    let step = (1 << doubling) / STEPS_PER_DOUBLING;
    let steps = (total - (1 << doubling)).div_ceil(step);
    let first = FINE_MAX / FINE_STEP + (doubling - FINE_MAX.ilog2() as usize) * STEPS_PER_DOUBLING;
    (first + steps - 1, (1 << doubling) + steps * step)
}

fn page_size() -> usize {
    rustix::param::page_size()
}

#[expect(unsafe_code, reason = "a new mapping, which is in nobody's way")]
fn map(size: usize) -> std::io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start =
        unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| std::io::Error::other("the mapping is at address zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_ordered_and_hold_what_they_are_asked_for() {
        let mut last = (0, 0);
        for total in 17..=SMALL_MAX {
            let (class, size) = class_of(total);
            assert!(size >= total, "{total}");
            assert!(size % 16 == 0, "{total}: {size}");
            assert!(size - total <= FINE_STEP.max(total / STEPS_PER_DOUBLING), "{total}: {size}");
            assert!((class, size) == last || class > last.0 && size > last.1 || last.1 == 0, "{total}");
            last = (class, size);
        }
        assert_eq!(last, (CLASSES - 1, SMALL_MAX));
    }

    #[test]
    #[expect(unsafe_code, reason = "every block is used within its size and freed once")]
    fn setting_back_restores_what_was_kept_and_wipes_what_came_later() {
        let arena = Arena::reserve(8 << 20).unwrap();
        let mut allocator = arena.clone();
        let kept = allocator.alloc(100);
        unsafe { ptr::write_bytes(kept, 7, 100) };
        assert!(arena.keep());
        for later in [200, 20_000, 600_000] {
            unsafe {
                ptr::write_bytes(kept, 9, 100);
                let mut blocks = Vec::new();
                for _ in 0..200_000 / later + 2 {
                    let block = allocator.calloc(1, later);
                    ptr::write_bytes(block, 9, later);
                    blocks.push(block);
                }
                allocator.dealloc(blocks[0]);
                let grown = allocator.realloc(blocks[1], later * 2);
                assert_eq!(*grown.add(later - 1), 9);
                arena.set_back();
                assert!(std::slice::from_raw_parts(kept, 100).iter().all(|byte| *byte == 7));
                let fresh = allocator.alloc(later);
                if later < SMALL_MAX {
                    assert!(std::slice::from_raw_parts(fresh, later).iter().all(|byte| *byte == 0));
                }
                arena.set_back();
            }
            assert_eq!(arena.0.large_bytes.get(), 0);
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "every block is used within its size and freed once")]
    fn the_limit_covers_small_and_large_blocks_and_is_remembered() {
        let arena = Arena::reserve(1 << 20).unwrap();
        let mut allocator = arena.clone();
        arena.begin(100_000);
        let large = allocator.alloc(60_000);
        assert!(!large.is_null());
        assert!(allocator.alloc(60_000).is_null());
        assert!(arena.has_refused());
        unsafe {
            assert!(allocator.realloc(large, 110_000).is_null());
            allocator.dealloc(large);
        }
        arena.begin(100_000);
        let mut blocks = 0;
        while !allocator.alloc(1000).is_null() {
            blocks += 1;
        }
        assert!((90..100).contains(&blocks), "{blocks}");
        assert!(arena.has_refused());
        assert!(arena.peak() <= 100_000);
    }
}
