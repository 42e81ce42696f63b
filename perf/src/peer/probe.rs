//! The ceiling probe: the least that any broker must do for a durable publish. It receives frames, checks a CRC, gathers them into
//! large O_DIRECT writes to a prewritten file, flushes in groups (one under way, overlapped with receiving), and acknowledges. No
//! log, no offsets, no partitions, no second core: whatever a broker does is more.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_buffer::{Buf, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::Answer;
use super::receiver::{GATHER_BYTES, Receiver};
use super::sink::{self, Sink};
use super::subscriber::Subscriber;

pub use super::sink::NAME as FILE_NAME;

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

/// The requests of one write: by connection, their correlation ids, and their frames for whoever consumes.
type Requests = Vec<(usize, Vec<i32>, Buf)>;

pub struct Probe {
    listener: TcpListener,
    /// A connection that ended leaves its place empty: writes in flight know it by its number.
    receivers: Vec<Option<Receiver>>,
    subscribers: Vec<Subscriber>,
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
        Ok(Probe {
            listener,
            receivers: Vec::new(),
            subscribers: Vec::new(),
            sink,
            pool,
            answer: Answer::new(),
            ready: Vec::new(),
        })
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
            self.feed();
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
            if receiver.consumes {
                self.subscribers.extend(slot.take().map(|receiver| Subscriber::new(receiver.into_stream())));
            } else if receiver.ended && !receiver.ripe() {
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
                    let taken = receiver.take(&mut self.pool);
                    bytes += taken.block.len();
                    requests.push((next, taken.correlations, taken.block.slice(0..taken.frames_bytes)));
                    data.push(taken.block);
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
            for (number, correlations, frames) in requests {
                self.subscribers.iter_mut().for_each(|subscriber| subscriber.push(frames.clone()));
                if let Some(receiver) = &mut self.receivers[number] {
                    receiver.answer(&correlations, &self.answer);
                }
            }
        }
        self.send();
    }

    fn feed(&mut self) {
        self.subscribers.retain_mut(|subscriber| match subscriber.blocked().then(|| subscriber.send()) {
            Some(Err(error)) => {
                eprintln!("probe: consumer closed: {error}");
                false
            }
            _ => true,
        });
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
        for subscriber in &self.subscribers {
            let wanted = if subscriber.blocked() { PollFlags::OUT } else { PollFlags::empty() };
            descriptors.push(PollFd::from_borrowed_fd(subscriber.descriptor(), wanted));
        }
        match poll(&mut descriptors, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let newcomers = !descriptors[0].revents().is_empty();
        let gone = PollFlags::HUP | PollFlags::ERR;
        let consumers = descriptors.split_off(descriptors.len() - self.subscribers.len());
        let mut gone =
            consumers.iter().map(|consumer| consumer.revents().intersects(gone)).collect::<Vec<_>>().into_iter();
        self.subscribers.retain(|_| !gone.next().unwrap_or(false));
        if newcomers {
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
