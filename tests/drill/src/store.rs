//! The resources that the locks protect. Each is a set, as in Jepsen's set workload: a client reads
//! the set, waits, and writes it back with one more element. If two clients do this at once, the
//! element of one of them is lost.
//!
//! A write replaces the whole set. To keep messages short, a client names the set that it has read
//! by its version, and the store keeps all versions. A version is the set of one earlier version
//! and one new element.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::clock::{self, Nanos};
use crate::locks::RESOURCES;

/// The version of an empty set.
const EMPTY: usize = 0;

/// A resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The largest token that was shown. It is 0 without fencing.
    fence: u64,
    /// The present version. All versions are in `writes`.
    present: usize,
    /// The writes, in order. The write at index i made version i + 1.
    writes: Vec<Write>,
    /// The number of requests that were refused because of the token.
    pub refused: usize,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// The version that the writer had read.
    read: usize,
    /// The version that the write replaced.
    replaced: usize,
    /// Set if the writer's validity had ended when the write arrived.
    is_late: bool,
}

/// A refusal: another client has shown a larger token.
#[derive(Debug, PartialEq)]
pub struct Stale;

/// The writes that are lost, although they were acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    /// Lost between two holders that were both valid.
    pub in_time: usize,
    /// Lost because a holder wrote after the end of its validity.
    pub by_late_writers: usize,
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            fence: 0,
            present: EMPTY,
            writes: Vec::new(),
            refused: 0,
        }
    }
}

impl Resource {
    /// Returns the present version.
    pub fn read(&mut self, token: u64) -> Result<usize, Stale> {
        self.admit(token)?;
        Ok(self.present)
    }

    /// Replaces the present set by the set of version `read` and one more element. Checks the token
    /// in the same step.
    pub fn write(&mut self, token: u64, read: usize, is_late: bool) -> Result<(), Stale> {
        self.admit(token)?;
        self.writes.push(Write {
            read,
            replaced: self.present,
            is_late,
        });
        self.present = self.writes.len();
        Ok(())
    }

    fn admit(&mut self, token: u64) -> Result<(), Stale> {
        if token < self.fence {
            self.refused += 1;
            return Err(Stale);
        }
        self.fence = token;
        Ok(())
    }

    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    pub fn late_writes(&self) -> usize {
        self.writes.iter().filter(|write| write.is_late).count()
    }

    /// Counts the acknowledged writes that are not in the final set. Every one of them was lost
    /// because a write replaced a version that its writer had not read.
    pub fn lost(&self) -> Lost {
        let mut lost = Lost::default();
        let mut is_lost = vec![false; self.writes.len()];
        for write in self
            .writes
            .iter()
            .filter(|write| write.read != write.replaced)
        {
            let overwritten = self.overwritten(write);
            let late = |index: &usize| self.writes[*index].is_late;
            let is_late = write.is_late || overwritten.iter().any(late);
            for index in overwritten {
                if !std::mem::replace(&mut is_lost[index], true) {
                    *(if is_late {
                        &mut lost.by_late_writers
                    } else {
                        &mut lost.in_time
                    }) += 1;
                }
            }
        }
        lost
    }

    /// Returns the writes that are in the set that `write` replaced, but not in the set that its
    /// writer had read.
    fn overwritten(&self, write: &Write) -> Vec<usize> {
        let (mut kept, mut version) = (write.read, write.replaced);
        let mut overwritten = Vec::new();
        // A version is larger than the version that it came from.
        while version != kept {
            if version < kept {
                kept = self.writes[kept - 1].read;
            } else {
                overwritten.push(version - 1);
                version = self.writes[version - 1].read;
            }
        }
        overwritten
    }
}

/// All resources, served on a unix socket.
#[derive(Clone, Debug)]
pub struct Store(Arc<Mutex<Vec<Resource>>>);

