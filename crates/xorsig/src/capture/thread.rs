//! Threads that leave the process's signals alone, and that can be waited for until they are gone.

use std::io;
use std::mem::MaybeUninit;

/// A thread of this process, as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(libc::c_long);

/// Starts a detached thread in which every signal is blocked, so that signals interrupt system
/// calls of the process's own threads as they would without it.
///
/// # Errors
/// The system refuses another thread.
pub fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A thread inherits the mask; blocking in the thread itself would leave a gap at its begin.
    let mask = block_signals();
    let started = std::thread::Builder::new()
        .name("xorsig-writer".into())
        .spawn(body);
    if let Some(mask) = mask {
        // SAFETY: the mask was filled by `pthread_sigmask`; only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut()) };
    }
    started.map(drop)
}

/// Blocks all signals of this thread and returns the mask that it had.
fn block_signals() -> Option<MaybeUninit<libc::sigset_t>> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set before it is read, and `before` has room for one.
    let status = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
    };
    (status == 0).then_some(before)
}

#[cfg(target_os = "linux")]
impl ThreadId {
    /// The calling thread.
    pub fn current() -> Self {
        // SAFETY: the call has no arguments and always succeeds.
        Self(unsafe { libc::syscall(libc::SYS_gettid) })
    }

    /// Waits until the system does not list the thread any more, which is a little after it has
    /// run its last instruction. Gives up on a thread that does not end.
    pub fn wait_until_gone(self) {
        for _ in 0..10_000 {
            // SAFETY: signal 0 is never delivered, it only asks whether the thread exists.
            let status = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, 0) };
            if status != 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl ThreadId {
    /// The calling thread.
    pub fn current() -> Self {
        Self(0)
    }

    /// Only Linux tells when a thread is gone.
    pub fn wait_until_gone(self) {}
}
