//! Every input of the corpora holds; they begin with what a writer makes.
//!
//! `XORSIG_WRITE_CORPUS=1 cargo test` writes those first inputs afresh, after a change of format.

use std::fs;
use std::path::{Path, PathBuf};

use xorsig::capture::append::{Begin, LayoutText};
use xorsig::capture::batch_file_name;
use xorsig::capture::pending::Pending;
use xorsig::capture::records::{SpanRow, TensorRow};
use xorsig::capture::writer::{CaptureWriter, Options, WriteError};
use xorsig_fuzz::{batch, materialize, receipt, unseal};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

fn replay(target: &str, holds: fn(&[u8])) {
    let mut inputs: Vec<_> = fs::read_dir(corpus(target))
        .expect("a corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 3, "{target} has {} inputs", inputs.len());
    for input in inputs {
        let bytes = fs::read(&input).expect("an input");
        // A failure shows the input's name in the captured output.
        println!("{}", input.display());
        holds(&bytes);
        for length in [0, 1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            let length = length.min(bytes.len());
            holds(&bytes[..length]);
        }
    }
}

#[test]
fn batches_of_the_corpus_hold() {
    replay("batch", batch);
}

#[test]
fn receipts_of_the_corpus_hold() {
    replay("receipt", receipt);
}

#[test]
fn captures_of_the_corpus_hold() {
    replay("materialize", materialize);
}

/// Batches of one record, of every kind of record, and of many.
fn written() -> Vec<Vec<u8>> {
    let root = std::env::temp_dir().join(format!("xorsig-corpus-{}", std::process::id()));
    let options = Options {
        directory: root.join("rank-0"),
        staging: root.join("staging"),
        capture_id: [0; 16],
        rank: 0,
        regions: 2,
        max_batch_records: 1 << 20,
        queue_batches: 4,
    };
    let writer = CaptureWriter::new(&options).expect("a writer");
    let record = |count: u64| -> Result<(), WriteError> {
        writer.append(|batch| {
            let (name, long) = (batch.name("torch.mm")?, batch.name(&"größe".repeat(30))?);
            let layout = batch.layout(LayoutText {
                dtype: "float32",
                shape: vec![count as i64, 3],
                strides: (count > 1).then(|| vec![3, 1]),
                device: "cpu",
                kind: "strided",
                logical_nbytes: 12 * count,
            })?;
            let outer = Begin {
                parent: 0,
                site: 7,
                step: -1,
                phase: 0,
                thread: 0,
                flags: 4,
                callee: name,
            };
            let outer_call = batch.begin(outer)?;
            for index in 0..count {
                let parent = outer_call;
                let call = batch.begin(Begin { parent, ..outer })?;
                let signature = [index as u8; 16];
                batch.tensor(TensorRow {
                    tick: 0,
                    call,
                    role: (index % 7) as u8,
                    slot: name,
                    layout,
                    signature: (index % 3 < 2).then_some(&signature),
                    note: if index % 3 == 2 { long } else { 0 },
                })?;
                batch.value(call, 0, name, &index.to_string())?;
                batch.end(call, (index % 2) as u8, 2, long)?;
            }
            batch.mark(1, 5, name, "text")?;
            batch.span(SpanRow {
                file: name,
                qualname: long,
                position: [1, 2, 3, -1],
                operator: name,
                count,
                flags: 1,
                example: 0,
            })
        })
    };
    writer
        .append(|batch| batch.mark(0, 0, 0, ""))
        .expect("a record");
    writer.flush().expect("a batch");
    for count in [1, 2, 40] {
        record(count).expect("records");
        writer.flush().expect("a batch");
    }
    // One tensor whose signature came later, one that was withdrawn, one whose signature is lost.
    let (there, same, lost) = <(Pending, Pending, Pending)>::default();
    there.resolve(Some(&[5; 16]));
    same.resolve(Some(&[5; 16]));
    lost.resolve(None);
    let row = TensorRow {
        tick: 0,
        call: 0,
        role: 1,
        slot: 0,
        layout: 0,
        signature: None,
        note: 0,
    };
    writer
        .append(|batch| {
            batch.pending_tensor(row, &there, None)?;
            batch.pending_tensor(row, &same, Some(&there))?;
            batch.pending_tensor(row, &lost, None)
        })
        .expect("records");
    writer.flush().expect("a batch");
    let batches = writer.close().expect("the end").batches;
    let files = (0..batches)
        .map(|sequence| options.directory.join(batch_file_name(sequence)))
        .map(|path| fs::read(path).expect("a batch"))
        .collect();
    fs::remove_dir_all(root).expect("the folder to go");
    files
}

#[test]
fn first_inputs_are_what_a_writer_makes() {
    let inputs: Vec<Vec<u8>> = written()
        .iter()
        .map(|file| unseal(file).expect("a header"))
        .collect();
    let capture = |batches: &[Vec<u8>]| -> Vec<u8> {
        let framed = |batch: &Vec<u8>| [&(batch.len() as u16).to_le_bytes(), &batch[..]].concat();
        batches.iter().flat_map(framed).collect()
    };
    if std::env::var_os("XORSIG_WRITE_CORPUS").is_some() {
        for target in ["batch", "receipt", "materialize"] {
            fs::create_dir_all(corpus(target)).expect("a folder");
        }
        for (index, input) in inputs.iter().enumerate() {
            fs::write(corpus("batch").join(format!("written-{index}")), input).expect("an input");
            let prefix = capture(&inputs[..=index]);
            let name = format!("written-{index}");
            fs::write(corpus("materialize").join(name), prefix).expect("an input");
        }
        for (index, text) in ["", "{\"rank\": 0}", "ü\n\0"].iter().enumerate() {
            let name = format!("written-{index}");
            fs::write(corpus("receipt").join(name), text).expect("an input");
        }
    }
    for (index, input) in inputs.iter().enumerate() {
        // Times differ from run to run; what they are stored in does not.
        let kept = fs::read(corpus("batch").join(format!("written-{index}"))).expect("an input");
        assert_eq!(
            kept[..26],
            input[..26],
            "the format has changed: write the corpus afresh"
        );
    }
}
