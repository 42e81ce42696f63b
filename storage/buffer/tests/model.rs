//! Pool, writers and readers against plain vectors, over threads too. `cargo +nightly miri test -p ringmain-buffer` runs this file
//! for the aliasing, initialisation and data races of the `unsafe` blocks.
#![allow(clippy::disallowed_methods)] // threads: that is the point

use std::sync::mpsc::channel;

use ringmain_buffer::{Buf, BufMut, Pool, Refused};
use ringmain_types::{ACCOUNTS, Account, Limits, ShardId};

const ALL: [Account; ACCOUNTS] =
    [Account::Receive, Account::Tail, Account::Cache, Account::Reply, Account::Background, Account::Control];

struct Random(u64);
impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A block as the model sees it: who pays, and how many handles keep it.
struct ModelBlock {
    account: Account,
    bytes: usize,
    handles: usize,
}

struct Writer {
    real: BufMut,
    block: usize,
    written: Vec<u8>,
}

struct Reader {
    real: Buf,
    block: usize,
    bytes: Vec<u8>,
}

struct Model {
    random: Random,
    pool: Pool,
    blocks: Vec<ModelBlock>,
    writers: Vec<Writer>,
    readers: Vec<Reader>,
}

impl Model {
    fn used(&self, account: Account) -> usize {
        self.blocks.iter().filter(|block| block.handles > 0 && block.account == account).map(|block| block.bytes).sum()
    }

    fn take(&mut self) {
        let account = ALL[self.random.below(ACCOUNTS)];
        let bytes = 1 << self.random.below(15);
        let left = (self.pool.limit(account) as usize).saturating_sub(self.used(account));
        match self.pool.take(account, bytes) {
            Ok(real) => {
                assert!(real.block_bytes() <= left && real.spare() == real.block_bytes() && real.spare() >= bytes);
                assert_eq!(real.as_ptr() as usize % real.block_bytes().min(4096), 0);
                let block = self.blocks.len();
                self.blocks.push(ModelBlock { account, bytes: real.block_bytes(), handles: 1 });
                self.writers.push(Writer { real, block, written: Vec::new() });
            }
            Err(Refused { account: refused, wanted, left: said }) => {
                assert_eq!((refused, said), (account, left));
                assert!(wanted > left);
            }
        }
    }

    fn write(&mut self) {
        let Some(at) = pick(&mut self.random, self.writers.len()) else { return };
        let writer = &mut self.writers[at];
        let count = self.random.below(writer.real.spare().min(600) + 1);
        let bytes: Vec<u8> = (0..count).map(|_| self.random.below(256) as u8).collect();
        match self.random.below(3) {
            0 => writer.real.extend(&bytes),
            1 => {
                writer.real.spare_mut()[..count].copy_from_slice(&bytes);
                writer.real.advance(count);
            }
            _ => {
                writer.real.extend_zeroes(count);
                let from = writer.written.len();
                writer.real.written_mut()[from..].copy_from_slice(&bytes);
            }
        }
        writer.written.extend(&bytes);
        // All of the spare part may be read: it holds old bytes, never nothing.
        std::hint::black_box(writer.real.spare_mut().iter().map(|byte| u64::from(*byte)).sum::<u64>());
        assert_eq!(&writer.real[..], &writer.written[..]);
    }

    fn freeze(&mut self) {
        let Some(at) = pick(&mut self.random, self.writers.len()) else { return };
        if self.random.below(3) == 0 {
            let Writer { real, block, written } = self.writers.swap_remove(at);
            let real = real.freeze();
            self.blocks[block].handles -= usize::from(written.is_empty());
            self.keep(real, block, written, 0);
        } else {
            let writer = &mut self.writers[at];
            let count = self.random.below(writer.written.len() + 1);
            let real = writer.real.freeze_to(count);
            let bytes = writer.written.drain(..count).collect();
            let block = writer.block;
            self.keep(real, block, bytes, 1);
        }
    }

    fn slice(&mut self) {
        let Some(at) = pick(&mut self.random, self.readers.len()) else { return };
        let reader = &self.readers[at];
        let from = self.random.below(reader.bytes.len() + 1);
        let to = from + self.random.below(reader.bytes.len() - from + 1);
        let real = match self.random.below(2) {
            0 => reader.real.slice(from..to),
            _ => reader.real.slice_of(&reader.real[from..to]),
        };
        assert!(real.is_empty() || real.same_block(&reader.real));
        let (block, bytes) = (reader.block, reader.bytes[from..to].to_vec());
        self.keep(real, block, bytes, 1);
    }

