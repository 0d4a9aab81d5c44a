//! The crate's indexes behind one interface, and the corpus as the crate's events.
// SPDX-License-Identifier: Apache-2.0
use crate::corpus::{Op, Record, Removal};
use dynamo_kv_router::indexer::WorkerTask;
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree, SyncIndexer};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Barrier, OnceLock};
use std::task::{Context, Poll, Wake};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The events of one thread, in phases. The end of each phase is timed.
pub type Phases = Vec<Vec<RouterEvent>>;
/// Queries an index for a prompt.
pub type Ask<'a> = &'a dyn Fn(&mut Vec<LocalBlockHash>) -> OverlapScores;

/// Sends queries while the events are applied.
pub type Beside<'a> = &'a dyn Fn(Ask);

pub struct Timed {
    /// By phase: the time from the start until the phase is done on all threads. The last time also
    /// includes `beside`.
    pub ends: Vec<Duration>,
    /// The number of (worker, block) pairs that the index holds afterwards.
    pub held: usize,
}

pub trait Peer: Sized {
    const THREADS: bool;

    /// Creates an empty index for `feed`, `settle`, `held` and `ask`.
    fn new() -> Self;
    fn feed(&mut self, event: RouterEvent);
    /// Waits until all events are applied.
    fn settle(&mut self);
    fn held(&mut self) -> usize;
    /// The index may take the content of `prompt`.
    fn ask(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores;

    /// Applies the events of each thread to a new index. All events exist before the start. Calls
    /// `beside` at the start, on the caller's thread.
    fn timed(threads: Vec<Phases>, beside: Option<Beside>) -> Timed;
}

fn router_event(worker: u32, data: KvCacheEventData) -> RouterEvent {
    RouterEvent::new(
        u64::from(worker),
        KvCacheEvent {
            event_id: 0,
            data,
            dp_rank: 0,
        },
    )
}

pub fn event_of(record: &Record) -> RouterEvent {
    if record.op == Op::Remove {
        let hash = |block: &crate::corpus::Block| ExternalSequenceBlockHash(block.sequence);
        let block_hashes = record.blocks.iter().map(hash).collect();
        return router_event(
            record.worker,
            KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }),
        );
    }
    let blocks = record.blocks.iter().map(|block| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(block.sequence),
        tokens_hash: LocalBlockHash(block.local),
        mm_extra_info: None,
    });
    let store = KvCacheStoreData {
        parent_hash: (record.parent != 0).then_some(ExternalSequenceBlockHash(record.parent)),
        start_position: None,
        blocks: blocks.collect(),
    };
    router_event(record.worker, KvCacheEventData::Stored(store))
}

pub fn event_of_removal(removal: &Removal) -> RouterEvent {
    let block_hashes = removal
        .sequences
        .iter()
        .map(|&hash| ExternalSequenceBlockHash(hash))
        .collect();
    router_event(
        removal.worker,
        KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }),
    )
}

/// Replaces `prompt` by the local hashes of the record's blocks.
pub fn make_prompt(record: &Record, prompt: &mut Vec<LocalBlockHash>) {
    prompt.clear();
    prompt.extend(
        record
            .blocks
            .iter()
            .map(|block| LocalBlockHash(block.local)),
    );
}

/// One thread that runs the crate's own loop over the tasks of a channel.
struct Lane {
    tasks: flume::Sender<WorkerTask>,
    started: Arc<OnceLock<Instant>>,
    thread: JoinHandle<()>,
}

impl Lane {
    /// Creates the thread. Its loop starts when all threads have reached the barrier.
    fn start(
        index: &Arc<ConcurrentRadixTreeCompressed>,
        channel: (flume::Sender<WorkerTask>, flume::Receiver<WorkerTask>),
        barrier: &Arc<Barrier>,
    ) -> Lane {
        let (tasks, received) = channel;
        let started = Arc::new(OnceLock::new());
        let (index, barrier, now) = (index.clone(), barrier.clone(), started.clone());
        let thread = std::thread::spawn(move || {
            barrier.wait();
            now.set(Instant::now()).expect("it starts once");
            index
                .worker(received, None)
                .expect("the loop ends without an error");
        });
        Lane {
            tasks,
            started,
            thread,
        }
    }

    fn held(&self) -> usize {
        let (reply, wait) = oneshot::channel();
        self.tasks
            .send(WorkerTask::Stats(reply))
            .expect("the channel is open");
        let stats = wait.blocking_recv().expect("the loop answers");
        stats.worker_blocks.iter().map(|(_, blocks)| blocks).sum()
    }

    fn end(self) {
        drop(self.tasks);
        self.thread.join().expect("the loop does not panic");
    }
}

/// The time at which the loop reaches a task. The thread of the loop reads the clock, because a
/// thread that waits for the loop may wake up late.
struct Mark {
    reached: Arc<Stamp>,
    _reply: oneshot::Receiver<()>,
}

struct Stamp(OnceLock<Instant>);

