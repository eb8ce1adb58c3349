//! Several packets in one system call, which a SIGKILL can't interrupt between two of them.
#![expect(unsafe_code, reason = "calls sendmmsg, which nix offers for equal packets only")]

use super::SeqPacket;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

impl SeqPacket {
    /// Sends packets in one system call, which a SIGKILL can't interrupt between two of them; returns how many went.
    ///
    /// # Errors
    /// When not even the first could be sent: `WouldBlock` when the peer's buffer is full; else the socket's.
    pub(crate) fn send_batch(&self, packets: &[(&[u8], Option<BorrowedFd<'_>>)]) -> io::Result<usize> {
        /// Room for one SCM_RIGHTS message with one descriptor, aligned as the kernel wants it.
        #[repr(C, align(8))]
        #[derive(Clone, Copy)]
        struct Control([u8; 24]);

        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        const SPACE: u32 = unsafe { libc::CMSG_SPACE(4) };
        const _: () = assert!(SPACE as usize == size_of::<Control>() && size_of::<RawFd>() == 4, "one descriptor fits");

        let mut buffers: Vec<libc::iovec> = packets
            .iter()
            .map(|(bytes, _)| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
            .collect();
        let mut controls: Vec<Control> = packets
            .iter()
            .map(|(_, descriptor)| {
                let mut control = Control([0; 24]);
                if let Some(fd) = descriptor {
                    // The header is size, level, type; the descriptor follows. CMSG_LEN is header plus payload.
                    let length = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
                    control.0[..8].copy_from_slice(&(length as u64).to_ne_bytes());
                    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
                    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
                    control.0[16..20].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
                }
                control
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = buffers
            .iter_mut()
            .zip(&mut controls)
            .zip(packets)
            .map(|((buffer, control), (_, descriptor))| {
                // SAFETY: all fields of these C structures are valid as zeros.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = buffer;
                message.msg_hdr.msg_iovlen = 1;
                if descriptor.is_some() {
                    message.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
                    message.msg_hdr.msg_controllen = size_of::<Control>();
                }
                message
            })
            .collect();
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the messages, and the buffers and control blocks that they point to, live until the call returns, and
        // the kernel writes only the messages' lengths.
        let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
