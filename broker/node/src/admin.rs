//! The admin port: /metrics, /health/live and /health/ready over HTTP/1, on a thread of its own. It reads what the cores publish and
//! asks nothing of them.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, Semaphore};

use crate::config::HostPort;
use crate::error::StartError;
use crate::exposition;
use crate::metrics::{Health, Metrics};

/// What the admin port takes: it is for a scraper and a probe or two.
#[derive(Clone, Copy, Debug)]
pub struct AdminLimits {
    /// One more is closed at once.
    pub connections_max: usize,
    /// A request's head, all of it.
    pub head_bytes_max: usize,
    /// From the connect, or the last reply, to a whole head.
    pub head_timeout: Duration,
    /// A connection's whole life, replies that are not taken included.
    pub connection_timeout: Duration,
    /// A core whose loop has not gone round for this long is stuck. It goes round once a second at least.
    pub stuck_after: Duration,
}

impl Default for AdminLimits {
    fn default() -> AdminLimits {
        AdminLimits {
            connections_max: 32,
            head_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(5),
            connection_timeout: Duration::from_secs(300),
            stuck_after: Duration::from_secs(30),
        }
    }
}

/// A bound port that is not served yet, so that a taken one is known before anything else is begun.
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
}

impl Admin {
    pub fn bind(at: &HostPort) -> Result<Admin, StartError> {
        let failed = |error| StartError::Listen { address: format!("{}:{} (admin)", at.0, at.1), error };
        let addresses = (at.0.as_str(), at.1).to_socket_addrs().map_err(failed)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let listener = TcpListener::bind(addresses.as_slice()).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Admin { listener, address })
    }

    /// What was bound: with port 0 the one that was free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the returned handle is dropped.
    pub fn serve(self, metrics: Arc<Metrics>, limits: AdminLimits) -> io::Result<Serving> {
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(self.listener, metrics, limits) => {}
                    () = stopped.notified() => {}
                }
            });
        })?;
        Ok(Serving { stop, thread: Some(thread) })
    }
}

/// Ends the serving when dropped.
pub struct Serving {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends with its connections; a panic there was reported by itself.
            drop(thread.join());
        }
    }
}

async fn accept(listener: TcpListener, metrics: Arc<Metrics>, limits: AdminLimits) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin port can't be served");
            return pending().await;
        }
    };
    let free = Arc::new(Semaphore::new(limits.connections_max));
    let pages = Arc::new(Pages { beats: Mutex::new(Vec::new()), metrics, stuck_after: limits.stuck_after });
    let watched = pages.clone();
    tokio::spawn(async move {
        loop {
            watched.watch(Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors, mostly: what is open will end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = free.clone().try_acquire_owned() else { continue };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = pages.answer(&request);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head_timeout)
                .max_buf_size(limits.head_bytes_max)
                .serve_connection(TokioIo::new(stream), service);
            // Whatever ended it concerns this connection alone.
            drop(tokio::time::timeout(limits.connection_timeout, connection).await);
            drop(place);
        });
    }
}

struct Pages {
    metrics: Arc<Metrics>,
    stuck_after: Duration,
    /// Of each core, its beats and since when they are so many.
    beats: Mutex<Vec<(u64, Instant)>>,
}

impl Pages {
    fn watch(&self, now: Instant) {
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        beats.resize(self.metrics.cores.len(), (0, now));
        for (seen, core) in beats.iter_mut().zip(&self.metrics.cores) {
            if core.beats.get() != seen.0 {
                *seen = (core.beats.get(), now);
            }
        }
    }

