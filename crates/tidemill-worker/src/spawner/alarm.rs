//! A timer that rings at a moment, at once after the machine slept beyond it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::moment::Moment;

/// A descriptor that is readable from a moment on, until the next one is set.
pub(super) struct Alarm {
    timer: OwnedFd,
    set_to: Option<Moment>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Boottime, flags)?, set_to: None })
    }

    /// Lets it ring at this moment and no other.
    pub(super) fn set(&mut self, moment: Option<Moment>) -> io::Result<()> {
        if moment == self.set_to {
            return Ok(());
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A moment before now rings at once; zero would be no moment at all.
        let value = moment.map_or(none, |moment| {
            let millis = moment.millis().saturating_add(1);
            Timespec {
                tv_sec: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(millis % 1_000).unwrap_or(0) * 1_000_000,
            }
        });
        let time = Itimerspec { it_interval: none, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)?;
        self.set_to = moment;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
