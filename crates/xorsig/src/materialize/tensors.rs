//! The table of tensors, which has most of the rows.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use arrow_array::StringArray;
use parquet::errors::ParquetError;

use super::names::Names;
use super::output::{Finished, Unfinished};
use super::pages::chunk::Press;
use super::pages::file::PagesFile;
use super::pages::names::NameColumn;
use super::pages::numbers::Numbers;
use super::pages::signatures::Signatures;
use super::pages::table::{Columns, PagesTable};
use super::schema::Table;
use super::{MaterializeError, table_error};
use crate::capture::error::CaptureError;
use crate::capture::records::Tensors;

/// Writes the table.
pub struct TensorWriter {
    sink: Sink,
    unfinished: Unfinished,
}

type Encoder = PagesTable<TensorColumns>;

/// Where rows are encoded.
enum Sink {
    /// In the thread that appends them.
    Here(Box<Encoder>),
    /// In a thread of their own.
    Aside(Aside),
    /// Nowhere any more: encoding has failed.
    Failed,
}

/// A thread that encodes, and gives the encoder back when the sender is gone.
struct Aside {
    rows: SyncSender<Rows>,
    /// Rows that have been encoded; their memory serves again.
    spent: Receiver<Tensors>,
    thread: JoinHandle<Result<Box<Encoder>, ParquetError>>,
}

/// Rows of a batch.
struct Rows {
    tensors: Tensors,
    regions: usize,
    /// Every name that the rows refer to.
    names: StringArray,
}

impl TensorWriter {
    /// Creates the file in the directory `output`. With `threaded`, a thread encodes the
    /// rows, one batch while the next one is read.
    pub fn create(output: &Path, threaded: bool) -> Result<Self, MaterializeError> {
        let (file, unfinished) = Unfinished::create(output, Table::Tensors)?;
        let path = unfinished.path();
        let encoder = Box::new(Encoder::new(file, Table::Tensors).map_err(table_error(path))?);
        let sink = if threaded {
            let aside = Aside::start(encoder);
            Sink::Aside(aside.map_err(CaptureError::io("start a thread for", path))?)
        } else {
            Sink::Here(encoder)
        };
        Ok(Self { sink, unfinished })
    }

    /// Appends the rows of a batch, whose memory is exchanged for that of an earlier one where a
    /// thread encodes. `names` has every name that they refer to.
    pub fn write(
        &mut self,
        tensors: &mut Tensors,
        regions: usize,
        names: &Names,
    ) -> Result<(), MaterializeError> {
        let names = names.array();
        match &mut self.sink {
            Sink::Here(encoder) => encoder
                .write((tensors, regions), names)
                .map_err(table_error(self.unfinished.path())),
            Sink::Aside(aside) => {
                let spent = aside.spent.try_recv().unwrap_or_default();
                let rows = Rows {
                    tensors: std::mem::replace(tensors, spent),
                    regions,
                    names: names.clone(),
                };
                match aside.rows.send(rows) {
                    Ok(()) => Ok(()),
                    // The thread has ended early; its error is what it returns.
                    Err(_) => self.take_encoder().map(drop),
                }
            }
            Sink::Failed => self.take_encoder().map(drop),
        }
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<Finished, MaterializeError> {
        let encoder = self.take_encoder()?;
        let file = encoder
            .finish()
            .map_err(table_error(self.unfinished.path()))?;
        self.unfinished.finish(&file)
    }

    /// The encoder, once it has every row.
    fn take_encoder(&mut self) -> Result<Box<Encoder>, MaterializeError> {
        let encoder = match std::mem::replace(&mut self.sink, Sink::Failed) {
            Sink::Here(encoder) => Ok(encoder),
            Sink::Aside(aside) => aside.join(),
            Sink::Failed => Err(ParquetError::General("encoding has failed".into())),
        };
        encoder.map_err(table_error(self.unfinished.path()))
    }
}

impl Aside {
    fn start(encoder: Box<Encoder>) -> std::io::Result<Self> {
        let (rows, received) = sync_channel(0);
        let (returned, spent) = channel();
        let thread = std::thread::Builder::new().name("xorsig-table".into());
        let thread = thread.spawn(move || encode_all(encoder, &received, &returned))?;
        Ok(Self {
            rows,
            spent,
            thread,
        })
    }

    fn join(self) -> Result<Box<Encoder>, ParquetError> {
        drop(self.rows);
        let panicked = |_| Err(ParquetError::General("the encoder failed".into()));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Body of the thread.
fn encode_all(
    mut encoder: Box<Encoder>,
    received: &Receiver<Rows>,
    returned: &Sender<Tensors>,
) -> Result<Box<Encoder>, ParquetError> {
    for rows in received {
        encoder.write((&rows.tensors, rows.regions), &rows.names)?;
        encoder.write_back();
        // Nobody takes it any more when all rows were sent.
        let _ = returned.send(rows.tensors);
    }
    Ok(encoder)
}

/// The columns of the table.
struct TensorColumns {
    calls: Numbers<u64>,
    ticks: Numbers<u64>,
    roles: Numbers<u8>,
    slots: NameColumn,
    layouts: Numbers<u32>,
    signatures: Signatures,
    notes: NameColumn,
}

impl Columns for TensorColumns {
    /// The rows of a batch, and the regions of each signature.
    type Rows<'a> = (&'a Tensors, usize);

    fn new(file: &PagesFile) -> Self {
        let column = |index| file.column(index);
        Self {
            calls: Numbers::new(column(0)),
            ticks: Numbers::new(column(1)),
            roles: Numbers::new(column(2)),
            slots: NameColumn::new(column(3)),
            layouts: Numbers::new(column(4)),
            signatures: Signatures::new([column(5), column(6)]),
            notes: NameColumn::new(column(7)),
        }
    }

    fn count((tensors, _): Self::Rows<'_>) -> usize {
        tensors.len()
    }

    fn append(
        &mut self,
        (tensors, regions): Self::Rows<'_>,
        range: Range<usize>,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        let width = 8 * regions;
        let signatures = &tensors.signatures[range.start * width..range.end * width];
        let present = &tensors.present[range.clone()];
        self.calls.append(&tensors.calls[range.clone()], press)?;
        self.ticks.append(&tensors.ticks[range.clone()], press)?;
        self.roles.append(&tensors.roles[range.clone()], press)?;
        self.slots.append(&tensors.slots[range.clone()], press)?;
        self.layouts
            .append(&tensors.layouts[range.clone()], press)?;
        self.signatures
            .append(present, signatures, regions, press)?;
        self.notes.append(&tensors.notes[range], press)
    }

    fn finish(
        &mut self,
        names: &StringArray,
        file: &mut PagesFile,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.calls.finish(file, press)?;
        self.ticks.finish(file, press)?;
        self.roles.finish(file, press)?;
        self.slots.finish(names, file, press)?;
        self.layouts.finish(file, press)?;
        self.signatures.finish(file, press)?;
        self.notes.finish(names, file, press)
    }
}
