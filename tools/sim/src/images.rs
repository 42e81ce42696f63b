//! What the metadata log says, over all lives: every published image was durable, so none of a later life knows less.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_metadata::{ClusterImage, Controller, ControllerConfig, Record};
use ringmain_types::{BrokerId, Limits, TopicId};

#[derive(Default)]
pub struct Images {
    last: Arc<ClusterImage>,
    gone: BTreeSet<TopicId>,
}

impl Images {
    /// Err: what does not follow from the images before.
    pub fn published(&mut self, image: &Arc<ClusterImage>, limits: &Limits) -> Result<(), String> {
        let last = std::mem::replace(&mut self.last, image.clone());
        let ahead = |image: &ClusterImage| (image.next, image.next_producer_id, image.brokers.len());
        let (before, after) = (ahead(&last), ahead(image));
        if after.0 < before.0 || after.1 < before.1 || after.2 < before.2 {
            return Err(format!("(end, producer ids, brokers) were {before:?} and are {after:?}"));
        }
        for (id, topic) in &last.topics {
            match image.topics.get(id) {
                Some(now) if now.name != topic.name || now.partitions.len() < topic.partitions.len() => {
                    return Err(format!("{} has become {}, or smaller", topic.name, now.name));
                }
                Some(_) => {}
                None if !image.removed.contains(id) => return Err(format!("{} is gone, but not removed", topic.name)),
                None => drop(self.gone.insert(*id)),
            }
        }
        let back = image.topics.values().find(|topic| self.gone.contains(&topic.id));
        if let Some(topic) = back {
            return Err(format!("{} was removed, and is there again", topic.name));
        }
        // Its removals are bounded, a history's are fewer.
        if last.removed.len() > image.removed.len() {
            return Err(format!("of {} removals {} are left", last.removed.len(), image.removed.len()));
        }
        same_when_said_again(image, limits)
    }
}

/// What `image` says again makes it anew, of nothing.
fn same_when_said_again(image: &ClusterImage, limits: &Limits) -> Result<(), String> {
    let limits = limits.clone();
    let config = ControllerConfig { broker: BrokerId(1), seed: 0, limits, properties: Arc::default() };
    let mut controller = Controller::new(config);
    controller.begin(image.next);
    for record in image.said_again() {
        let at = controller.image().next;
        let record = Record::decode(&record.encode()).map_err(|error| error.to_string())?;
        controller.replay(at, &record).map_err(|error| error.to_string())?;
    }
    let again = ClusterImage { next: image.next, ..(*controller.image()).clone() };
    if again == *image { Ok(()) } else { Err(format!("said again it is {again:?}, and was {image:?}")) }
}
