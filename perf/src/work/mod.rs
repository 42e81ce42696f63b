//! The workloads of issue 6, one a file.

mod ack;
mod cold;
mod consume;
mod cores;
mod fetch;
mod idle;
mod keyed;
mod mixed;
mod publish;
mod small;
mod steady;

use crate::sitting::Workload;

/// In the order of the table. `quick`: with less of everything.
pub fn all(quick: bool) -> Vec<Workload> {
    let mut all = publish::workloads();
    all.extend(fetch::workloads(quick));
    all.push(cold::workload(quick));
    all.push(ack::workload());
    all.push(consume::workload());
    all.extend(small::workloads());
    all.push(keyed::workload(quick));
    all.push(cores::workload());
    all.push(mixed::workload(quick));
    all.push(idle::workload(quick));
    all.push(steady::workload());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_workloads_and_labels_tell_sides_apart() {
        for quick in [true, false] {
            let all = all(quick);
            for (at, workload) in all.iter().enumerate() {
                assert!(all[..at].iter().all(|other| other.name != workload.name), "{} twice", workload.name);
                for (at, side) in workload.sides.iter().enumerate() {
                    assert!(workload.sides[..at].iter().all(|other| other.label != side.label), "{}", workload.name);
                }
            }
        }
    }
}
