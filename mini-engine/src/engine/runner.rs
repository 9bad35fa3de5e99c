//! From accepted launch records to the rows that kernels get. The obligations of the proof's last step live here: exactly
//! the returned rows are launched, with the ledger's tables and nothing else.

use std::collections::BTreeMap;

use kernels_rs::backend::StepRows;
use ledger::{Launch, Ledger};

/// Lays out one step. Rows of one request are adjacent and ascend, as the scheduler's plans have them; a plan that
/// interleaves requests is brought into that order, which is sound because all writes of a step precede all reads.
/// Returns the rows and, for each, the launch record it came from.
pub fn lay_out<'a>(ledger: &Ledger, launches: &'a [Launch]) -> (StepRows, Vec<&'a Launch>) {
    let mut by_book: BTreeMap<usize, Vec<&Launch>> = BTreeMap::new();
    let mut order = Vec::new();
    for launch in launches {
        by_book.entry(launch.req).or_insert_with(|| {
            order.push(launch.req);
            Vec::new()
        });
        by_book.entry(launch.req).or_default().push(launch);
    }
    let mut rows = StepRows::default();
    let mut records = Vec::with_capacity(launches.len());
    for (sequence, book) in order.iter().enumerate() {
        rows.tables.push(ledger.reqs()[*book].table.clone());
        for launch in &by_book[book] {
            rows.tokens.push(launch.tok);
            rows.positions.push(launch.pos as u32);
            rows.slots.push(launch.slot as u32);
            rows.sequences.push(sequence as u32);
            records.push(*launch);
        }
    }
    debug_assert_eq!(obligations(ledger, launches, &rows), Ok(()));
    (rows, records)
}

/// Checks that `rows` is exactly what the ledger accepted: a permutation of `launches` that keeps each request's order, each
/// row written where its own table says, no slot written twice.
pub fn obligations(ledger: &Ledger, launches: &[Launch], rows: &StepRows) -> Result<(), String> {
    let count = launches.len();
    if [rows.tokens.len(), rows.positions.len(), rows.slots.len(), rows.sequences.len()] != [count; 4] {
        return Err(format!("expected {count} rows in every column"));
    }
    let page_tokens = ledger.page_size();
    let by_slot: BTreeMap<usize, &Launch> = launches.iter().map(|launch| (launch.slot, launch)).collect();
    if by_slot.len() != count {
        return Err("two rows write one slot".into());
    }
    for row in 0..count {
        let (slot, position) = (rows.slots[row] as usize, rows.positions[row] as usize);
        let Some(launch) = by_slot.get(&slot) else { return Err(format!("row {row}: slot {slot} was not accepted")) };
        if launch.tok != rows.tokens[row] || launch.pos != position {
            return Err(format!("row {row}: token or position differs from the accepted record"));
        }
        let table = &rows.tables[rows.sequences[row] as usize];
        if *table != ledger.reqs()[launch.req].table {
            return Err(format!("row {row}: the table is not the ledger's"));
        }
        if table.get(position / page_tokens).map(|&page| page as usize * page_tokens + position % page_tokens)
            != Some(slot)
        {
            return Err(format!("row {row}: slot {slot} is not where its table puts position {position}"));
        }
        if row > 0
            && rows.sequences[row] == rows.sequences[row - 1]
            && rows.positions[row - 1] + 1 != rows.positions[row]
        {
            return Err(format!("row {row}: positions of a sequence must ascend by one"));
        }
    }
    if rows.sequences.windows(2).any(|pair| pair[1] != pair[0] && pair[1] != pair[0] + 1) {
        return Err("rows of a sequence are not adjacent".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Op, admit, create, step};

    fn accepted(ops: impl Fn(usize, usize) -> Vec<Op>) -> (Ledger, Vec<Launch>) {
        let mut ledger = create(2, 8);
        let a = admit(&mut ledger, &[1, 2, 3, 4]);
        let b = admit(&mut ledger, &[1, 2, 9]);
        let mut launches = Vec::new();
        assert!(step(&mut ledger, &mut launches, &ops(a, b)));
        (ledger, launches)
    }

    fn two_requests() -> (Ledger, Vec<Launch>) {
        accepted(|a, b| {
            vec![
                Op::Grow(a, 5),
                Op::Fill(a, 2),
                Op::Grow(a, 0),
                Op::Fill(a, 1),
                Op::Attach(b, 5),
                Op::Grow(b, 7),
                Op::Fill(b, 1),
            ]
        })
    }

    #[test]
    fn rows_are_the_accepted_records() {
        let (ledger, launches) = two_requests();
        let (rows, records) = lay_out(&ledger, &launches);
        assert_eq!(rows.tokens, [1, 2, 3, 9]);
        assert_eq!(rows.positions, [0, 1, 2, 2]);
        assert_eq!(rows.slots, [10, 11, 0, 14]);
        assert_eq!(rows.sequences, [0, 0, 0, 1]);
        assert_eq!(rows.tables, [vec![5, 0], vec![5, 7]]);
        assert_eq!(records.iter().map(|launch| launch.sample).collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn interleaved_plans_become_adjacent_rows() {
        let (ledger, launches) = accepted(|a, b| {
            vec![Op::Grow(a, 5), Op::Grow(b, 6), Op::Fill(a, 1), Op::Fill(b, 1), Op::Fill(a, 1), Op::Fill(b, 1)]
        });
        let (rows, _) = lay_out(&ledger, &launches);
        assert_eq!(rows.sequences, [0, 0, 1, 1]);
        assert_eq!(rows.positions, [0, 1, 0, 1]);
    }

    #[test]
    fn every_deviation_is_noticed() {
        let (ledger, launches) = two_requests();
        let (rows, _) = lay_out(&ledger, &launches);
        let changes: [fn(&mut StepRows); 9] = [
            |r| r.slots[0] = 12,
            |r| r.slots.swap(0, 1),
            |r| r.slots[1] = r.slots[0],
            |r| r.tokens[3] = 8,
            |r| r.positions[2] = 3,
            |r| r.sequences[3] = 0,
            |r| r.tables[0][1] = 7,
            |r| r.tables[1].push(0),
            |r| {
                r.tokens.pop();
            },
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut wrong = rows.clone();
            change(&mut wrong);
            assert!(obligations(&ledger, &launches, &wrong).is_err(), "change {index} went unnoticed");
        }
    }
}
