//! The cells of the comparison, as ../README.md defines them. apps/bench/index/cells.cc measures the
//! same cells of kvcast.
// SPDX-License-Identifier: Apache-2.0
use crate::corpus::{Corpus, Record, emptying};
use crate::memory;
use crate::peer::{Ask, Beside, Peer, Phases, Timed, event_of, event_of_removal, make_prompt};
use std::time::{Duration, Instant};

pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
}

type Figures = Result<Vec<Figure>, String>;

pub struct Cells<'a> {
    pub corpus: &'a Corpus,
    pub rounds: usize,
    pub points: usize,
}

fn figure(name: &'static str, value: f64, unit: &'static str) -> Figure {
    Figure { name, value, unit }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns the quantile by nearest rank, as apps/support/samples.h computes it.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted
        .get((rank - 1).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

fn mix64(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}

fn check_held(held: usize, expected: usize) -> Result<(), String> {
    if held == expected {
        return Ok(());
    }
    Err(format!("the index holds {held} blocks, expected {expected}"))
}

impl Cells<'_> {
    pub fn measure<P: Peer>(&self, cell: &str) -> Figures {
        if !P::THREADS && (cell == "apply2" || cell == "mixed") {
            return Err(format!(
                "this index has no threads: there is no cell {cell}"
            ));
        }
        match cell {
            "apply" => self.apply::<P>("cells.apply", 1),
            "apply2" => self.apply::<P>("cells.apply2", 2),
            "quarter" => self.empty::<P>("cells.quarter", 0.25),
            "drain" => self.empty::<P>("cells.drain", 1.0),
            "query" => self.query::<P>(),
            "mixed" => self.mixed::<P>(),
            "memory" => self.memory::<P>(),
            "scores" => self.scores::<P>(),
            _ => Err(format!("no cell has the name {cell}")),
        }
    }

    fn held(&self) -> usize {
        self.corpus.held().iter().map(Vec::len).sum()
    }

    fn threads(&self, count: u32) -> Vec<Phases> {
        let of_thread = |thread| {
            let events = self
                .corpus
                .events()
                .filter(|record| record.worker % count == thread);
            vec![events.map(event_of).collect()]
        };
        (0..count).map(of_thread).collect()
    }

    /// Runs all rounds and returns the times of the last round.
    fn last_round<P: Peer>(
        &self,
        threads: impl Fn() -> Vec<Phases>,
        beside: Option<Beside>,
    ) -> Timed {
        for _ in 1..self.rounds {
            P::timed(threads(), beside);
        }
        P::timed(threads(), beside)
    }

    fn apply<P: Peer>(&self, name: &'static str, threads: u32) -> Figures {
        let timed = self.last_round::<P>(|| self.threads(threads), None);
        check_held(timed.held, self.held())?;
        let blocks = self.corpus.event_blocks() as f64;
        Ok(vec![figure(
            name,
            nanoseconds(timed.ends[0]) / blocks,
            "ns",
        )])
    }

    fn empty<P: Peer>(&self, name: &'static str, share: f64) -> Figures {
        let held = self.corpus.held();
        let pairs: usize = held.iter().map(Vec::len).sum();
        let removals = emptying(&held, (share * pairs as f64) as usize);
        let removed: usize = removals.iter().map(|removal| removal.sequences.len()).sum();
        let phases = || {
            let mut threads = self.threads(1);
            threads[0].push(removals.iter().map(event_of_removal).collect());
            threads
        };
        let timed = self.last_round::<P>(phases, None);
        check_held(timed.held, pairs - removed)?;
        let time = timed.ends[1] - timed.ends[0];
        Ok(vec![figure(
            name,
            nanoseconds(time) / removed.max(1) as f64,
            "ns",
        )])
    }

    fn mixed<P: Peer>(&self) -> Figures {
        let ask_all = |ask: Ask| {
            let mut prompt = Vec::new();
            for record in self
                .corpus
                .records
                .iter()
                .filter(|record| record.is_query())
            {
                make_prompt(record, &mut prompt);
                std::hint::black_box(ask(&mut prompt));
            }
        };
        let timed = self.last_round::<P>(|| self.threads(1), Some(&ask_all));
        check_held(timed.held, self.held())?;
        let rate = self.corpus.block_ops() as f64 / nanoseconds(timed.ends[0]) * 1e3;
        Ok(vec![figure("cells.mixed", rate, "M ops/s")])
    }

    /// Replays the events up to each point. Then calls `on_query` for the queries since the previous
    /// point, while no event is applied.
    fn at_points<P: Peer>(&self, mut on_query: impl FnMut(&P, &Record)) -> Result<(), String> {
        let mut index = P::new();
        let step = self.corpus.records.len() / self.points + 1;
        for part in self.corpus.records.chunks(step) {
            for record in part
                .iter()
                .filter(|record| record.op != crate::corpus::Op::Query)
            {
                index.feed(event_of(record));
            }
            index.settle();
            for record in part.iter().filter(|record| record.is_query()) {
                on_query(&index, record);
            }
        }
        check_held(index.held(), self.held())
    }

    fn query<P: Peer>(&self) -> Figures {
        let mut prompt = Vec::new();
        let mut times = Vec::new();
        self.at_points(|index: &P, record| {
            make_prompt(record, &mut prompt);
            let start = Instant::now();
            drop(std::hint::black_box(index.ask(&mut prompt)));
            times.push(nanoseconds(start.elapsed()) * 1e-3);
        })?;
        times.sort_unstable_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        Ok(vec![
            figure("cells.query_p50", quantile(&times, 0.5), "us"),
            figure("cells.query_p99", quantile(&times, 0.99), "us"),
            figure("cells.query_mean", mean, "us"),
            figure("cells.queries", times.len() as f64, ""),
        ])
    }

    fn memory<P: Peer>(&self) -> Figures {
        let before = memory::read();
        let mut index = P::new();
        for record in self.corpus.events() {
            index.feed(event_of(record));
        }
        index.settle();
        let now = memory::read();
        let pairs = self.held();
        check_held(index.held(), pairs)?;
        let a_pair = |now: usize, before: usize| (now as f64 - before as f64) / pairs.max(1) as f64;
        let live = a_pair(now.live, before.live);
        let resident = a_pair(now.resident, before.resident);
        Ok(vec![
            figure("cells.memory", live.min(resident), "bytes"),
            figure("cells.memory_live", live, "bytes"),
            figure("cells.memory_resident", resident, "bytes"),
            figure("cells.pairs", pairs as f64, ""),
        ])
    }

    fn scores<P: Peer>(&self) -> Figures {
        let (mut sum, mut scores, mut blocks, mut queries) = (0u64, 0u64, 0u64, 0u64);
        let mut prompt = Vec::new();
        self.at_points(|index: &P, record| {
            make_prompt(record, &mut prompt);
            for (worker, &score) in &index.ask(&mut prompt).scores {
                if score > 0 {
                    let of_worker = mix64(mix64(queries) ^ worker.worker_id);
                    sum = sum.wrapping_add(mix64(of_worker ^ u64::from(score)));
                    scores += 1;
                    blocks += u64::from(score);
                }
            }
            queries += 1;
        })?;
        Ok(vec![
            figure("cells.checksum", (sum >> 11) as f64, ""),
            figure("cells.scores", scores as f64, ""),
            figure("cells.score_blocks", blocks as f64, ""),
            figure("cells.queries", queries as f64, ""),
        ])
    }
}
