//! The other end of a connection on this machine: whose socket it is.
//!
//! The server asks the kernel for the socket that has our two addresses the other way round. Its owner is the user
//! who made it. A socket that its process has closed belongs to nobody, although the kernel shows it as root's: it
//! has no inode.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use tokio::net::TcpStream;

/// How much of the list of all sockets is read where the kernel cannot be asked for one: some 50,000 rows.
const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Finds the owner once and remembers it.
#[derive(Debug)]
pub(crate) struct OtherEnd {
    stream: Arc<TcpStream>,
    owner: OnceLock<Option<u32>>,
}

impl OtherEnd {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, owner: OnceLock::new() }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.stream.peer_addr().ok().map(|address| address.ip().to_canonical())
    }

    /// The user who made the socket; `None` where nobody on this machine has it open. An error when the process cannot
    /// ask, because it has no file left to open.
    pub(crate) fn owner(&self) -> io::Result<Option<u32>> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        let owner = find(&self.stream)?;
        Ok(*self.owner.get_or_init(|| owner))
    }
}

fn find(stream: &TcpStream) -> io::Result<Option<u32>> {
    let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return Ok(None) };
    let (here, there) = (canonical(here), canonical(there));
    let owner = match ask(there, here) {
        Ok(Some(owner)) => Some(owner),
        // A kernel that cannot be asked does not know our own end either.
        Ok(None) if matches!(ask(here, there), Ok(Some(_))) => None,
        Err(error) if super::serve::is_exhausted(&error) => return Err(error),
        Ok(None) | Err(_) => look_up(there, here)?,
    };
    // A connection that was cut frees its addresses, and somebody else may have them by now. Ours is closed then.
    Ok(owner.filter(|_| stream.peer_addr().is_ok()))
}

/// Without the form that IPv4 addresses have in IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// `SOCK_DIAG_BY_FAMILY`, the request and its answer.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const HEADER_BYTES: usize = 16;
/// Where things are in an answer: behind the header, family and state, and the addresses.
const ADDRESSES_AT: usize = HEADER_BYTES + 4;
const UID_AT: usize = ADDRESSES_AT + 48 + 12;
const INODE_AT: usize = UID_AT + 4;

/// Asks the kernel for the owner of the socket at `local` that is connected to `remote`.
fn ask(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    let request = request(local, remote);
    sendto(&kernel, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The kernel has answered before the call above returned.
    let mut answer = [0; 1024];
    let (count, _) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
    Ok(owner_in(&answer[..count], local, remote))
}

fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut body = vec![u8::try_from(family.as_raw()).unwrap_or(0), TCP, 0, 0];
    // Every state, then the addresses, any interface, no cookie.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes = v6.octets(),
        }
        body.extend(bytes);
    }
    body.extend(0_u32.to_ne_bytes());
    body.extend([0xff; 8]);
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The owner in an answer, if it is of the socket that was asked for: without one the kernel answers with the
/// listener.
fn owner_in(answer: &[u8], local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let bytes = |at: usize, count: usize| answer.get(at..at + count);
    if bytes(4, 2)? != BY_FAMILY.to_ne_bytes() {
        return None;
    }
    let is_v6 = i32::from(*answer.get(HEADER_BYTES)?) == i32::from(AddressFamily::INET6.as_raw());
    let port = |at: usize| Some(u16::from_be_bytes(bytes(at, 2)?.try_into().ok()?));
    let address = |at: usize| {
        let all: [u8; 16] = bytes(at, 16)?.try_into().ok()?;
        let v4: [u8; 4] = all[..4].try_into().ok()?;
        Some(if is_v6 { IpAddr::from(all).to_canonical() } else { IpAddr::from(v4) })
    };
    let found_local = SocketAddr::new(address(ADDRESSES_AT + 4)?, port(ADDRESSES_AT)?);
    let found_remote = SocketAddr::new(address(ADDRESSES_AT + 20)?, port(ADDRESSES_AT + 2)?);
    let number = |at: usize| Some(u32::from_ne_bytes(bytes(at, 4)?.try_into().ok()?));
    let is_it = (found_local, found_remote) == (local, remote) && number(INODE_AT)? != 0;
    if is_it { number(UID_AT) } else { None }
}

