//! Parses every file of a folder and counts: parsed, refused (with place), pairs of texts that differ, unknown operations.
//!
//! `cargo run --release -p invariance-checker --example parse_folder -- FOLDER`

use invariance_checker::ir::{Block, OpKind};
use invariance_checker::parse::parse;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("expected a folder");
        std::process::exit(3);
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.retain(|p| matches!(p.extension().and_then(|e| e.to_str()), Some("ttir" | "mlir")));
    paths.sort();
    let (mut parsed, mut refused, mut differing) = (0, 0, 0);
    let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
    let mut forms = BTreeMap::new();
    for path in &paths {
        match parse(&std::fs::read(path)?) {
            Ok(mut module) => {
                parsed += 1;
                module.functions.iter().for_each(|f| f.blocks.iter().for_each(|b| names(b, &mut unknown)));
                module.strip();
                let stem = path.to_string_lossy().replace(".generic.mlir", "").replace(".ttir", "");
                if let Some(other) = forms.insert(stem.clone(), module.clone())
                    && other != module
                {
                    differing += 1;
                    println!("differ: {stem}");
                }
            }
            Err(error) => {
                refused += 1;
                println!("{}:{error}", path.display());
            }
        }
    }
    println!("{} files: {parsed} parsed, {refused} refused, {differing} pairs differ", paths.len());
    unknown.iter().for_each(|(name, n)| println!("unknown {name}: {n}"));
    Ok(())
}

fn names(block: &Block, unknown: &mut BTreeMap<String, usize>) {
    for op in &block.ops {
        if let OpKind::Unknown { name, .. } = &op.kind {
            *unknown.entry(name.clone()).or_default() += 1;
        }
        op.kind.blocks().into_iter().for_each(|b| names(b, unknown));
    }
}
