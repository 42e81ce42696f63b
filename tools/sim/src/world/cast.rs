//! Who plays in a history: its clients, each with what it is to do.

use crate::clients::{self, Client};
use crate::faults::{Plan, WIDE_FROM};
use crate::groups::{GROUPS, MIXED};
use crate::random::Random;

/// Long polls of each watcher after the faults.
const WATCHES: u32 = 12;

/// The clients of a plan; who is taken out keeps his place and does nothing.
pub(super) fn cast(plan: &Plan, random: &mut Random, start_ns: u64) -> Vec<Box<dyn Client>> {
    let mut clients = all_clients(plan, random, start_ns);
    for at in plan.less.clients.iter().filter(|at| **at > 0) {
        if let Some(client) = clients.get_mut(*at) {
            *client = Box::new(clients::Absent);
        }
    }
    clients
}

fn all_clients(plan: &Plan, random: &mut Random, start_ns: u64) -> Vec<Box<dyn Client>> {
    let work = &plan.work;
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    let wishes = clients::wishes(random, work.topics, work.partitions_max, start_ns, plan);
    // Who reads what compaction replaces meanwhile begins again and again.
    let rereads = wishes.iter().any(|wish| wish.compacted.is_some()) && Random::new(plan.seed ^ 0x72_6577).chance(0.5);
    let wishes = wishes.into_iter().enumerate().filter(|(at, _)| *at == 0 || !plan.less.topics.contains(at));
    clients.push(Box::new(clients::Admin::new(wishes.map(|(_, wish)| wish).collect())));
    for id in 0..work.producers {
        let mut style = clients::producer_style(random, work.values);
        style.values = plan.less.values.map_or(style.values, |less| style.values.min(less as u32));
        if plan.seed >= WIDE_FROM && style.acks != 0 {
            style.overreaches = 0.3;
        }
        clients.push(Box::new(clients::Producer::new(100 + id, style)));
    }
    for _ in 0..work.consumers {
        let mut style = clients::consumer_style(random);
        style.rewind = if rereads { 0.3 } else { style.rewind };
        if plan.faults.wide.pace > 1 {
            // Whoever reads without a pause would do nothing else for hours.
            style.pause_ns = style.pause_ns.max(4_000_000);
        }
        clients.push(Box::new(clients::Consumer::new(style)));
    }
    for id in 0..work.churns {
        let partitions = random.between(1, 3) as i32;
        clients.push(Box::new(clients::Churn::new(200 + id, work.churn_rounds, partitions, work.groups.clients() > 0)));
    }
    if work.trims > 0 {
        clients.push(Box::new(clients::Trimmer::new(work.trims, random.between(5, 50) * 1_000_000)));
    }
    for number in 0..work.watchers {
        clients.push(Box::new(clients::Watcher::new(number, 20, WATCHES)));
    }
    clients.extend((0..work.nuisances).map(|_| Box::<clients::Nuisance>::default() as Box<dyn Client>));
    let groups = work.groups;
    for number in 0..groups.committers {
        let committer = clients::Committer::new(number, groups.commits, random.skewed(100_000, 20_000_000));
        clients.push(Box::new(committer.hasty(plan.seed >= WIDE_FROM)));
    }
    for number in 0..groups.members {
        clients.push(Box::new(clients::Member::new(number as usize % GROUPS, groups.whims)));
    }
    for number in 0..groups.modern {
        let member = clients::Modern::new(number as usize % GROUPS, number, groups.whims);
        clients.push(Box::new(member.forgetful(plan.seed >= WIDE_FROM)));
    }
    for number in 0..groups.mixed.0 {
        let member = clients::Member::mixed(number, groups.whims);
        clients.push(Box::new(member.half_hearted(plan.seed >= WIDE_FROM)));
    }
    for number in 0..groups.mixed.1 {
        let member = clients::Modern::new(MIXED, number, groups.whims);
        clients.push(Box::new(member.forgetful(plan.seed >= WIDE_FROM)));
    }
    clients
}