/// Looks for the socket in the list of all.
fn look_up(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let lists: &[(&str, bool)] = match local {
        SocketAddr::V4(_) => &[("/proc/self/net/tcp", false), ("/proc/self/net/tcp6", true)],
        SocketAddr::V6(_) => &[("/proc/self/net/tcp6", true)],
    };
    for (path, is_v6) in lists {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if super::serve::is_exhausted(&error) => return Err(error),
            Err(_) => continue,
        };
        let wanted = (shown(local, *is_v6), shown(remote, *is_v6));
        let mut rows = BufReader::new(file.take(LIST_BYTES_MAX));
        let mut row = String::new();
        while {
            row.clear();
            rows.read_line(&mut row)?
        } > 0
        {
            if let Some(owner) = owner_of_row(&row, &wanted) {
                return Ok(Some(owner));
            }
        }
    }
    Ok(None)
}

/// An address as the list shows it: words of the machine's own order.
fn shown(address: SocketAddr, is_v6: bool) -> String {
    let octets = match address.ip() {
        IpAddr::V4(v4) if !is_v6 => v4.octets().to_vec(),
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets().to_vec(),
        IpAddr::V6(v6) => Ipv6Addr::octets(&v6).to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let mut text = String::new();
    for word in words {
        // Writing to a text cannot fail.
        let _ = write!(text, "{word:08X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

/// `sl local_address rem_address st queues timer retransmits uid timeout inode …`
fn owner_of_row(row: &str, (local, remote): &(String, String)) -> Option<u32> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    if fields.next()? != local || fields.next()? != remote {
        return None;
    }
    let uid = fields.nth(4)?.parse().ok()?;
    (fields.nth(1)? != "0").then_some(uid)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::process::geteuid;
    use tokio::io::AsyncWriteExt;

    use super::*;

    type Asked = fn(SocketAddr, SocketAddr) -> io::Result<Option<u32>>;
    const WAYS: [(&str, Asked); 2] = [("asked", ask), ("looked up", look_up)];

    #[test]
    fn the_owner_of_a_socket_is_found_as_long_as_it_is_open() {
        let me = geteuid().as_raw();
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("127.0.0.1:0", "::ffff:127.0.0.1")]
        {
            let listener = TcpListener::bind(listen).unwrap();
            let here = listener.local_addr().unwrap();
            let target = SocketAddr::new(connect.parse().unwrap(), here.port());
            let client = std::net::TcpStream::connect(target).unwrap();
            let (server, there) = listener.accept().unwrap();
            let there = canonical(there);
            for (way, find) in WAYS {
                assert_eq!(find(there, here).unwrap(), Some(me), "{way} {connect}");
                let other = SocketAddr::new(here.ip(), 1);
                assert_eq!(find(there, other).unwrap(), None, "{way} {connect}: connected elsewhere");
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            for (way, find) in WAYS {
                assert_eq!(find(there, here).unwrap(), Some(me), "{way} {connect}: it still listens");
            }
            drop(client);
            for (way, find) in WAYS {
                assert_eq!(find(there, here).unwrap(), None, "{way} {connect}: closed, and not root's");
            }
            drop(server);
        }
    }

    #[test]
    fn whoever_listens_at_the_other_ends_address_is_not_taken_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        for (way, find) in WAYS {
            assert_eq!(find(there, here).unwrap(), None, "{way}");
        }
    }

    #[tokio::test]
    async fn a_connection_remembers_whose_it_is() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = Arc::new(listener.accept().await.unwrap().0);
        let end = OtherEnd::new(Arc::clone(&server));
        let me = Some(geteuid().as_raw());
        assert_eq!(end.owner().unwrap(), me);
        client.shutdown().await.unwrap();
        drop(client);
        assert_eq!(end.owner().unwrap(), me, "it was found once");
        assert_eq!(OtherEnd::new(server).owner().unwrap(), None, "nobody has it now");
    }
}
