//! Gives free memory back to the operating system.
//!
//! This is the only crate with unsafe code, because Rust has no safe way to call `malloc_trim`. It holds
//! this call and nothing else.

/// Has glibc give every free page of its heaps back to the operating system. Says whether there was any.
///
/// glibc locks one heap after the other meanwhile, and whoever wants memory from that heap waits: some
/// milliseconds after ten thousand connections. Call it when there is little to do.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe way to call a function of glibc")]
#[must_use]
pub fn give_back() -> bool {
    // SAFETY: `malloc_trim` takes a number and no pointer, may be called by any thread at any time
    // (man 3 malloc_trim: MT-Safe), and gives back only pages on which nothing lives. If the program has
    // another allocator, the heaps of glibc are as good as empty, and that is all.
    let released = unsafe { libc::malloc_trim(0) };
    released == 1
}

/// Other systems' allocators are left to themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[must_use]
pub fn give_back() -> bool {
    false
}