impl Store {
    /// Starts to serve new resources at `path`, in the present runtime.
    pub fn serve(path: &Path) -> std::io::Result<Self> {
        let store = Self(Arc::new(Mutex::new(vec![Resource::default(); RESOURCES])));
        let listener = UnixListener::bind(path)?;
        let served = store.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let store = served.clone();
                tokio::spawn(async move { store.answer(client).await });
            }
        });
        Ok(store)
    }

    pub fn resources(&self) -> Vec<Resource> {
        self.0.lock().unwrap().clone()
    }

    async fn answer(self, client: UnixStream) -> Option<()> {
        let (requests, mut replies) = client.into_split();
        let mut requests = BufReader::new(requests).lines();
        while let Some(request) = requests.next_line().await.ok()? {
            let reply = self.reply(&request)?;
            let reply = reply.map_or("stale".to_owned(), |version| version.to_string());
            replies
                .write_all(format!("{reply}\n").as_bytes())
                .await
                .ok()?;
        }
        Some(())
    }

    fn reply(&self, request: &str) -> Option<Result<usize, Stale>> {
        let words: Vec<_> = request.split(' ').collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        let mut resources = self.0.lock().unwrap();
        let resource = resources.get_mut(number(1)? as usize)?;
        let token = number(2)?;
        Some(match words[0] {
            "read" => resource.read(token),
            "write" => {
                let (read, valid_until) = (number(3)? as usize, number(4)?);
                let written = resource.write(token, read, clock::now() > valid_until);
                written.map(|()| read)
            }
            _ => return None,
        })
    }
}

/// A client's connection to the store.
#[derive(Debug)]
pub struct StoreClient(BufReader<UnixStream>);

impl StoreClient {
    pub async fn connect(path: &Path) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(path).await?)))
    }

    pub async fn read(&mut self, resource: usize, token: u64) -> std::io::Result<Option<usize>> {
        self.ask(format!("read {resource} {token}\n")).await
    }

    /// Returns `None` if the write was refused.
    pub async fn write(
        &mut self,
        resource: usize,
        token: u64,
        read: usize,
        valid_until: Nanos,
    ) -> std::io::Result<Option<usize>> {
        let request = format!("write {resource} {token} {read} {valid_until}\n");
        self.ask(request).await
    }

    async fn ask(&mut self, request: String) -> std::io::Result<Option<usize>> {
        self.0.get_mut().write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        self.0.read_line(&mut reply).await?;
        match reply.trim_end() {
            "stale" => Ok(None),
            version => version.parse().map(Some).map_err(std::io::Error::other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(in_time: usize, by_late_writers: usize) -> Lost {
        Lost {
            in_time,
            by_late_writers,
        }
    }

    #[test]
    fn writes_one_after_the_other_lose_nothing() {
        let mut resource = Resource::default();
        for _ in 0..5 {
            let read = resource.read(0).unwrap();
            resource.write(0, read, false).unwrap();
        }
        assert_eq!((resource.writes(), resource.lost()), (5, lost(0, 0)));
    }

    #[test]
    fn a_planted_lost_update_is_found_once() {
        let mut resource = Resource::default();
        let first = resource.read(0).unwrap();
        resource.write(0, first, false).unwrap();
        let second = resource.read(0).unwrap();
        resource.write(0, second, false).unwrap();
        resource.write(0, first, false).unwrap(); // loses the write of `second`, and the first
        assert_eq!(resource.lost(), lost(2, 0));
        resource.write(0, second, false).unwrap(); // loses the third write
        assert_eq!(resource.lost(), lost(3, 0));
    }

    #[test]
    fn a_late_writer_is_told_apart() {
        for is_first_late in [false, true] {
            let mut resource = Resource::default();
            let read = resource.read(0).unwrap();
            resource.write(0, read, is_first_late).unwrap();
            resource.write(0, read, !is_first_late).unwrap();
            assert_eq!(resource.lost(), lost(0, 1));
            assert_eq!(resource.late_writes(), 1);
        }
    }

    #[test]
    fn a_fence_refuses_the_late_writer() {
        let mut resource = Resource::default();
        let read = resource.read(33).unwrap();
        let later = resource.read(34).unwrap();
        assert_eq!(resource.write(33, read, true), Err(Stale));
        assert_eq!(resource.read(33), Err(Stale));
        resource.write(34, later, false).unwrap();
        assert_eq!((resource.refused, resource.lost()), (2, lost(0, 0)));
    }
}
