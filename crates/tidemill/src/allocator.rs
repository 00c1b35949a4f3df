//! The allocator: mimalloc, but the system's own in processes that start children or run scripts.
//!
//! Those two are small, and scripts run behind a limit of address space and a filter of system calls that know nothing of an
//! allocator which reserves a gigabyte and names its memory. Which process this is, is known before the first allocation: by
//! the first argument.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, Ordering};

use mimalloc::MiMalloc;
use rustix::fs::{Mode, OFlags};

use crate::{SCRIPT_HOST, SPAWNER};

/// Whether memory that is reserved may be used at once. Then the kernel backs it with large pages, and a server that does
/// nothing takes 11 MB more.
const ARENA_EAGER_COMMIT: i32 = 4;
const PURGE_DELAY: i32 = 15;

/// Memory that is free for this long goes back to the system. By default it is a second, in which the steps of one
/// large request add up: 100,000 tasks in 14 MiB took 302 MiB, and take 234.
const PURGE_DELAY_MILLIS: std::ffi::c_long = 10;
const UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const FAST: u8 = 2;

pub(crate) struct Allocator {
    chosen: AtomicU8,
}

impl Allocator {
    pub(crate) const fn new() -> Self {
        Self { chosen: AtomicU8::new(UNKNOWN) }
    }

    /// The first call finds out; the answer is the same for all.
    fn is_fast(&self) -> bool {
        match self.chosen.load(Ordering::Relaxed) {
            UNKNOWN => {
                let chosen = if is_confined() { PLAIN } else { FAST };
                if chosen == FAST {
                    take_little();
                }
                self.chosen.store(chosen, Ordering::Relaxed);
                chosen == FAST
            }
            chosen => chosen == FAST,
        }
    }
}

/// Before the first allocation.
#[expect(unsafe_code, reason = "sets numbers in the allocator's own table")]
fn take_little() {
    unsafe {
        libmimalloc_sys::mi_option_set_default(ARENA_EAGER_COMMIT, 0);
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLIS);
    };
}

/// Whether this process starts children or runs scripts. Nothing is allocated to find out.
fn is_confined() -> bool {
    let mut line = [0; 4_096];
    let Ok(file) = rustix::fs::open(c"/proc/self/cmdline", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return false;
    };
    let Ok(length) = rustix::io::read(&file, &mut line) else { return false };
    let first = line[..length].split(|byte| *byte == 0).nth(1);
    first == Some(SPAWNER.as_bytes()) || first == Some(SCRIPT_HOST.as_bytes())
}

#[expect(unsafe_code, reason = "hands every call on as it came, always to the same allocator")]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.is_fast() { unsafe { MiMalloc.alloc(layout) } } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.is_fast() {
            unsafe { MiMalloc.dealloc(block, layout) }
        } else {
            unsafe { System.dealloc(block, layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.is_fast() {
            unsafe { MiMalloc.alloc_zeroed(layout) }
        } else {
            unsafe { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.is_fast() {
            unsafe { MiMalloc.realloc(block, layout, size) }
        } else {
            unsafe { System.realloc(block, layout, size) }
        }
    }
}
