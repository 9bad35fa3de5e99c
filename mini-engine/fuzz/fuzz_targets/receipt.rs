//! Any bytes are a receipt or an error, and a receipt that is written reads back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_engine::receipt::{Receipt, parse};

fuzz_target!(|bytes: &[u8]| {
    let Ok(receipt) = parse(bytes) else { return };
    let again = parse(receipt.to_json().as_bytes()).expect("what is written is a receipt");
    assert_eq!(again, receipt);
    let sealed = Receipt::seal(receipt.receipt.clone());
    assert_eq!(sealed.digest == receipt.digest, receipt == sealed);
});
