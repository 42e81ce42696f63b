//! When each batch of a partition was due to be published: what a consumer's latency counts from.

use std::cell::RefCell;
use std::rc::Rc;

/// Shared by a publisher and its consumers, which live on one thread. All batches of a partition are equal and the partition was
/// empty, so that an offset names its batch; nothing needs to be written into the records.
#[derive(Clone)]
pub struct Timeline {
    records_a_batch: u64,
    due: Rc<RefCell<Vec<Vec<u64>>>>,
}

impl Timeline {
    pub fn new(partitions: u32, records_a_batch: u64) -> Timeline {
        Timeline { records_a_batch, due: Rc::new(RefCell::new(vec![Vec::new(); partitions as usize])) }
    }

    /// The next batch of `partition` is due at `due`. Returns its base offset.
    pub fn push(&self, partition: u32, due: u64) -> i64 {
        let due_of = &mut self.due.borrow_mut()[partition as usize];
        due_of.push(due);
        ((due_of.len() as u64 - 1) * self.records_a_batch) as i64
    }

    /// When the batch at `offset` was due.
    pub fn due(&self, partition: u32, offset: i64) -> Option<u64> {
        let batch = u64::try_from(offset).ok()? / self.records_a_batch;
        self.due.borrow().get(partition as usize)?.get(batch as usize).copied()
    }

    /// Where `partition` ends when all that was due is there.
    pub fn end(&self, partition: u32) -> i64 {
        (self.due.borrow()[partition as usize].len() as u64 * self.records_a_batch) as i64
    }

    pub fn records_a_batch(&self) -> u64 {
        self.records_a_batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_names_its_batch() {
        let timeline = Timeline::new(2, 15);
        assert_eq!((timeline.push(1, 100), timeline.push(1, 200), timeline.push(0, 300)), (0, 15, 0));
        assert_eq!((timeline.due(1, 14), timeline.due(1, 15), timeline.due(1, 30)), (Some(100), Some(200), None));
        assert_eq!((timeline.end(1), timeline.end(0), timeline.due(1, -1)), (30, 15, None));
    }
}
