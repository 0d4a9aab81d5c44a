//! Reads corpus files (bench/CORPUS.md).
// SPDX-License-Identifier: Apache-2.0
use sha2::{Digest, Sha256};
use std::collections::HashMap;

const HEADER_BYTES: usize = 32;
const RECORD_BYTES: usize = 32;
const BLOCK_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
const REMOVE_BATCH: usize = 32;

#[derive(Clone, Copy)]
pub struct Block {
    pub local: u64,
    pub sequence: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Op {
    Query,
    Store,
    Remove,
}

pub struct Record {
    pub worker: u32,
    pub op: Op,
    /// The sequence hash of the block before the first. 0: none.
    pub parent: u64,
    pub blocks: Vec<Block>,
}

impl Record {
    pub fn is_query(&self) -> bool {
        self.op == Op::Query && !self.blocks.is_empty()
    }
}

pub struct Corpus {
    pub workers: u32,
    pub records: Vec<Record>,
}

/// Removed blocks of one worker.
pub struct Removal {
    pub worker: u32,
    pub sequences: Vec<u64>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Corpus {
    pub fn read(path: &str) -> Result<Corpus, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        Self::decode(&bytes).map_err(|problem| format!("{path}: {problem}"))
    }

    fn decode(bytes: &[u8]) -> Result<Corpus, &'static str> {
        if bytes.len() < HEADER_BYTES + HASH_BYTES || &bytes[..8] != b"KVCORPUS" {
            return Err("not a corpus file");
        }
        let (content, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
        if u32_at(content, 8) != 1 {
            return Err("not version 1");
        }
        if Sha256::digest(content).as_slice() != hash {
            return Err("the SHA-256 at its end does not match");
        }
        let mut corpus = Corpus {
            workers: u32_at(content, 12),
            records: Vec::new(),
        };
        let mut rest = &content[HEADER_BYTES..];
        for _ in 0..u64_at(content, 24) {
            let record = corpus.decode_record(&mut rest)?;
            corpus.records.push(record);
        }
        if rest.is_empty() {
            Ok(corpus)
        } else {
            Err("extra bytes after the last record")
        }
    }

    fn decode_record(&self, rest: &mut &[u8]) -> Result<Record, &'static str> {
        let (head, after) = rest.split_at_checked(RECORD_BYTES).ok_or("truncated")?;
        let count = usize::try_from(u64_at(head, 24)).map_err(|_| "more blocks than bytes")?;
        let bytes = count
            .checked_mul(BLOCK_BYTES)
            .ok_or("more blocks than bytes")?;
        let (blocks, after) = after
            .split_at_checked(bytes)
            .ok_or("more blocks than bytes")?;
        *rest = after;
        let worker = u32_at(head, 8);
        if worker >= self.workers {
            return Err("no such worker");
        }
        Ok(Record {
            worker,
            op: match u32_at(head, 12) {
                1 => Op::Query,
                2 => Op::Store,
                3 => Op::Remove,
                _ => return Err("unknown operation"),
            },
            parent: u64_at(head, 16),
            blocks: blocks
                .chunks_exact(BLOCK_BYTES)
                .map(|block| Block {
                    local: u64_at(block, 0),
                    sequence: u64_at(block, 8),
                })
                .collect(),
        })
    }

    /// The records that store or remove.
    pub fn events(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.op != Op::Query)
    }

    /// The number of blocks in prompts, stores and removes.
    pub fn block_ops(&self) -> usize {
        self.records.iter().map(|record| record.blocks.len()).sum()
    }

    /// The number of stored and removed blocks.
    pub fn event_blocks(&self) -> usize {
        self.events().map(|record| record.blocks.len()).sum()
    }

    /// The blocks that each worker holds at the end, by worker. The most recently stored block is first.
    pub fn held(&self) -> Vec<Vec<u64>> {
        let mut stored_at = vec![HashMap::new(); self.workers as usize];
        let mut now = 0u64;
        for record in self.events() {
            let of_worker = &mut stored_at[record.worker as usize];
            for block in &record.blocks {
                if record.op == Op::Store {
                    of_worker.insert(block.sequence, now);
                    now += 1;
                } else {
                    of_worker.remove(&block.sequence);
                }
            }
        }
        let youngest_first = |times: HashMap<u64, u64>| {
            let mut blocks: Vec<(u64, u64)> = times
                .into_iter()
                .map(|(block, time)| (time, block))
                .collect();
            blocks.sort_unstable_by(|a, b| b.cmp(a));
            blocks.into_iter().map(|(_, block)| block).collect()
        };
        stored_at.into_iter().map(youngest_first).collect()
    }
}

/// Returns batches that remove up to 32 blocks of one worker each. The workers take turns. The list
/// ends as soon as its batches remove at least `target` blocks.
pub fn emptying(held: &[Vec<u64>], target: usize) -> Vec<Removal> {
    let mut removals = Vec::new();
    let mut removed = 0;
    let turns = held
        .iter()
        .map(Vec::len)
        .max()
        .unwrap_or(0)
        .div_ceil(REMOVE_BATCH);
    for turn in 0..turns {
        for (worker, blocks) in held.iter().enumerate() {
            let Some(batch) = blocks.chunks(REMOVE_BATCH).nth(turn) else {
                continue;
            };
            if removed >= target {
                return removals;
            }
            removed += batch.len();
            removals.push(Removal {
                worker: worker as u32,
                sequences: batch.to_vec(),
            });
        }
    }
    removals
}
