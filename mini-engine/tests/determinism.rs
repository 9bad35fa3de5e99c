//! The harness on the fake model: it passes when nothing is wrong, and every deliberate fault is caught.

use mini_engine::determinism::{Break, FakeLab, Report, Scale, check};

fn run(scale: &Scale, kind: Option<Break>) -> Report {
    run_in(&FakeLab::default(), scale, kind)
}

fn run_in(lab: &FakeLab, scale: &Scale, kind: Option<Break>) -> Report {
    let report = check(lab, &FakeLab::default(), (0..60).collect(), scale, kind, &mut |_| {});
    println!("{}", Report::heading());
    report.tallies.iter().for_each(|tally| println!("{}", Report::line(tally)));
    println!("{}", report.verdict());
    report
}

fn failed(report: &Report) -> Vec<String> {
    let rows = report.rows();
    rows.into_iter().filter(|row| row.different + row.invalid > 0).map(|row| row.relation).collect()
}

#[test]
fn the_full_scale_has_a_thousand_equal_pairs() {
    let report = run(&Scale::full(), None);
    assert!(report.all_equal());
    assert!(report.rows().iter().map(|row| row.equal).sum::<usize>() >= 1000);
}

#[test]
fn the_quick_scale_has_every_relation_of_the_full_one() {
    let report = run(&Scale::quick(), None);
    assert!(report.all_equal());
    let digest = report.digest;
    assert_eq!(run(&Scale::quick(), None).digest, digest);
}

#[test]
fn every_relation_holds_ahead_of_the_device() {
    let report = run_in(&FakeLab { run_ahead: true }, &Scale::full(), None);
    assert!(report.all_equal());
    assert!(report.rows().iter().map(|row| row.equal).sum::<usize>() >= 1000);
}

#[test]
fn a_wrong_page_in_a_table_is_refused_by_the_ledger() {
    let report = run(&Scale::quick(), Some(Break::WrongPage));
    assert!(failed(&report).contains(&"batch of 8".to_owned()));
    assert!(
        report.verdict().starts_with(|c: char| c.is_ascii_digit())
            && report.verdict().contains("NOT equal: batch of 2")
    );
    // Refused, so no wrong row was ever computed.
    assert!(report.rows().iter().all(|row| row.different == 0));
}

#[test]
fn a_stale_page_is_refused_by_the_ledger() {
    let report = run(&Scale::quick(), Some(Break::StalePage));
    assert!(failed(&report).contains(&"cache, another suffix".to_owned()));
    assert!(report.rows().iter().all(|row| row.different == 0));
}

#[test]
fn a_page_changed_behind_the_ledger_shows_in_the_logits() {
    let report = run(&Scale::quick(), Some(Break::UncheckedPage));
    assert!(report.rows().iter().any(|row| row.different > 0));
    assert!(failed(&report).contains(&"preemption".to_owned()));
}

#[test]
fn noise_keyed_by_the_batch_index_shows_in_the_tokens() {
    let report = run(&Scale::quick(), Some(Break::SampleIndex));
    assert!(failed(&report).contains(&"neighbours' sampling".to_owned()));
}

#[test]
fn an_ignored_fault_leaves_no_witness() {
    assert_eq!(failed(&run(&Scale::quick(), Some(Break::IgnoredFault))), ["a neighbour's NaN"]);
}

#[test]
fn a_preemption_relation_without_pressure_is_invalid() {
    assert_eq!(failed(&run(&Scale::quick(), Some(Break::NoPressure))), ["preemption"]);
}
