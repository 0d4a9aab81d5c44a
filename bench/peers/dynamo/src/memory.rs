//! jemalloc as the allocator, and the memory of the process.
// SPDX-License-Identifier: Apache-2.0
use tikv_jemalloc_ctl::{epoch, stats};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc keeps freed pages, so that the last round takes no page faults.
#[used]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 18] = b"dirty_decay_ms:-1\0";

pub struct Memory {
    /// Bytes that the program has allocated and not freed.
    pub live: usize,
    /// Bytes of the resident pages, after the free pages went back to the system.
    pub resident: usize,
}

pub fn read() -> Memory {
    give_back();
    epoch::advance().expect("jemalloc has statistics");
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("a line VmRSS");
    let kilobytes: usize = resident
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    Memory {
        live: stats::allocated::read().expect("jemalloc has statistics"),
        resident: 1024 * kilobytes,
    }
}

fn give_back() {
    const ALL_ARENAS: &std::ffi::CStr = c"arena.4096.purge";
    let none = std::ptr::null_mut();
    // SAFETY: the name ends with 0, and this control takes no value.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(ALL_ARENAS.as_ptr(), none, std::ptr::null_mut(), none, 0)
    };
    assert_eq!(failed, 0, "jemalloc gives back its free pages");
}