    /// A core that has not begun yet is not stuck: recovery may take its time.
    fn live(&self, now: Instant) -> Result<(), String> {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        for (shard, (count, since)) in beats.iter().enumerate() {
            let still = now.saturating_duration_since(*since);
            if *count > 0 && still > self.stuck_after {
                return Err(format!("shard {shard} has not gone round for {} s", still.as_secs()));
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
            response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => text(StatusCode::OK, exposition::render(&self.metrics)),
            "/health/live" => match self.live(Instant::now()) {
                Ok(()) => text(StatusCode::OK, "live\n".into()),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
            },
            "/health/ready" => match self.metrics.health() {
                Health::Ready => text(StatusCode::OK, "ready\n".into()),
                Health::NotReady(why) => text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
            },
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /health/live and /health/ready\n".into()),
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(exposition::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use ringmain_shard::Note;
    use ringmain_types::{Limits, ShardId};

    use super::*;
    use crate::metrics::tests::NOW;
    use crate::notes::Gauges;

    const QUICK: AdminLimits = AdminLimits {
        connections_max: 2,
        head_bytes_max: 8 << 10,
        head_timeout: Duration::from_millis(300),
        connection_timeout: Duration::from_secs(2),
        stuck_after: Duration::from_secs(30),
    };

    fn serve(metrics: &Arc<Metrics>) -> (SocketAddr, Serving) {
        let admin = Admin::bind(&("127.0.0.1".into(), 0)).unwrap();
        (admin.address(), admin.serve(metrics.clone(), QUICK).unwrap())
    }
    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }
    /// All that comes until the server closes.
    fn rest(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        // A reset ends it just as well.
        drop(stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).unwrap();
        rest(&mut stream)
    }
    fn get(address: SocketAddr, path: &str) -> String {
        ask(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    #[test]
    fn pages_and_health() {
        let metrics = Metrics::new(1, &Limits::tiny());
        let mut sink = metrics.sink(ShardId(0));
        let (address, serving) = serve(&metrics);
        let reply = get(address, "/health/ready");
        assert!(reply.starts_with("HTTP/1.1 503") && reply.ends_with("shard 0 is not ready yet\n"), "{reply}");
        assert!(get(address, "/health/live").starts_with("HTTP/1.1 200"));
        sink.note(NOW, &Note::Ready);
        sink.turn(NOW, &Gauges::default());
        assert!(get(address, "/health/ready").starts_with("HTTP/1.1 200"));
        let reply = get(address, "/metrics");
        assert!(reply.contains("text/plain; version=0.0.4") && reply.contains("\nringmain_ready 1\n"), "{reply}");
        assert!(get(address, "/other").starts_with("HTTP/1.1 404"));
        let post = ask(address, "POST /metrics HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 405"), "{post}");
        drop(serving);
        assert!(TcpStream::connect(address).is_err(), "a dropped handle frees the port");
    }

    #[test]
    fn requests_and_connections_are_bounded() {
        let (address, _serving) = serve(&Metrics::new(1, &Limits::tiny()));
        // Not HTTP, a head that never ends, and one that never comes: each connection ends by itself.
        assert!(!ask(address, "\x16\x03\x01\x02\x00").contains("200"));
        let endless = ask(address, &format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(64 << 10)));
        assert!(!endless.contains("200 OK"), "{endless}");
        let mut silent = [connect(address), connect(address)];
        // Both places are taken, so a third is closed without an answer; when the silent ones have timed out there is room again.
        let mut third = connect(address);
        drop(third.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"));
        assert_eq!(rest(&mut third), "");
        silent.iter_mut().for_each(|stream| drop(rest(stream)));
        assert!(get(address, "/health/live").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_core_that_stands_still_is_not_live() {
        let metrics = Metrics::new(2, &Limits::tiny());
        let pages = Pages { metrics: metrics.clone(), stuck_after: QUICK.stuck_after, beats: Mutex::default() };
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut sink = metrics.sink(ShardId(1));
        pages.watch(begin);
        assert_eq!(pages.live(after(100)), Ok(()), "neither has begun");
        sink.turn(NOW, &Gauges::default());
        pages.watch(after(101));
        assert_eq!(pages.live(after(131)), Ok(()));
        assert_eq!(pages.live(after(132)), Err("shard 1 has not gone round for 31 s".into()));
        sink.turn(NOW, &Gauges::default());
        pages.watch(after(133));
        assert_eq!(pages.live(after(140)), Ok(()));
    }

    #[test]
    fn a_taken_port_is_one_line() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = Admin::bind(&("127.0.0.1".into(), taken.local_addr().unwrap().port())).err().unwrap();
        let line = error.to_string();
        assert!(line.contains("(admin)") && line.contains("os error 98") && !line.contains('\n'), "{line}");
    }
}
