//! The output of child processes.

use std::{
    io::{self, Read},
    process::Child,
    sync::mpsc,
    thread,
};

/// Reads both outputs of `process` in the background. When an output ends, the receiver gets its
/// text. After both texts, the channel is closed.
pub fn output_of(process: &mut Child) -> mpsc::Receiver<String> {
    let (sender, output) = mpsc::channel();
    read(process.stdout.take(), sender.clone());
    read(process.stderr.take(), sender);
    output
}

fn read(pipe: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        let text = pipe.map(io::read_to_string);
        let _ = to.send(text.and_then(Result::ok).unwrap_or_default());
    });
}
