//! The ceiling probe: the least that any broker must do for a durable publish. It receives frames, checks a CRC, gathers them into
//! large O_DIRECT writes to a prewritten file, flushes in groups (one under way, overlapped with receiving), and acknowledges. No
//! log, no offsets, no partitions, no second core: whatever a broker does is more.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_buffer::Pool;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::answer::Answer;
use crate::receiver::{GATHER_BYTES, Receiver};
use crate::sink::{self, Sink};

/// Longest wait for the disk before the sockets are looked at again.
const DISK_WAIT: Duration = Duration::from_micros(50);
const CONNECTIONS_MAX: usize = 64;

pub struct ProbeConfig {
    pub listen: String,
    pub directory: PathBuf,
    pub file_bytes: u64,
    /// Whether an acknowledgement waits for a flush.
    pub flush: bool,
}

/// The requests of one write: by connection, their correlation ids.
type Requests = Vec<(usize, Vec<i32>)>;

pub struct Probe {
    listener: TcpListener,
    /// A connection that ended leaves its place empty: writes in flight know it by its number.
    receivers: Vec<Option<Receiver>>,
    sink: Sink<Requests>,
    pool: Pool,
    answer: Answer,
    ready: Vec<Requests>,
}

impl Probe {
    pub fn new(config: &ProbeConfig) -> io::Result<Probe> {
        std::fs::create_dir_all(&config.directory)?;
        let mut pool = sink::pool();
        let sink = Sink::open(&config.directory, config.file_bytes, config.flush, &mut pool)?;
        let listener = TcpListener::bind(&config.listen)?;
        listener.set_nonblocking(true)?;
        Ok(Probe { listener, receivers: Vec::new(), sink, pool, answer: Answer::new(), ready: Vec::new() })
    }

    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let mut progress = self.receive();
            progress |= self.write();
            progress |= self.sink.turn(&mut self.ready)?;
            self.acknowledge();
            if progress {
                continue;
            }
            match self.sink.busy() {
                true => self.sink.wait(DISK_WAIT),
                false => self.sleep()?,
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut progress = false;
        for slot in &mut self.receivers {
            let Some(receiver) = slot else { continue };
            match receiver.receive() {
                Ok(came) => progress |= came,
                Err(error) => {
                    eprintln!("probe: connection closed: {error}");
                    *slot = None;
                    continue;
                }
            }
            if receiver.ended && !receiver.ripe() {
                *slot = None;
            }
        }
        progress
    }

    /// Writes what is ripe, several connections' in one write up to the gathering size.
    fn write(&mut self) -> bool {
        let mut progress = false;
        let mut next = 0;
        while !self.sink.full() && next < self.receivers.len() {
            let (mut data, mut requests, mut bytes) = (Vec::new(), Requests::new(), 0);
            while next < self.receivers.len() && bytes < GATHER_BYTES {
                if let Some(receiver) = &mut self.receivers[next]
                    && receiver.ripe()
                {
                    let (part, correlations) = receiver.take(&mut self.pool);
                    bytes += part.len();
                    data.push(part);
                    requests.push((next, correlations));
                }
                next += 1;
            }
            if bytes > 0 {
                self.sink.write(data, requests);
                progress = true;
            }
        }
        progress
    }

    fn acknowledge(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        for requests in self.ready.drain(..) {
            for (number, correlations) in requests {
                if let Some(receiver) = &mut self.receivers[number] {
                    receiver.answer(&correlations, &self.answer);
                }
            }
        }
        self.send();
    }

    fn send(&mut self) {
        for slot in &mut self.receivers {
            if let Some(receiver) = slot
                && receiver.blocked()
                && let Err(error) = receiver.send()
            {
                eprintln!("probe: connection closed: {error}");
                *slot = None;
            }
        }
    }

    /// With nothing under way: until a frame or a connection comes.
    fn sleep(&mut self) -> io::Result<()> {
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        for receiver in self.receivers.iter().flatten() {
            let wanted = if receiver.blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            descriptors.push(PollFd::from_borrowed_fd(receiver.descriptor(), wanted));
        }
        match poll(&mut descriptors, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !descriptors[0].revents().is_empty() {
            self.accept()?;
        }
        self.send();
        Ok(())
    }

    /// Only when nothing is under way: the generator connects before it sends.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let free = self.receivers.iter().position(Option::is_none);
            if free.is_none() && self.receivers.len() == CONNECTIONS_MAX {
                eprintln!("probe: no more than {CONNECTIONS_MAX} connections");
                continue;
            }
            let receiver = Some(Receiver::new(stream, &mut self.pool)?);
            match free {
                Some(number) => self.receivers[number] = receiver,
                None => self.receivers.push(receiver),
            }
        }
    }
}