impl Wake for Stamp {
    fn wake(self: Arc<Self>) {
        self.0.get_or_init(Instant::now);
    }
}

impl Mark {
    fn after(tasks: &flume::Sender<WorkerTask>) -> Mark {
        let (sender, mut reply) = oneshot::channel();
        let reached = Arc::new(Stamp(OnceLock::new()));
        let waker = reached.clone().into();
        // The reply calls `wake` on the thread that sends it.
        let state = Pin::new(&mut reply).poll(&mut Context::from_waker(&waker));
        assert!(matches!(state, Poll::Pending));
        tasks
            .send(WorkerTask::Flush(sender))
            .expect("the channel is open");
        Mark {
            reached,
            _reply: reply,
        }
    }

    fn time(&self) -> Instant {
        *self.reached.0.get().expect("the loop has done all tasks")
    }
}

/// ConcurrentRadixTreeCompressed with one thread for events.
pub struct Crtc {
    index: Arc<ConcurrentRadixTreeCompressed>,
    lane: Option<Lane>,
}

impl Crtc {
    fn lane(&self) -> &Lane {
        self.lane.as_ref().expect("it runs until it is dropped")
    }
}

impl Drop for Crtc {
    fn drop(&mut self) {
        self.lane.take().into_iter().for_each(Lane::end);
    }
}

impl Peer for Crtc {
    const THREADS: bool = true;

    fn new() -> Self {
        let index = Arc::new(ConcurrentRadixTreeCompressed::new());
        let lane = Lane::start(&index, flume::bounded(64), &Arc::new(Barrier::new(1)));
        Crtc {
            index,
            lane: Some(lane),
        }
    }

    fn feed(&mut self, event: RouterEvent) {
        self.lane()
            .tasks
            .send(WorkerTask::Event(event))
            .expect("the channel is open");
    }

    fn settle(&mut self) {
        let (reached, wait) = oneshot::channel();
        self.lane()
            .tasks
            .send(WorkerTask::Flush(reached))
            .expect("the channel is open");
        wait.blocking_recv().expect("the loop answers");
    }

    fn held(&mut self) -> usize {
        self.lane().held()
    }

    fn ask(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores {
        self.index.find_matches(prompt, false)
    }

    fn timed(threads: Vec<Phases>, beside: Option<Beside>) -> Timed {
        let index = Arc::new(ConcurrentRadixTreeCompressed::new());
        let barrier = Arc::new(Barrier::new(threads.len() + 1));
        let phases = threads[0].len();
        let (mut lanes, mut marks) = (Vec::new(), Vec::new());
        for events in threads {
            let channel = flume::unbounded();
            let send = |event| {
                channel
                    .0
                    .send(WorkerTask::Event(event))
                    .expect("the channel is open")
            };
            let mark_after = |phase: Vec<RouterEvent>| {
                phase.into_iter().for_each(send);
                Mark::after(&channel.0)
            };
            marks.push(events.into_iter().map(mark_after).collect::<Vec<_>>());
            lanes.push(Lane::start(&index, channel, &barrier));
        }
        barrier.wait();
        let asked = beside.map(|ask_all| {
            let start = Instant::now();
            ask_all(&|prompt| index.find_matches(prompt, false));
            (start, Instant::now())
        });
        let held = lanes.iter().map(Lane::held).sum();
        let starts = lanes
            .iter()
            .map(|lane| *lane.started.get().expect("it has started"));
        let start = starts
            .chain(asked.map(|(start, _)| start))
            .min()
            .expect("a thread");
        let end_of = |phase: usize| marks.iter().map(|of_lane| of_lane[phase].time()).max();
        let mut ends: Vec<Instant> = (0..phases).filter_map(end_of).collect();
        if let (Some(end), Some((_, asked))) = (ends.last_mut(), asked) {
            *end = asked.max(*end);
        }
        lanes.into_iter().for_each(Lane::end);
        Timed {
            ends: ends.into_iter().map(|end| end - start).collect(),
            held,
        }
    }
}

/// RadixTree, which has no threads.
pub struct Radix(RadixTree);

impl Radix {
    fn apply(&mut self, event: RouterEvent) {
        self.0.apply_event(event).expect("the event applies");
    }
}

impl Peer for Radix {
    const THREADS: bool = false;

    fn new() -> Self {
        Radix(RadixTree::new())
    }

    fn feed(&mut self, event: RouterEvent) {
        self.apply(event);
    }

    fn settle(&mut self) {}

    fn held(&mut self) -> usize {
        self.0.current_size()
    }

    fn ask(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores {
        self.0.find_matches(std::mem::take(prompt), false)
    }

    fn timed(threads: Vec<Phases>, _: Option<Beside>) -> Timed {
        let mut index = Self::new();
        let start = Instant::now();
        let mut ends = Vec::new();
        for phase in threads.into_iter().flatten() {
            phase.into_iter().for_each(|event| index.apply(event));
            ends.push(start.elapsed());
        }
        Timed {
            ends,
            held: index.held(),
        }
    }
}
