//! Receipts.

use std::path::Path;

use super::*;
use crate::capture::receipt;

#[test]
fn receipts_round_trip_and_are_never_replaced() {
    let folder = Folder::new();
    let path = folder.0.join("receipts/rank-0.receipt");
    for (name, text) in [("a", ""), ("b", "{\"ü\": 1}\n"), ("c", "line\nline")] {
        let path = path.with_file_name(name);
        receipt::write(&path, text).unwrap();
        assert_eq!(receipt::read(&path).unwrap(), text);
    }
    receipt::write(&path, "one").unwrap();
    match receipt::write(&path, "two") {
        Err(CaptureError::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(receipt::read(&path).unwrap(), "one");
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_receipt_is_found() {
    let folder = Folder::new();
    let path: &Path = &folder.0.join("receipt");
    receipt::write(path, "{\"rank\": 0, \"batches\": 12}").unwrap();
    let bytes = fs::read(path).unwrap();
    assert!(receipt::parse(&bytes).is_ok());
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(receipt::parse(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(receipt::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(receipt::parse(&[&bytes[..], b"\n"].concat()).is_err());
}
