//! libFuzzer around one target, named by RINGMAIN_FUZZ. `cargo xtask fuzz` builds it with coverage and starts it.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<&ringmain_fuzz::Target> = OnceLock::new();

fn target() -> &'static ringmain_fuzz::Target {
    TARGET.get_or_init(|| {
        let name = std::env::var("RINGMAIN_FUZZ").unwrap_or_default();
        ringmain_fuzz::target(&name).unwrap_or_else(|| panic!("RINGMAIN_FUZZ={name} names no target"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