    /// An empty buffer holds no block.
    fn keep(&mut self, real: Buf, block: usize, bytes: Vec<u8>, handles: usize) {
        if bytes.is_empty() {
            assert_eq!(real.block_bytes(), 0);
            return;
        }
        self.blocks[block].handles += handles;
        self.readers.push(Reader { real, block, bytes });
    }

    fn charge(&mut self) {
        let account = ALL[self.random.below(ACCOUNTS)];
        if let Some(at) = pick(&mut self.random, self.readers.len()) {
            self.pool.charge(&self.readers[at].real, account);
            self.blocks[self.readers[at].block].account = account;
        } else if let Some(at) = pick(&mut self.random, self.writers.len()) {
            self.pool.charge_mut(&self.writers[at].real, account);
            self.blocks[self.writers[at].block].account = account;
        }
    }

    fn drop_some(&mut self) {
        for _ in 0..self.random.below(4) {
            if let Some(at) = pick(&mut self.random, self.readers.len()) {
                let reader = self.readers.swap_remove(at);
                self.blocks[reader.block].handles -= 1;
                if self.random.below(8) == 0 {
                    let bytes = reader.bytes;
                    let real = reader.real;
                    std::thread::spawn(move || assert_eq!(&real[..], &bytes[..])).join().unwrap();
                }
            }
        }
        if self.random.below(3) == 0
            && let Some(at) = pick(&mut self.random, self.writers.len())
        {
            let writer = self.writers.swap_remove(at);
            self.blocks[writer.block].handles -= 1;
        }
    }

    fn check(&mut self) {
        self.pool.collect();
        for account in ALL {
            assert_eq!(self.pool.used(account), self.used(account) as u64, "{account:?}");
        }
        for reader in &self.readers {
            assert_eq!(&reader.real[..], &reader.bytes[..]);
            assert_eq!(reader.real.block_bytes(), self.blocks[reader.block].bytes);
        }
        for writer in &self.writers {
            assert_eq!(&writer.real[..], &writer.written[..]);
        }
    }
}

fn pick(random: &mut Random, len: usize) -> Option<usize> {
    (len > 0).then(|| random.below(len))
}

#[test]
fn buffers_hold_what_vectors_hold_and_accounts_what_is_alive() {
    let (seeds, steps) = if cfg!(miri) { (3, 150) } else { (60, 3000) };
    for seed in 0..seeds {
        let limits = Limits { memory_bytes: [96 << 10; ACCOUNTS], ..Limits::tiny() };
        let pool = Pool::new(ShardId(0), &limits);
        let (blocks, writers, readers) = (Vec::new(), Vec::new(), Vec::new());
        let mut model = Model { random: Random(seed), pool, blocks, writers, readers };
        for step in 0..steps {
            match model.random.below(12) {
                0..2 => model.take(),
                2..5 => model.write(),
                5..7 => model.freeze(),
                7 => model.slice(),
                8 => model.charge(),
                _ => model.drop_some(),
            }
            if step % 16 == 0 {
                model.check();
            }
        }
        // Half of the time the pool goes first.
        if seed % 2 == 0 {
            drop(model.pool);
            assert!(model.readers.iter().all(|reader| reader.real[..] == reader.bytes[..]));
        }
    }
}

/// Readers on other threads drop their parts while the owner goes on writing, freezing and taking the blocks again.
#[test]
fn blocks_come_home_from_many_threads_and_are_used_again() {
    let rounds = if cfg!(miri) { 12 } else { 2000 };
    let mut pool = Pool::new(ShardId(0), &Limits::tiny());
    let (senders, threads): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sender, receiver) = channel::<(u8, Buf)>();
            let thread = std::thread::spawn(move || {
                for (mark, buf) in receiver {
                    assert!(buf.iter().all(|byte| *byte == mark));
                }
            });
            (sender, thread)
        })
        .unzip();
    for round in 0..rounds {
        let mark = round as u8;
        let mut writer = loop {
            match pool.take(Account::Tail, 512) {
                Ok(writer) => break writer,
                Err(_) => std::thread::yield_now(),
            }
        };
        for sender in &senders {
            writer.extend(&[mark; 40]);
            let part = writer.freeze_to(40);
            sender.send((mark, part.clone())).unwrap();
            sender.send((mark, part.slice(3..17))).unwrap();
        }
        if round % 7 == 0 {
            pool.collect();
        }
    }
    drop(senders);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    pool.collect();
    assert_eq!(pool.used(Account::Tail), 0);
}
