//! A bare tokio server on one thread that sends back what it gets: the least that answering a small request costs the usual way.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const BUFFER_BYTES: usize = 4096;

/// Serves until the process ends.
pub fn run(listen: &str) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut buffer = [0; BUFFER_BYTES];
                while let Ok(bytes) = stream.read(&mut buffer).await {
                    if bytes == 0 || stream.write_all(&buffer[..bytes]).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}
