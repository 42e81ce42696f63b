//! Bad input on each API: every version, every cut, every byte changed (each bit, all of them, all but the highest), every array
//! empty and twice, null everywhere, unknown names, numbers that are negative or as large as they get.
//!
//! What clients get is the table `bad-input.txt`. When a change of it is meant, write it anew and read the difference:
//! `RINGMAIN_WRITE_TABLE=1 cargo test -p ringmain-fuzz --test bad_input`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringmain_fuzz::bad_input::{self, Table};
use ringmain_wire::API_INFOS;

#[test]
fn every_api_gets_what_the_table_says() {
    let (next, table, count) = (AtomicUsize::new(0), Mutex::new(Table::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(api) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|api| *api < API_INFOS.len()) {
                    let mut own = Table::new();
                    count.fetch_add(bad_input::run(api, &mut own), Ordering::Relaxed);
                    table.lock().expect("nobody panicked").extend(own);
                }
            });
        }
    });
    let table = show(&table.into_inner().expect("nobody panicked"));
    println!("{} requests", count.into_inner());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bad-input.txt");
    if std::env::var_os("RINGMAIN_WRITE_TABLE").is_some() {
        std::fs::write(&path, &table).expect("the table");
    }
    let known = std::fs::read_to_string(&path).expect("the table");
    let (mut lines, mut others) = (known.lines(), table.lines());
    loop {
        match (lines.next(), others.next()) {
            (None, None) => return,
            (said, found) => {
                assert_eq!(found, said, "bad-input.txt says otherwise; see above for how it is written anew")
            }
        }
    }
}

fn show(table: &Table) -> String {
    let mut text = String::from(
        "# What a client gets for a request that is wrong in one place. Written by tests/bad_input.rs, which says how.\n\
         # Outcomes over all versions, places and values: `answered` without an error; the codes in the reply; `closed`, the\n\
         # connection's end; `silence`, no reply in 11 minutes (acks=0, or it asked to wait that long).\n",
    );
    let mut last = usize::MAX;
    for ((api, kind), outcomes) in table {
        if last != *api {
            let (first, newest) = API_INFOS[*api].spec.versions;
            let _ = writeln!(text, "\n{} {first}-{newest}", API_INFOS[*api].spec.name);
            last = *api;
        }
        let outcomes: Vec<&str> = outcomes.iter().map(String::as_str).collect();
        let _ = writeln!(text, "  {kind}: {}", outcomes.join(", "));
    }
    text
}
