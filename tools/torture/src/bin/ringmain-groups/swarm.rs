//! All members of a run, on one thread: whoever has an answer or something due is asked what comes next.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringmain_torture::connection::Connection;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::book::{Book, Plan};
use crate::member::{Member, Protocol, Stats};

const EVENTS: usize = 256;

pub struct Swarm {
    address: String,
    epoll: OwnedFd,
    pub members: Vec<Member>,
    /// By group, as `Member::group` counts them.
    pub books: Vec<Book>,
    of_group: Vec<Vec<usize>>,
    due: BTreeSet<(Instant, usize)>,
    scheduled: Vec<Option<Instant>>,
    /// Groups that something changed in.
    changed: BTreeSet<usize>,
    pub stats: Stats,
}

impl Swarm {
    pub fn new(address: &str) -> Result<Swarm, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
        Ok(Swarm {
            address: address.into(),
            epoll,
            members: Vec::new(),
            books: Vec::new(),
            of_group: Vec::new(),
            due: BTreeSet::new(),
            scheduled: Vec::new(),
            changed: BTreeSet::new(),
            stats: Stats { beats: histogram()?, joins: 0, forgotten: 0 },
        })
    }

    pub fn add_group(&mut self, plan: Plan) -> usize {
        self.books.push(Book::new(plan));
        self.of_group.push(Vec::new());
        self.books.len() - 1
    }

    /// Not in the group yet.
    pub fn add_member(&mut self, group: usize, protocol: Protocol) -> usize {
        let number = self.members.len();
        self.members.push(Member::new(number, group, protocol));
        self.of_group[group].push(number);
        self.scheduled.push(None);
        number
    }

    /// The members of a group that are in it, or on their way.
    pub fn live(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.of_group[group].iter().copied().filter(|number| !self.members[*number].is_out())
    }

    /// A connection for this member.
    pub fn open(&self, number: usize) -> Result<Connection, String> {
        let opened = Connection::open(&self.address).and_then(|connection| {
            epoll::add(&self.epoll, &connection, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
            Ok(connection)
        });
        opened.map_err(|e| format!("member {number} can't connect: {e}"))
    }

    pub fn enter(&mut self, number: usize) -> Result<(), String> {
        let connection = self.open(number)?;
        self.enter_over(number, connection)
    }

    /// Over a connection that [`Swarm::open`] made.
    pub fn enter_over(&mut self, number: usize, connection: Connection) -> Result<(), String> {
        let book = &mut self.books[self.members[number].group];
        self.members[number].enter(connection, book);
        book.disturb(Instant::now());
        self.go_on(number)
    }

    pub fn leave(&mut self, number: usize) -> Result<(), String> {
        self.members[number].leave();
        self.disturb(number);
        self.go_on(number)
    }

    pub fn vanish(&mut self, number: usize) {
        self.members[number].vanish();
        self.disturb(number);
        self.schedule(number);
    }

    fn disturb(&mut self, number: usize) {
        self.books[self.members[number].group].disturb(Instant::now());
    }

    /// After a kill: what was answered before is taken, what was not stays open.
    pub fn disconnect(&mut self) {
        for number in 0..self.members.len() {
            while self.receive(number).is_ok_and(|more| more) {}
            self.members[number].disconnect();
            self.schedule(number);
        }
    }

    pub fn reconnect(&mut self) -> Result<(), String> {
        for number in 0..self.members.len() {
            if self.members[number].is_out() {
                continue;
            }
            let connection = self.open(number)?;
            self.members[number].reconnect(connection);
            self.go_on(number)?;
        }
        Ok(())
    }

    /// Runs until then, or until `done`.
    pub fn run(&mut self, until: Instant, mut done: impl FnMut(&Swarm) -> bool) -> Result<(), String> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let now = Instant::now();
            self.act_on_due(now)?;
            self.settle(now);
            if now >= until || done(self) {
                return Ok(());
            }
            let next = self.due.first().map_or(until, |(due, _)| until.min(*due));
            events.clear();
            let wait = timespec(next.saturating_duration_since(now));
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(format!("epoll: {e}")),
            }
            for event in events.drain(..) {
                let number = event.data.u64() as usize;
                while self.receive(number).map_err(|e| format!("member {number}: {e}"))? {
                    self.go_on(number)?;
                }
            }
        }
    }

    fn act_on_due(&mut self, now: Instant) -> Result<(), String> {
        while let Some((due, number)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            self.scheduled[number] = None;
            self.go_on(number)?;
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> io::Result<bool> {
        let member = &mut self.members[number];
        let book = &mut self.books[member.group];
        member.receive(Instant::now(), book, &mut self.stats)
    }

    fn go_on(&mut self, number: usize) -> Result<(), String> {
        let member = &mut self.members[number];
        let acted = member.act(Instant::now(), &mut self.books[member.group]);
        acted.map_err(|e| format!("member {number}: {e}"))?;
        self.schedule(number);
        Ok(())
    }

    fn schedule(&mut self, number: usize) {
        let member = &self.members[number];
        let book = &mut self.books[member.group];
        if std::mem::take(&mut book.changed) {
            self.changed.insert(member.group);
        }
        let due = member.due(&book.plan);
        let before = std::mem::replace(&mut self.scheduled[number], due);
        if before != due {
            if let Some(at) = before {
                self.due.remove(&(at, number));
            }
            if let Some(at) = due {
                self.due.insert((at, number));
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(group) = self.changed.pop_first() {
            if self.is_settled(group) {
                self.books[group].settled(now);
            }
        }
    }

    /// All its members are in one generation, and every partition is a live one's.
    fn is_settled(&self, group: usize) -> bool {
        let mut generation = None;
        for number in self.live(group) {
            let member = &self.members[number];
            if !member.is_settled() || *generation.get_or_insert(member.generation()) != member.generation() {
                return false;
            }
        }
        let owned = |partition| {
            self.books[group].owner(partition).is_some_and(|identity| {
                let member = &self.members[Member::number_of(identity)];
                member.is(identity) && !member.is_out()
            })
        };
        generation.is_some() && (0..self.books[group].plan.partitions).all(owned)
    }

    /// Prints what was broken; how much that was.
    pub fn verdict(&self) -> u64 {
        for broken in self.books.iter().flat_map(|book| &book.broken) {
            println!("BROKEN {broken}");
        }
        self.books.iter().map(|book| book.broken_count).sum()
    }
}

pub fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1, 600_000_000, 3).map_err(|e| e.to_string())
}

fn timespec(wait: Duration) -> Timespec {
    Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
}
