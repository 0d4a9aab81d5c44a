//! Measures one cell of one index of the crate dynamo-kv-router on a corpus. Prints one JSON object,
//! as `kvcast bench cells --json` does.
//!
//! usage: kvcast-peer-dynamo --corpus FILE --index crtc|radix --cell NAME [--rounds N] [--points N]
// SPDX-License-Identifier: Apache-2.0
mod cells;
mod corpus;
mod memory;
mod peer;

use cells::{Cells, Figure};
use corpus::Corpus;
use std::collections::HashMap;

const FLAGS: [&str; 5] = ["--corpus", "--index", "--cell", "--rounds", "--points"];

fn arguments() -> Result<HashMap<String, String>, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut values = HashMap::new();
    for pair in words.chunks(2) {
        match pair {
            [flag, value] if FLAGS.contains(&flag.as_str()) => {
                values.insert(flag.clone(), value.clone())
            }
            _ => return Err(format!("{}: not a flag with a value", pair[0])),
        };
    }
    Ok(values)
}

fn number(values: &HashMap<String, String>, flag: &str, default: usize) -> Result<usize, String> {
    let Some(text) = values.get(flag) else {
        return Ok(default);
    };
    text.parse()
        .ok()
        .filter(|&value| value > 0)
        .ok_or(format!("{flag}: at least 1"))
}

fn run() -> Result<String, String> {
    let values = arguments()?;
    let value = |flag: &str| {
        values
            .get(flag)
            .map(String::as_str)
            .ok_or(format!("{flag} is missing"))
    };
    let (index, cell) = (value("--index")?, value("--cell")?);
    let corpus = Corpus::read(value("--corpus")?)?;
    let cells = Cells {
        corpus: &corpus,
        rounds: number(&values, "--rounds", 3)?,
        points: number(&values, "--points", 40)?,
    };
    let figures = match index {
        "crtc" => cells.measure::<peer::Crtc>(cell)?,
        "radix" => cells.measure::<peer::Radix>(cell)?,
        _ => return Err(format!("no index has the name {index}")),
    };
    Ok(json(index, &figures))
}

fn json(index: &str, figures: &[Figure]) -> String {
    let entry = |figure: &Figure| {
        let Figure { name, value, unit } = figure;
        format!(r#"{{"figure":{value},"name":"{name}","unit":"{unit}"}}"#)
    };
    let figures: Vec<String> = figures.iter().map(entry).collect();
    format!(
        r#"{{"figures":[{}],"index":"{index}","name":"cells","targets":[]}}"#,
        figures.join(",")
    )
}

fn main() {
    match run() {
        Ok(line) => println!("{line}"),
        Err(problem) => {
            eprintln!("kvcast-peer-dynamo: {problem}");
            std::process::exit(1);
        }
    }
}
