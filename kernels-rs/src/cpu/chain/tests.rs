//! Every instruction set against the definition, by bits.

use super::{Acc, COLUMNS, StepTile, Tile, group, run};
use crate::cpu::rows::{Rows, STEP};
use crate::cpu::simd::Simd;
use crate::cpu::testing::{Kind, Random};
use half::bf16;
use proptest::prelude::*;
use reduction_tree::arithmetic::{Arithmetic, mma_step};

/// Runs one tile both ways. The accumulators start from `start`, as attention's do after a rescale.
fn check(
    simd: Simd,
    arithmetic: Arithmetic,
    w: &[Vec<bf16>],
    x: &[Vec<bf16>],
    start: &[f32],
    live: u32,
) -> Result<(), String> {
    let steps = x[0].len() / STEP;
    let mut tile = vec![StepTile([[0; COLUMNS / 2]; STEP]); steps];
    let mut finite = true;
    for (column, w) in w.iter().enumerate() {
        for (k, w) in w.iter().enumerate() {
            tile[k / STEP].set(k % STEP, column, w.to_bits());
            finite &= w.is_finite() || live >> column & 1 == 0;
        }
    }
    let mut rows = Rows::new(x.len(), steps, arithmetic != Arithmetic::Ieee);
    for (mut row, x) in rows.rows_mut().zip(x) {
        row.fill(simd, group(arithmetic), bytemuck::cast_slice(x));
    }
    let views: Vec<_> = (0..x.len()).map(|r| rows.view(r, 0..steps)).collect();
    let mut acc: Vec<Acc> = (0..x.len()).map(|r| Acc(std::array::from_fn(|j| start[(r + j) % start.len()]))).collect();
    let before = acc.clone();
    run(simd, arithmetic, Tile { steps: &tile, live, finite }, &views, &mut acc);
    for (r, x) in x.iter().enumerate() {
        for column in (0..COLUMNS).filter(|column| live >> column & 1 == 1) {
            let steps = w[column].as_chunks::<STEP>().0.iter().zip(x.as_chunks::<STEP>().0);
            let expected = steps.fold(before[r].0[column], |c, (w, x)| mma_step(arithmetic, c, w, x));
            let got = acc[r].0[column];
            if expected.to_bits() != got.to_bits()
                && !(expected.is_nan() && got.is_nan() && arithmetic == Arithmetic::Ieee)
            {
                let (name, e, g) = (simd.name(), expected.to_bits(), got.to_bits());
                return Err(format!(
                    "{name} {arithmetic:?} row {r} column {column}: {expected:e} {e:#x}, got {got:e} {g:#x}"
                ));
            }
        }
    }
    Ok(())
}

fn case(seed: u64, w: Kind, x: Kind, rows: usize, steps: usize) -> Result<(), String> {
    let mut random = Random(seed);
    let w: Vec<_> = (0..COLUMNS).map(|_| w.vector(&mut random, steps * STEP)).collect();
    let x: Vec<_> = (0..rows).map(|_| x.vector(&mut random, steps * STEP)).collect();
    let start: Vec<f32> = match random.below(4) {
        0 => vec![0.0],
        1 => vec![-0.0, 1.5, -3.0e-39, f32::from_bits(1)],
        2 => (0..37).map(|_| Kind::Wide.vector(&mut random, 1)[0].to_f32() * 1.000_123).collect(),
        _ => (0..37).map(|_| f32::from_bits(random.next() as u32)).filter(|x| !x.is_nan()).chain([0.0]).collect(),
    };
    let live = if random.below(2) == 0 { u32::MAX } else { random.next() as u32 };
    for simd in Simd::available() {
        for arithmetic in Arithmetic::ALL {
            check(simd, arithmetic, &w, &x, &start, live)?;
        }
    }
    Ok(())
}

#[test]
fn every_pair_of_kinds() {
    for w in Kind::ALL {
        for x in Kind::ALL {
            for rows in [1, 2, 9] {
                case(rows as u64, w, x, rows, 6).unwrap_or_else(|e| panic!("w {w:?}, x {x:?}: {e}"));
            }
        }
    }
}

/// The outputs of single instructions that an H200 gave, 32 records at a time: record i in column i and row i.
#[test]
fn recorded_instructions() {
    for file in ["sm90_bf16_mma.bin", "sm90_bf16_wgmma.bin"] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../reduction-tree/tests/vectors/");
        let bytes = std::fs::read(format!("{path}{file}")).unwrap();
        let records = bytes.as_chunks::<72>().0;
        assert_eq!(records.len(), 4096, "{file}");
        for block in records.chunks(COLUMNS) {
            let bits = |record: &[u8; 72], i: usize| u16::from_le_bytes([record[2 * i], record[2 * i + 1]]);
            let word = |record: &[u8; 72], i: usize| f32::from_le_bytes(*record[64 + 4 * i..].first_chunk().unwrap());
            let mut tile = StepTile([[0; COLUMNS / 2]; STEP]);
            let mut rows = Rows::new(COLUMNS, 1, true);
            for simd in Simd::available() {
                for (i, (record, mut row)) in block.iter().zip(rows.rows_mut()).enumerate() {
                    (0..STEP).for_each(|k| tile.set(k, i, bits(record, k)));
                    let b: [u16; STEP] = std::array::from_fn(|k| bits(record, STEP + k));
                    row.fill(simd, 16, &b);
                }
                let views: Vec<_> = (0..COLUMNS).map(|r| rows.view(r, 0..1)).collect();
                let mut acc: Vec<_> = block.iter().map(|record| Acc([word(record, 0); COLUMNS])).collect();
                let tile = Tile { steps: &[tile], live: u32::MAX, finite: true };
                run(simd, Arithmetic::Sm90, tile, &views, &mut acc);
                for (i, record) in block.iter().enumerate() {
                    assert_eq!(acc[i].0[i].to_bits(), word(record, 1).to_bits(), "{file} {simd:?}");
                }
            }
        }
    }
}

#[test]
fn chains_of_the_largest_integer_sums() {
    for seed in 0..8 {
        case(seed, Kind::Full, Kind::Full, 5, 64).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn equals_the_definition(seed: u64, w in 0..Kind::ALL.len(), x in 0..Kind::ALL.len(), rows in 1..12usize, steps in 1..10usize) {
        if let Err(e) = case(seed, Kind::ALL[w], Kind::ALL[x], rows, steps) {
            return Err(TestCaseError::fail(e));
        }
    }
}
